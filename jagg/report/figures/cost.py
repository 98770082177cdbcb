"""What the arms cost, and what they give for it."""

from collections.abc import Iterable
from fractions import Fraction
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from jagg.keys import RunKey
from jagg.report.data import Row, StudyData, key_of
from jagg.report.figures.plot import RUN, Plot, cell_panels, margin_band, metric_columns, of_cell, place_label
from jagg.report.style import INK, add_legend, algorithm_markers, panel

COSTS = {
    "ratio_to_baseline": "backward passes",
    "update_time_ratio": "update time",
    "step_time_ratio": "step time",
}


def cost_bars(data: StudyData) -> Plot:
    """Cost of each arm over the reference's, by cell: bars are means over seeds, dots are seeds."""
    arms = data.compared_arms
    names = (*RUN, "backward_passes", *COSTS)
    rows = [{name: row[name] for name in names} for row in data.passes if row["arm"] in arms]
    totals = {key_of(row): row["backward_passes"] for row in data.passes}
    thickness = 0.8 / len(arms)
    panels = {}
    for name, title in COSTS.items():
        figure, axis = panel(f"{title}, ratio to {data.reference}", 1.2 + max(0.42, 0.26 * len(arms)) * len(data.cells))
        for slot, cell in enumerate(data.cells):
            for place, arm in enumerate(arms):
                mine = [row for row in of_cell(rows, cell) if row["arm"] == arm and row[name] is not None]
                y = slot + (place - (len(arms) - 1) / 2) * thickness
                if mine:
                    exact = _fraction(data, mine, totals) if name == "ratio_to_baseline" else ""
                    _bar(axis, y, thickness, [row[name] for row in mine], data.colours[arm], exact)
        axis.axvline(1, color=INK, linewidth=0.8)
        axis.grid(visible=False, axis="y")
        axis.set_yticks(range(len(data.cells)), [place_label(cell) for cell in data.cells])
        axis.set_ylim(len(data.cells) - 0.5, -0.5)
        axis.set_xlim(0, max(1.0, *_values(rows, COSTS)) * (1.62 if name == "ratio_to_baseline" else 1.25))
        add_legend(figure, {arm: data.colours[arm] for arm in arms})
        panels[title.replace(" ", "-")] = figure
    return Plot(
        "cost",
        "Cost beside the reference",
        "Ratios of this run over the reference's run of the same seed: backward passes are counted and exact (no "
        "interval; the fraction is arm over reference, all seeds), times are what this machine took. Bars: mean over "
        "seeds; dots: seeds. Below 1 is cheaper.",
        panels,
        rows,
    )


def _fraction(data: StudyData, rows: list[Row], totals: dict[RunKey, int]) -> str:
    """The exact ratio of counts as a fraction in lowest terms, where one short enough to read exists."""
    partners = [RunKey(row["backbone"], row["algorithm"], data.reference, row["seed"]) for row in rows]
    ratio = Fraction(sum(row["backward_passes"] for row in rows), sum(totals[key] for key in partners))
    return f" = {ratio.numerator}/{ratio.denominator}" if ratio.denominator < 1000 else ""


def _values(rows: Iterable[Row], names: Iterable[str]) -> list[float]:
    found = [row[name] for row in rows for name in names if row[name] is not None]
    return found or [1.0]


def _bar(axis: Axes, y: float, thickness: float, values: list[float], colour: str, exact: str) -> None:
    mean = fmean(values)
    axis.barh(y, mean, height=0.9 * thickness, color=colour, alpha=0.8, linewidth=0)
    axis.plot(values, [y] * len(values), color=INK, marker=".", markersize=3, linestyle="none")
    end = max(1.0, *values)  # right of the line of equal cost, which would cross the text
    axis.annotate(f"{mean:.3g}{exact}", (end, y), fontsize=7, va="center", xytext=(4, 0), textcoords="offset points")


def pareto(data: StudyData) -> Plot:
    """Difference in score against backward passes, one point an arm: the sweep's figure, and any study's."""
    rows = _points(data)
    markers = algorithm_markers(list(data.study.algorithms))
    panels = {}
    for cell, metric, name, figure, axis in cell_panels(data):
        margin_band(data, axis, metric)
        mine = of_cell(rows, cell, metric)
        for row in mine:
            x, y, colour = row["backward_passes_per_trajectory"], row["difference"], data.colours[row["arm"]]
            if row["ci_low"] is not None:
                axis.plot([x, x], [row["ci_low"], row["ci_high"]], color=colour, linewidth=1.2)
            axis.plot([x], [y], color=colour, marker=markers[cell[1]], markersize=6)
        front = sorted((r["backward_passes_per_trajectory"], r["difference"]) for r in mine if r["on_front"])
        axis.step(*zip(*front), where="post", color=INK, linewidth=0.8, linestyle=":") if front else None
        axis.margins(x=0.2)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.set_xlabel("backward passes a trajectory")
        axis.set_ylabel(f"difference from {data.reference}")
        add_legend(figure, data.colours)
        panels[name] = figure
    return Plot(
        "pareto",
        "What each arm gives for its backward passes",
        f"Score at the last checkpoint minus {data.reference}'s, with its interval, by counted backward passes a "
        "trajectory. Up and left is better; the dotted line joins the arms that no other arm beats in both by their "
        "means, which says nothing about certainty: read the intervals.",
        panels,
        rows,
        metric_columns(data),
    )


def _points(data: StudyData) -> list[Row]:
    """One row a cell, metric and arm; the reference stands at a difference of 0."""
    found: list[Row] = []
    differences = {(r["backbone"], r["algorithm"], r["metric"], r["arm"]): r for r in data.last_differences()}
    for cell in data.cells:
        passes = {
            arm: fmean(row["backward_passes_per_trajectory"] for row in runs)
            for arm in data.study.arms
            if (runs := [row for row in of_cell(data.passes, cell) if row["arm"] == arm])
        }
        for metric in data.study.scorers:
            points: list[Row] = []
            for arm, spent in passes.items():
                row = differences.get((*cell, metric, arm), {})
                difference = 0.0 if arm == data.reference else row.get("difference")
                if difference is not None:
                    points.append(
                        {"backbone": cell[0], "algorithm": cell[1], "metric": metric, "arm": arm,
                         "backward_passes_per_trajectory": spent, "difference": difference,
                         "ci_low": row.get("ci_low"), "ci_high": row.get("ci_high")}
                    )  # fmt: skip
            found += [point | {"on_front": not any(_beats(other, point) for other in points)} for point in points]
    return found


def _beats(other: Row, point: Row) -> bool:
    mine, its = ((-row["backward_passes_per_trajectory"], row["difference"]) for row in (point, other))
    return all(theirs >= ours for theirs, ours in zip(its, mine)) and its != mine
