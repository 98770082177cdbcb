"""Pairs one by one: each seed's scores as a slope, each prompt's difference as a dot."""

from statistics import fmean

from matplotlib.ticker import MaxNLocator

from jagg.report.data import Row, StudyData
from jagg.report.data import prompt_differences as differences_by_prompt
from jagg.report.figures.plot import Plot, cell_panels, margin_band, metric_columns, of_cell, say_if_empty
from jagg.report.style import add_legend, algorithm_markers

_MOST_RANGES = 60


def slopes(data: StudyData) -> Plot:
    """Each seed's score under the reference and under the arm, joined by a line."""
    rows = _pairs(data)
    markers = algorithm_markers(list(data.study.algorithms))
    panels = {}
    for cell, metric, name, figure, axis in cell_panels(data):
        for slot, arm in enumerate(data.compared_arms):
            left, right = 2 * slot, 2 * slot + 1
            mine = [row for row in of_cell(rows, cell, metric) if row["arm"] == arm]
            for row in mine:
                ends = [row["reference_score"], row["arm_score"]]
                axis.plot([left, right], ends, color=data.colours[arm], linewidth=0.8, alpha=0.7)
                axis.plot([left], ends[:1], color=data.colours[data.reference], marker=markers[cell[1]], markersize=3)
                axis.plot([right], ends[1:], color=data.colours[arm], marker=markers[cell[1]], markersize=3)
            if mine:
                means = [fmean(row[side] for row in mine) for side in ("reference_score", "arm_score")]
                axis.plot([left, right], means, color=data.colours[arm], linewidth=2.2)
        axis.set_xticks([])
        axis.set_xlabel(f"left {data.reference}, right the arm")
        axis.set_xlim(-0.5, 2 * len(data.compared_arms) - 0.5)
        axis.set_ylabel("mean cosine")
        say_if_empty(axis, of_cell(rows, cell, metric))
        add_legend(figure, data.colours)
        panels[name] = figure
    return Plot(
        "slopes",
        "Each seed's pair at the last checkpoint",
        f"Left end: the seed's score under {data.reference}; right end: under the arm. Thin: one seed; thick: their "
        "mean. Lines that rise together show an effect that pairing can see even where the scores themselves overlap.",
        panels,
        rows,
        metric_columns(data),
    )


def _pairs(data: StudyData) -> list[Row]:
    scores = {
        (row["backbone"], row["algorithm"], row["metric"], row["arm"], row["seed"]): row["score"]
        for row in data.scores
        if row["step"] == data.last_step
    }
    return [
        {"backbone": cell[0], "algorithm": cell[1], "metric": metric, "arm": arm, "seed": seed,
         "reference_score": scores[*cell, metric, data.reference, seed], "arm_score": scores[*cell, metric, arm, seed]}
        for cell in data.cells
        for metric in data.study.scorers
        for arm in data.compared_arms
        for seed in data.study.seeds
        if {(*cell, metric, name, seed) for name in (data.reference, arm)} <= scores.keys()
    ]  # fmt: skip


def prompt_differences(data: StudyData) -> Plot:
    """Difference of each evaluation prompt, sorted, with its range over seeds."""
    rows = differences_by_prompt(data)
    markers = algorithm_markers(list(data.study.algorithms))
    panels = {}
    for cell, metric, name, figure, axis in cell_panels(data):
        margin_band(data, axis, metric)
        for slot, arm in enumerate(data.compared_arms):
            mine = sorted(
                (row for row in of_cell(rows, cell, metric) if row["arm"] == arm),
                key=lambda row: (row["difference"], row["prompt_id"]),
            )
            apart = (slot - (len(data.compared_arms) - 1) / 2) * 0.7 / len(data.compared_arms)
            places = [place + apart for place in range(1, len(mine) + 1)]
            if len(mine) <= _MOST_RANGES:
                low, high = ([row[end] for row in mine] for end in ("lowest_seed", "highest_seed"))
                axis.vlines(places, low, high, color=data.colours[arm], linewidth=0.7, alpha=0.5)
            axis.plot(
                places,
                [row["difference"] for row in mine],
                color=data.colours[arm],
                marker=markers[cell[1]],
                markersize=3.5 if len(mine) <= _MOST_RANGES else 1.5,
                linestyle="none",
            )
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_xlabel("prompt, sorted by its difference")
        axis.set_ylabel(f"difference from {data.reference}")
        say_if_empty(axis, of_cell(rows, cell, metric))
        add_legend(figure, {arm: data.colours[arm] for arm in data.compared_arms})
        panels[name] = figure
    return Plot(
        "prompt-differences",
        "Differences prompt by prompt",
        f"Arm minus {data.reference} at the last checkpoint, mean over seeds; line: lowest to highest seed. Each "
        "arm is sorted by itself. Prompts are repeated measures within a seed: their spread shows where an effect is, "
        "not how certain it is.",
        panels,
        rows,
        metric_columns(data),
    )
