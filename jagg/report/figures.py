"""The report's figures; each comes with the rows that it shows."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from jagg.report.data import Row, StudyData
from jagg.report.style import INK, add_legend, algorithm_markers, arm_colours, panels
from jagg.stats.compare import POOLED


@dataclass(frozen=True)
class Plot:
    """A figure, what it says to those who cannot see it, and its rows."""

    name: str
    figure: Figure
    title: str
    caption: str
    rows: list[Row]


def all_plots(data: StudyData) -> list[Plot]:
    """Every figure, in the page's order; none that compares where one arm stands alone."""
    plots = [reward_curves(data), evaluation_curves(data)]
    return [*plots, forest(data), cost_bars(data)] if data.differences else plots


def reward_curves(data: StudyData) -> Plot:
    """Training reward by training step: every seed thin, their mean thick."""
    study = data.study
    rows = [{name: row[name] for name in (*_RUN, "step", "reward_mean")} for row in data.history]
    backbones, algorithms = list(study.backbones), list(study.algorithms)
    height = 0.6 + 2.1 * len(backbones)
    figure, axes = panels(len(backbones), len(algorithms), 4.2 * max(2, len(algorithms)), height, sharex=True)
    for axis_row, backbone in zip(axes, backbones):
        for axis, algorithm in zip(axis_row, algorithms):
            cell = [row for row in rows if (row["backbone"], row["algorithm"]) == (backbone, algorithm)]
            _curves(data, axis, cell, algorithm, "reward_mean")
            axis.set_title(f"{backbone}, {algorithm}", loc="left")
        axis_row[0].set_ylabel("training reward")
    _label_bottom(axes, "training step")
    add_legend(figure, arm_colours(list(study.arms), data.reference))
    return Plot(
        "reward-curves",
        figure,
        "Training reward",
        "Mean reward of the images of each training step, on training prompts. Thin: one seed; thick: mean over seeds. "
        "Arms of one seed see the same prompts and the same noise.",
        rows,
    )


def evaluation_curves(data: StudyData) -> Plot:
    """Evaluation score by checkpoint, one panel a cell and metric."""
    study = data.study
    metrics = list(study.scorers)
    figure, axes = panels(
        len(data.cells), len(metrics), 2.9 * max(2, len(metrics)), 0.6 + 1.7 * len(data.cells), sharex=True
    )
    for axis_row, (backbone, algorithm) in zip(axes, data.cells):
        for axis, metric in zip(axis_row, metrics):
            wanted = (backbone, algorithm, metric)
            cell = [row for row in data.scores if (row["backbone"], row["algorithm"], row["metric"]) == wanted]
            _curves(data, axis, cell, algorithm, "score")
        axis_row[0].set_ylabel(f"{backbone}\n{algorithm}")
    for axis, metric in zip(axes[0], metrics):
        axis.set_title(data.metric_label(metric), loc="left")
    _label_bottom(axes, "training step")
    add_legend(figure, arm_colours(list(study.arms), data.reference))
    return Plot(
        "evaluation-curves",
        figure,
        "Evaluation score by checkpoint",
        "Mean raw cosine over the evaluation prompts, on fixed evaluation noise. Thin: one seed; thick: mean over "
        "seeds. Step 0 is the untouched model, the same for all arms.",
        data.scores,
    )


_RUN = ("backbone", "algorithm", "arm", "seed")


def _curves(data: StudyData, axis: Axes, rows: Sequence[Row], algorithm: str, value: str) -> None:
    marker = algorithm_markers(list(data.study.algorithms))[algorithm]
    for arm, colour in arm_colours(list(data.study.arms), data.reference).items():
        by_seed: dict[int, dict[int, float]] = defaultdict(dict)
        for row in rows:
            if row["arm"] == arm:
                by_seed[row["seed"]][row["step"]] = row[value]
        for curve in by_seed.values():
            axis.plot(sorted(curve), [curve[step] for step in sorted(curve)], color=colour, linewidth=0.6, alpha=0.5)
        common = sorted(set.intersection(*(set(curve) for curve in by_seed.values()))) if by_seed else []
        means = [fmean(curve[step] for curve in by_seed.values()) for step in common]
        every = max(1, len(common) // 8)
        axis.plot(common, means, color=colour, linewidth=2, marker=marker, markersize=4, markevery=every)


def _label_bottom(axes: list[list[Axes]], label: str) -> None:
    for axis in axes[-1]:
        axis.set_xlabel(label)


def forest(data: StudyData) -> Plot:
    """Paired differences at the last checkpoint, one panel a metric, with margins and numbers of seeds."""
    study = data.study
    rows = data.last_differences()
    metrics = list(study.scorers)
    places = list(dict.fromkeys((row["backbone"], row["algorithm"]) for row in rows))
    colours = arm_colours(list(study.arms), data.reference)
    arms = [arm for arm in colours if arm != data.reference]
    height = 1.2 + 0.27 * max(1, len(places) * len(arms))
    figure, axes = panels(1, len(metrics), 3.1 * max(2, len(metrics)), height, sharey=True)
    for axis, metric in zip(axes[0], metrics):
        margin = study.comparison.margins.get(metric)
        if margin is not None:
            axis.axvspan(-margin, margin, color=INK, alpha=0.07, linewidth=0)
        axis.axvline(0, color=INK, linewidth=0.8)
        for row in (row for row in rows if row["metric"] == metric):
            slot = places.index((row["backbone"], row["algorithm"]))
            y = slot + (arms.index(row["arm"]) - (len(arms) - 1) / 2) * 0.8 / max(1, len(arms))
            _forest_row(data, axis, row, y, colours[row["arm"]])
        axis.set_title(data.metric_label(metric), loc="left")
        axis.set_xlabel(f"difference from {data.reference}")
        axis.margins(x=0.18)
        axis.grid(visible=False, axis="y")
    axes[0][0].set_yticks(range(len(places)), [_place_label(place) for place in places])
    axes[0][0].set_ylim(len(places) - 0.5, -0.5)
    shapes = [
        Line2D([], [], color=INK, linestyle="none", marker="o", label="optimised metric"),
        Line2D([], [], color=INK, linestyle="none", marker="o", markerfacecolor="none", label="held-out metric"),
    ]
    add_legend(figure, {arm: colours[arm] for arm in arms}, shapes)
    level = f"{100 * study.comparison.ci_level:g} %"
    return Plot(
        "forest",
        figure,
        "Paired differences at the last checkpoint",
        f"Arm minus {data.reference}, paired by seed, with {level} t intervals; n is the number of seeds. Shaded: "
        "the margin of equivalence where one was set. An interval that holds 0 does not show that there is no "
        "difference.",
        rows,
    )


def _place_label(place: tuple[str, str]) -> str:
    return "mean over cells" if place == (POOLED, POOLED) else "\n".join(place)


def _forest_row(data: StudyData, axis: Axes, row: Row, y: float, colour: str) -> None:
    markers = algorithm_markers(list(data.study.algorithms))
    marker = markers.get(row["algorithm"], "X")
    if row["difference"] is None:
        axis.annotate("no shared seed", (0, y), fontsize=6.5, va="center", xytext=(4, 0), textcoords="offset points")
        return
    estimable = row["ci_low"] is not None
    if estimable:
        axis.plot([row["ci_low"], row["ci_high"]], [y, y], color=colour, linewidth=1.6)
    face = "none" if data.is_held_out(row["metric"]) else colour
    axis.plot(
        [row["difference"]], [y], marker=marker, color=colour, markerfacecolor=face, markersize=5.5, linestyle="none"
    )
    label = f"n={row['num_seeds']}" + ("" if estimable else ", no interval")
    end = row["ci_high"] if estimable else row["difference"]
    axis.annotate(label, (end, y), fontsize=6.5, va="center", xytext=(5, 0), textcoords="offset points")


_COSTS = {
    "ratio_to_baseline": "backward passes",
    "update_time_ratio": "update time",
    "step_time_ratio": "step time",
}


def cost_bars(data: StudyData) -> Plot:
    """Cost of each arm over the reference's, by cell: bars are means over seeds, dots are seeds."""
    study = data.study
    colours = arm_colours(list(study.arms), data.reference)
    arms = [arm for arm in colours if arm != data.reference]
    rows = [{name: row[name] for name in (*_RUN, *_COSTS)} for row in data.passes if row["arm"] in arms]
    height = 1.2 + 0.27 * max(1, len(data.cells) * len(arms))
    figure, axes = panels(1, len(_COSTS), 3.1 * len(_COSTS), height, sharey=True, sharex=True)
    thickness = 0.8 / max(1, len(arms))
    for axis, (name, title) in zip(axes[0], _COSTS.items()):
        for slot, (backbone, algorithm) in enumerate(data.cells):
            for place, arm in enumerate(arms):
                values = list(_values(rows, (backbone, algorithm, arm), name))
                if values:
                    y = slot + (place - (len(arms) - 1) / 2) * thickness
                    _cost_bar(axis, y, thickness, values, colours[arm])
        axis.axvline(1, color=INK, linewidth=0.8)
        axis.grid(visible=False, axis="y")
        axis.set_title(title, loc="left")
        axis.set_xlabel(f"ratio to {data.reference}")
    axes[0][0].set_yticks(range(len(data.cells)), [_place_label(cell) for cell in data.cells])
    axes[0][0].set_ylim(len(data.cells) - 0.5, -0.5)
    axes[0][0].set_xlim(0, 1.25)
    add_legend(figure, {arm: colours[arm] for arm in arms})
    return Plot(
        "cost",
        figure,
        "Cost beside the reference",
        "Ratios of this run over the reference's run of the same seed: backward passes are counted and exact, times "
        "are what this machine took. Bars: mean over seeds; dots: seeds. Below 1 is cheaper.",
        rows,
    )


def _values(rows: Iterable[Row], wanted: tuple[str, str, str], name: str) -> Iterable[float]:
    for row in rows:
        if (row["backbone"], row["algorithm"], row["arm"]) == wanted and row[name] is not None:
            yield row[name]


def _cost_bar(axis: Axes, y: float, thickness: float, values: list[float], colour: str) -> None:
    mean = fmean(values)
    axis.barh(y, mean, height=0.9 * thickness, color=colour, alpha=0.75, linewidth=0)
    axis.plot(values, [y] * len(values), color=INK, marker=".", markersize=3, linestyle="none")
    axis.annotate(f"{mean:.3g}", (max(values), y), fontsize=6.5, va="center", xytext=(4, 0), textcoords="offset points")
