"""Where the cosine falls: longer windows, fewer denoising steps, other backbones, other estimators."""

from collections.abc import Iterable
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from jagg.report.data import Row, StudyData
from jagg.report.figures.plot import Plot, of_cell
from jagg.report.figures.quality import JAGG
from jagg.report.style import COLOURS, INK, MARKERS, add_legend, panel


def stress_by_window_length(data: StudyData) -> Plot:
    """JAGG's cosine against the window length W, a line for each number of denoising steps, a panel a cell."""
    precision = precisions(data)[0]
    rows = [row for row in data.stress if (row["estimator"], row["precision"]) == (JAGG, precision)]
    steps = sorted({row["sampling_steps"] for row in rows})
    panels = {}
    for cell in data.cells:
        figure, axis = panel(f"{cell[0]}, {cell[1]}", 2.3)
        for place, count in enumerate(steps):
            mine = [row for row in of_cell(rows, cell) if row["sampling_steps"] == count]
            style = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)], "markersize": 4}
            _line(axis, mine, "cosine_mean", True, 0.05 * (place - (len(steps) - 1) / 2), **style)
            _line(axis, mine, "batch_cosine_mean", False, 0.0, color=style["color"], linestyle="--", linewidth=0.9)
        _axes(data, axis, rows)
        named = {f"{count} steps": COLOURS[place % len(COLOURS)] for place, count in enumerate(steps)}
        kinds = [
            Line2D([], [], color=INK, label="single rollouts"),
            Line2D([], [], color=INK, linestyle="--", linewidth=0.9, label="batch"),
        ]
        add_legend(figure, named, kinds)
        panels["-".join(cell)] = figure
    return Plot(
        "gradient-stress",
        "Where the cosine falls: window length and denoising steps",
        "Cosine of JAGG's window gradient with the exact one against the window length W, a colour for each number "
        "of denoising steps T. Points: mean over windows and single rollouts; bars reach down to the worst window. "
        f"Dashed: the gradient of all rollouts together, which is what training uses. Transformer in {precision}. A "
        "window of two steps is its own two ends, so there nothing is approximated.",
        panels,
        rows,
        columns=2,
    )


def stress_by_estimator(data: StudyData) -> Plot:
    """Every stressed estimator's cosine against W, at the algorithm's own number of denoising steps."""
    rows = [row for row in data.stress if row["precision"] == precisions(data)[0] and _own_steps(data, row)]
    names = list(dict.fromkeys(row["estimator"] for row in rows))
    panels = {}
    for cell in data.cells:
        figure, axis = panel(f"{cell[0]}, {cell[1]}", 2.3)
        for place, name in enumerate(names):
            mine = [row for row in of_cell(rows, cell) if row["estimator"] == name]
            apart = 0.05 * (place - (len(names) - 1) / 2)
            style = {"color": COLOURS[place % len(COLOURS)], "marker": MARKERS[place % len(MARKERS)], "markersize": 4}
            _line(axis, mine, "cosine_mean", True, apart, **style)
        _axes(data, axis, rows)
        add_legend(figure, {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)})
        panels["-".join(cell)] = figure
    return Plot(
        "gradient-stress-estimators",
        "Other estimators under the same stress",
        "Cosine with the exact gradient against the window length W, at the study's own number of denoising steps. "
        "Points: mean over windows and single rollouts; bars reach down to the worst window.",
        panels,
        rows,
        columns=2,
    )


def precisions(data: StudyData) -> list[str]:
    """Number formats of the stress, float32 first where it is among them."""
    found = dict.fromkeys(row["precision"] for row in data.stress)
    return sorted(found, key=lambda name: name != "float32")


def _own_steps(data: StudyData, row: Row) -> bool:
    steps = {r["sampling_steps"] for r in data.stress if r["algorithm"] == row["algorithm"]}
    own = data.study.algorithms[row["algorithm"]].sampling_steps
    return bool(row["sampling_steps"] == (own if own in steps else max(steps)))


def _line(axis: Axes, rows: Iterable[Row], column: str, worst: bool, apart: float, **style: Any) -> None:
    """Means over windows by window length; with `worst`, bars down to the lowest window."""
    by_length: dict[int, list[float]] = {}
    for row in rows:
        if row[column] is not None:
            by_length.setdefault(row["window_length"], []).append(row[column])
    lengths = sorted(by_length)
    if lengths:
        means = [fmean(by_length[length]) for length in lengths]
        down = [mean - min(by_length[length]) for mean, length in zip(means, lengths)]
        places = [length * (1 + apart) for length in lengths]
        bars = {"yerr": [down, [0.0] * len(down)], "elinewidth": 0.8} if worst else {}
        axis.errorbar(places, means, **{"linewidth": 1.4, **bars, **style})


def _axes(data: StudyData, axis: Axes, rows: list[Row]) -> None:
    lengths = sorted({row["window_length"] for row in rows})
    axis.axhline(data.threshold, color=INK, linewidth=0.8, linestyle=":")
    axis.set_xscale("log", base=2)
    axis.minorticks_off()
    axis.set_xticks(lengths, [str(length) for length in lengths])
    axis.set_xlabel("window length W")
    axis.set_ylabel("cosine with exact")
