"""What each arm gives for what it costs: the figure of a sweep, and of any study."""

from collections.abc import Iterable
from statistics import fmean

from matplotlib.ticker import MaxNLocator

from jagg.report.data import Row, StudyData
from jagg.report.figures.plot import Plot, cell_panels, margin_band, metric_columns, of_cell, say_if_empty
from jagg.report.style import INK, add_legend, algorithm_markers

PASSES, TIME = "backward_passes_per_trajectory", "step_time_ratio"
_APART = 0.045
"""Arms of (nearly) equal cost stand side by side, this share of the axis apart."""


def pareto_passes(data: StudyData) -> Plot:
    """Difference in score against backward passes a trajectory, one point an arm."""
    return _pareto(
        data,
        PASSES,
        "pareto",
        "What each arm gives for its backward passes",
        "backward passes a trajectory",
        "counted backward passes a trajectory",
    )


def pareto_time(data: StudyData) -> Plot:
    """Difference in score against the time of a training step, one point an arm."""
    return _pareto(
        data,
        TIME,
        "time-pareto",
        "What each arm gives for its time",
        f"step time over {data.reference}'s",
        "the time of a training step over the reference's, mean over seeds, on the machine that ran this study",
    )


def _pareto(data: StudyData, cost: str, name: str, title: str, label: str, words: str) -> Plot:
    rows = _points(data, cost)
    markers = algorithm_markers(list(data.study.algorithms))
    panels = {}
    for cell, metric, place, figure, axis in cell_panels(data):
        margin_band(data, axis, metric)
        mine = of_cell(rows, cell, metric)
        for row, x in zip(mine, side_by_side([row[cost] for row in mine])):
            colour = data.colours[row["arm"]]
            if row["ci_low"] is not None:
                axis.plot([x, x], [row["ci_low"], row["ci_high"]], color=colour, linewidth=1.4)
            axis.plot([x], [row["difference"]], color=colour, marker=markers[cell[1]], markersize=5)
        front = sorted((row[cost], row["difference"]) for row in mine if row["on_front"])
        if front:
            axis.step(*zip(*front), where="post", color=INK, linewidth=0.8, linestyle=":")
        axis.margins(x=0.12, y=0.12)
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.set_xlabel(label)
        axis.set_ylabel(f"difference from {data.reference}")
        say_if_empty(axis, mine)
        add_legend(figure, data.colours)
        panels[place] = figure
    return Plot(
        name,
        title,
        f"Score at the last checkpoint minus {data.reference}'s, with its interval, by {words}; arms of equal cost "
        "stand side by side. Shaded: the margin of equivalence; an arm whose whole interval lies in it is equivalent. "
        "Left is cheaper, up is better. The dotted line joins the arms that no other arm beats in both by their means, "
        "which says nothing about certainty: read the intervals.",
        panels,
        rows,
        metric_columns(data),
    )


def _points(data: StudyData, cost: str) -> list[Row]:
    """One row a cell, metric and arm, cheapest first; the reference stands at a difference of 0."""
    found: list[Row] = []
    differences = {(r["backbone"], r["algorithm"], r["metric"], r["arm"]): r for r in data.last_differences()}
    for cell in data.cells:
        costs = {
            arm: _mean(row[cost] for row in of_cell(data.passes, cell) if row["arm"] == arm) for arm in data.colours
        }
        for metric in data.study.scorers:
            points: list[Row] = []
            for arm, spent in costs.items():
                row = differences.get((*cell, metric, arm), {})
                difference = 0.0 if arm == data.reference else row.get("difference")
                if difference is not None and spent is not None:
                    points.append(
                        {"backbone": cell[0], "algorithm": cell[1], "metric": metric, "arm": arm, cost: spent,
                         "difference": difference, "ci_low": row.get("ci_low"), "ci_high": row.get("ci_high"),
                         "verdict": row.get("verdict", "reference")}
                    )  # fmt: skip
            points = [point | {"on_front": not any(_beats(other, point, cost) for other in points)} for point in points]
            found += sorted(points, key=lambda point: point[cost])
    return found


def _beats(other: Row, point: Row, cost: str) -> bool:
    mine, its = ((-row[cost], row["difference"]) for row in (point, other))
    return all(theirs >= ours for theirs, ours in zip(its, mine)) and its != mine


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean over seeds; None where there is none, or one is unknown."""
    found = list(values)
    known = [value for value in found if value is not None]
    return fmean(known) if known and len(known) == len(found) else None


def side_by_side(places: list[float]) -> list[float]:
    """Places in increasing order, those closer than a marker's width set apart around their mean."""
    if not places:
        return []
    width = _APART * ((places[-1] - places[0]) or places[0] or 1.0)
    groups: list[list[float]] = []
    for place in places:
        if groups and place - groups[-1][-1] < width:
            groups[-1].append(place)
        else:
            groups.append([place])
    return [fmean(group) + (slot - (len(group) - 1) / 2) * width for group in groups for slot in range(len(group))]
