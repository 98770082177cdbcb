"""Curves: training reward by step, evaluation score by what it cost, differences by checkpoint."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FixedLocator, MaxNLocator

from jagg.report.data import Row, StudyData, key_of
from jagg.report.figures.plot import RUN, Plot, cell_panels, margin_band, metric_columns, of_cell, say_if_empty
from jagg.report.style import add_legend, algorithm_markers, panel

_MOST_TICKS = 8
_MOST_BANDS = 3
"""Bands of more arms would cover each other: then bars stand side by side at the checkpoints."""


def reward_curves(data: StudyData) -> Plot:
    """Training reward by training step: every seed thin, their mean thick."""
    rows = [{name: row[name] for name in (*RUN, "step", "reward_mean")} for row in data.history]
    panels = {}
    for backbone, algorithm in data.cells:
        figure, axis = panel(f"{backbone}, {algorithm}", 2.0)
        _curves(data, axis, of_cell(rows, (backbone, algorithm)), "step", "reward_mean")
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axis.set_xlabel("training step")
        axis.set_ylabel("training reward")
        say_if_empty(axis, of_cell(rows, (backbone, algorithm)))
        add_legend(figure, data.colours)
        panels[f"{backbone}-{algorithm}"] = figure
    return Plot(
        "reward-curves",
        "Training reward",
        "Mean reward of the images of each training step, on training prompts. Thin: one seed; thick: mean over seeds. "
        "Arms of one seed see the same prompts and the same noise.",
        panels,
        rows,
        columns=2,
    )


def score_by_passes(data: StudyData) -> Plot:
    """Evaluation score of each checkpoint by the backward passes spent until then."""
    spent = data.passes_until()
    rows = [row | {"backward_passes": spent[key_of(row)][row["step"]]} for row in data.scores]
    panels = {}
    for cell, metric, name, figure, axis in cell_panels(data):
        _curves(data, axis, of_cell(rows, cell, metric), "backward_passes", "score")
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.set_xlabel("backward passes until the checkpoint")
        axis.set_ylabel("mean cosine")
        say_if_empty(axis, of_cell(rows, cell, metric))
        add_legend(figure, data.colours)
        panels[name] = figure
    return Plot(
        "score-by-passes",
        "Score against backward passes",
        "Mean raw cosine over the evaluation prompts, on fixed evaluation noise, at each checkpoint, by the backward "
        "passes that training had spent. Thin: one seed; thick: mean over seeds. The first point is the untouched "
        "model, the same for all arms; a curve further to the left paid less for its score.",
        panels,
        rows,
        metric_columns(data),
    )


def _curves(data: StudyData, axis: Axes, rows: Sequence[Row], x: str, y: str) -> None:
    markers = algorithm_markers(list(data.study.algorithms))
    for arm, colour in data.colours.items():
        by_seed: dict[int, dict[int, tuple[float, float]]] = defaultdict(dict)
        mine = [row for row in rows if row["arm"] == arm]
        for row in mine:
            by_seed[row["seed"]][row["step"]] = (row[x], row[y])
        for curve in by_seed.values():
            axis.plot(*zip(*(curve[step] for step in sorted(curve))), color=colour, linewidth=0.6, alpha=0.55)
        common = sorted(set.intersection(*(set(curve) for curve in by_seed.values()))) if by_seed else []
        if common:
            means = [[fmean(curve[step][i] for curve in by_seed.values()) for step in common] for i in (0, 1)]
            marker, every = markers[mine[0]["algorithm"]], max(1, len(common) // 8)
            axis.plot(*means, color=colour, linewidth=1.8, marker=marker, markersize=4, markevery=every)


def difference_curves(data: StudyData) -> Plot:
    """Difference from the reference by checkpoint, with bands that hold the whole curve at once."""
    markers = algorithm_markers(list(data.study.algorithms))
    bars = len(data.compared_arms) > _MOST_BANDS
    panels = {}
    for cell, metric, name, figure, axis in cell_panels(data):
        margin_band(data, axis, metric)
        for slot, arm in enumerate(data.compared_arms):
            mine = [row for row in of_cell(data.curves, cell, metric) if row["arm"] == arm]
            apart = _apart(data, slot) if bars else None
            _difference_curve(axis, mine, data.colours[arm], markers[cell[1]], apart)
        checkpoints = data.study.training.checkpoints
        axis.xaxis.set_major_locator(
            FixedLocator(checkpoints) if len(checkpoints) <= _MOST_TICKS else MaxNLocator(integer=True)
        )
        axis.set_xlabel("training step of the checkpoint")
        axis.set_ylabel(f"difference from {data.reference}")
        say_if_empty(axis, of_cell(data.curves, cell, metric))
        add_legend(figure, {arm: data.colours[arm] for arm in data.compared_arms})
        panels[name] = figure
    level = f"{100 * data.study.comparison.ci_level:g} %"
    return Plot(
        "curves",
        "Difference at every checkpoint",
        f"Arm minus {data.reference}, paired by seed. The {'bars hold' if bars else 'band holds'} the true "
        f"differences of all checkpoints of a curve at once in {level} of studies: wider than one interval. Grey: "
        "the margin of equivalence." + (" Arms are set side by side." if bars else ""),
        panels,
        data.curves,
        metric_columns(data),
    )


def _difference_curve(axis: Axes, rows: list[Row], colour: str, marker: str, apart: float | None) -> None:
    """One arm's curve with its band; where `apart` is given, with bars that stand so far from their checkpoints."""
    curve = sorted((row["step"], row["difference"]) for row in rows if row["difference"] is not None)
    band = sorted((row["step"], row["band_low"], row["band_high"]) for row in rows if row["band_low"] is not None)
    if curve:
        steps, means = zip(*((step + (apart or 0.0), mean) for step, mean in curve))
        axis.plot(steps, means, color=colour, marker=marker, markersize=4, linewidth=1.4)
    if band and apart is not None:
        steps, low, high = zip(*((step + apart, *ends) for step, *ends in band))
        axis.vlines(steps, low, high, color=colour, linewidth=1.2)
    elif band:
        steps, low, high = zip(*_from_zero(curve, band))
        axis.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)


def _apart(data: StudyData, slot: int) -> float:
    """How far an arm's points stand from their checkpoint, in training steps: all arms within a tenth of the axis."""
    return 0.1 * data.last_step * (slot / (len(data.compared_arms) - 1) - 0.5)


def _from_zero(curve: list[tuple[int, float]], band: list[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    """The band, begun at the untouched model, where all arms are equal and there is nothing to err about."""
    return [*([(0, 0.0, 0.0)] if curve[0] == (0, 0.0) and band[0][0] > 0 else []), *band]
