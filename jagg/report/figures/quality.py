"""How close window gradients come to the exact ones: by window, by estimator, held out, and against their bound."""

from collections.abc import Iterator
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from jagg.report.data import Row, StudyData
from jagg.report.figures.plot import Plot, of_cell
from jagg.report.style import COLOURS, INK, MARKERS, add_legend, panel
from jagg.stats.join import Cell

JAGG = "jagg"
_SPREAD = 0.12
"""Lines of one panel stand this much apart, in windows, so that their bars do not cover each other."""


def batches(rows: list[Row]) -> list[tuple[str, int]]:
    """The probed batches of rollouts, calibration first: split and checkpoint."""
    return sorted({(row["split"], row["step"]) for row in rows})


def cosine_by_window(data: StudyData) -> Plot:
    """JAGG's cosine with the exact gradient by window: mean and spread over rollouts, one line a batch."""
    rows = _of(data.gradient_quality, JAGG)
    panels = {}
    for name, figure, axis, mine in _cell_panels(data, rows):
        _threshold(data, axis)
        for batch, colour, marker, apart in _styles(rows):
            found = [row for row in _of_batch(mine, batch) if row["cosine_mean"] is not None]
            _errorbars(axis, found, "cosine_mean", [row["cosine_sd"] or 0.0 for row in found], colour, marker, apart)
        _finish(figure, axis, mine, "cosine with exact", rows)
        panels[name] = figure
    return Plot(
        "gradient-quality",
        "Cosine of JAGG's gradient with the exact one, by window",
        "Points: mean over rollouts; bars: one standard deviation over rollouts. Window 0 is the noisiest. Dotted "
        f"line: the threshold of {data.threshold:g}, above which a window is taken to be well approximated.",
        panels,
        rows,
        columns=2,
    )


def share_by_window(data: StudyData) -> Plot:
    """Share of rollouts with a cosine of at least the threshold, with Wilson's interval."""
    rows = _of(data.gradient_quality, JAGG)
    panels = {}
    for name, figure, axis, mine in _cell_panels(data, rows):
        for batch, colour, marker, apart in _styles(rows):
            found = [row for row in _of_batch(mine, batch) if row["fraction_above_threshold"] is not None]
            shares = [row["fraction_above_threshold"] for row in found]
            lengths = [
                [max(share - row["fraction_ci_low"], 0.0) for share, row in zip(shares, found)],
                [max(row["fraction_ci_high"] - share, 0.0) for share, row in zip(shares, found)],
            ]
            _errorbars(axis, found, "fraction_above_threshold", lengths, colour, marker, apart)
        axis.set_ylim(-0.04, 1.04)
        _finish(figure, axis, mine, "share of rollouts", rows)
        panels[name] = figure
    level = f"{100 * data.study.comparison.ci_level:g} %"
    return Plot(
        "gradient-share",
        f"Share of rollouts whose cosine is at least {data.threshold:g}, by window",
        f"Bars: Wilson's {level} interval, as if rollouts were independent. It is wide where few rollouts were probed: "
        "a share of 1 of few rollouts does not show that all rollouts would pass.",
        panels,
        rows,
        columns=2,
    )


def estimators_by_passes(data: StudyData) -> Plot:
    """Every estimator's cosine on held-out rollouts, sorted by the passes that a window costs it."""
    rows = _held_out_last(data.gradient_quality)
    order = {row["estimator"]: row["nodes_mean"] or 0.0 for row in rows}
    names = sorted(order, key=lambda name: (order[name], name))
    panels = {}
    for cell in data.cells:
        mine = of_cell(rows, cell)
        if not mine:
            continue
        figure, axis = panel(f"{cell[0]}, {cell[1]}", 0.8 + 0.24 * len(names), left=1.35)
        _threshold(data, axis, vertical=True)
        for place, name in enumerate(names):
            cosines = [row["cosine_mean"] for row in _of(mine, name) if row["cosine_mean"] is not None]
            if cosines:
                colour = COLOURS[0] if name == JAGG else COLOURS[2]
                axis.plot([min(cosines), max(cosines)], [place, place], color=colour, linewidth=2)
                axis.plot([fmean(cosines)], [place], color=colour, marker="o", markersize=5)
        axis.set_yticks(range(len(names)), [f"{name} ({order[name]:g})" for name in names], fontsize=8)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.grid(visible=False, axis="y")
        axis.set_xlabel("cosine with exact")
        panels["-".join(cell)] = figure
    return Plot(
        "gradient-estimators",
        "Estimators by the passes that a window costs",
        "In brackets: backward passes a window (the exact gradient's are as many as the window has steps); "
        "estimators with equal numbers cost the same. Points: mean over windows; lines: lowest to highest window; "
        "held-out rollouts of the last probed checkpoint. An unbiased estimator (monte_carlo, debiased) may have a low "
        "cosine in one draw and still be right on average: its relative error, a column of these rows, is all standard "
        "deviation, for its bias is 0; that of a fixed estimator is all bias.",
        panels,
        rows,
        columns=2,
    )


def routing(data: StudyData) -> Plot:
    """What each routing rule saw when it was calibrated, and what held-out rollouts show of the same choice."""
    rows = data.routing
    kinds = list(dict.fromkeys((row["rule"], row["holdout"]) for row in rows))
    panels = {}
    for cell in data.cells:
        figure, axis = panel(f"{cell[0]}, {cell[1]}", 0.8 + 0.34 * len(kinds), left=1.35)
        _threshold(data, axis, vertical=True)
        for row in of_cell(rows, cell):
            y = kinds.index((row["rule"], row["holdout"]))
            seen, later = row["calibration_cosine"], row["holdout_cosine"]
            if seen is not None and later is not None:
                axis.plot([seen, later], [y, y], color=COLOURS[0], linewidth=1.2)
            if seen is not None:
                axis.plot([seen], [y], color=COLOURS[0], marker="o", markersize=6, markerfacecolor="none")
            if later is not None:
                axis.plot([later], [y], color=COLOURS[0], marker="o", markersize=4)
        labels = ["\n".join((rule, holdout)).replace("_", " ") for rule, holdout in kinds]
        axis.set_yticks(range(len(kinds)), labels, fontsize=8)
        axis.set_ylim(len(kinds) - 0.5, -0.5)
        axis.grid(visible=False, axis="y")
        axis.set_xlabel("mean cosine")
        further = [
            Line2D([], [], color=COLOURS[0], linestyle="none", marker="o", markerfacecolor="none", label="calibration"),
            Line2D([], [], color=COLOURS[0], linestyle="none", marker="o", markersize=4, label="held out"),
        ]
        add_legend(figure, {}, further)
        panels["-".join(cell)] = figure
    return Plot(
        "gradient-routing",
        "Routing, calibrated on some rollouts and judged on others",
        "Each rule chose on calibration rollouts which windows to approximate. Ring: mean cosine of those windows "
        "there; dot: the same choice on rollouts (or on later checkpoints) that the rule never saw. A dot left of its "
        "ring means that the calibration was optimistic.",
        panels,
        rows,
        columns=2,
    )


def error_bound(data: StudyData) -> Plot:
    """Measured error of JAGG's gradient, its bound, and the two causes of the error, by window."""
    rows = [row for row in _held_out_last(data.gradient_quality) if row["estimator"] == JAGG]
    lines = {
        "bound_mean": ("bound", INK, "--"),
        "relative_error_mean": ("measured error", COLOURS[1], "-"),
        "path_error_mean": ("path leaves the chord", COLOURS[0], ":"),
        "curve_error_mean": ("network curves", COLOURS[2], ":"),
    }
    panels = {}
    for name, figure, axis, mine in _cell_panels(data, rows):
        for column, (_, colour, style) in lines.items():
            found = sorted((row["window"], row[column]) for row in mine if row[column] is not None)
            if found:
                axis.plot(*zip(*found), color=colour, linestyle=style, marker="o", markersize=3.5, linewidth=1.5)
        axis.set_ylim(bottom=0)
        _axes(axis, mine, "error / exact norm")
        handles = [Line2D([], [], color=colour, linestyle=style, label=word) for word, colour, style in lines.values()]
        add_legend(figure, {}, handles)
        panels[name] = figure
    return Plot(
        "gradient-bound",
        "Error of JAGG's gradient, its bound and its causes",
        "Lengths in units of the exact gradient's, mean over held-out rollouts of the last probed checkpoint. The "
        "bound comes from estimates of how fast the network's Jacobian changes (first and second differences). The "
        "causes are two vectors that add up to the error; their lengths need not.",
        panels,
        rows,
        columns=2,
    )


def _of(rows: list[Row], estimator: str) -> list[Row]:
    return [row for row in rows if row["estimator"] == estimator]


def _of_batch(rows: list[Row], batch: tuple[str, int]) -> list[Row]:
    found = [row for row in rows if (row["split"], row["step"]) == batch]
    return sorted(found, key=lambda row: row["window"])


def _held_out_last(rows: list[Row]) -> list[Row]:
    held_out = [row for row in rows if row["split"] == "holdout"]
    last = max((row["step"] for row in held_out), default=None)
    return [row for row in held_out if row["step"] == last]


def _cell_panels(data: StudyData, rows: list[Row]) -> Iterator[tuple[str, Figure, Axes, list[Row]]]:
    """A panel for each cell that has rows: its name, figure, axes and rows."""
    for cell in data.cells:
        mine = of_cell(rows, cell)
        if mine:
            figure, axis = panel(f"{cell[0]}, {cell[1]}", 2.2)
            yield _name(cell), figure, axis, mine


def _name(cell: Cell) -> str:
    return f"{cell[0]}-{cell[1]}"


def _styles(rows: list[Row]) -> Iterator[tuple[tuple[str, int], str, str, float]]:
    """Each batch with its colour, marker and place beside the window."""
    found = batches(rows)
    for place, batch in enumerate(found):
        apart = (place - (len(found) - 1) / 2) * _SPREAD
        yield batch, COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)], apart


def _errorbars(
    axis: Axes,
    rows: list[Row],
    column: str,
    lengths: list[float] | list[list[float]],
    colour: str,
    marker: str,
    apart: float,
) -> None:
    if rows:
        axis.errorbar(
            [row["window"] + apart for row in rows],
            [row[column] for row in rows],
            yerr=lengths,
            color=colour,
            marker=marker,
            markersize=4,
            linewidth=1.3,
            elinewidth=0.8,
        )


def _finish(figure: Figure, axis: Axes, mine: list[Row], label: str, rows: list[Row]) -> None:
    _axes(axis, mine, label)
    words = {"calibration": "calibration", "holdout": "held out"}
    add_legend(
        figure, {f"{words.get(split, split)}, step {step}": colour for (split, step), colour, *_ in _styles(rows)}
    )


def _axes(axis: Axes, rows: list[Row], label: str) -> None:
    windows = sorted({row["window"] for row in rows})
    axis.set_xlabel("window, from noise to image")
    axis.set_ylabel(label)
    axis.set_xlim(windows[0] - 0.5, windows[-1] + 0.5)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _threshold(data: StudyData, axis: Axes, vertical: bool = False) -> None:
    line = axis.axvline if vertical else axis.axhline
    line(data.threshold, color=INK, linewidth=0.8, linestyle=":")
