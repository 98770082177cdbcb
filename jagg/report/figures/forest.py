"""Forest plot of the paired differences at the last checkpoint."""

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from jagg.report.data import Row, StudyData
from jagg.report.figures.plot import LABELS, Plot, margin_band, metric_columns, place_label
from jagg.report.style import INK, add_legend, algorithm_markers, panel


def forest(data: StudyData) -> Plot:
    """Paired differences at the last checkpoint, one panel a metric, with margins and numbers of seeds."""
    rows = data.last_differences()
    places = list(dict.fromkeys((row["backbone"], row["algorithm"]) for row in rows))
    arms = data.compared_arms
    panels = {}
    for metric in data.study.scorers:
        figure, axis = panel(data.metric_label(metric), 0.8 + max(0.42, 0.24 * len(arms)) * len(places), LABELS)
        margin_band(data, axis, metric, vertical=True)
        for row in (row for row in rows if row["metric"] == metric):
            slot = places.index((row["backbone"], row["algorithm"]))
            y = slot + (arms.index(row["arm"]) - (len(arms) - 1) / 2) * 0.8 / len(arms)
            _row(data, axis, row, y)
        axis.set_xlabel(f"difference from {data.reference}")
        axis.margins(x=0.2)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.grid(visible=False, axis="y")
        axis.set_yticks(range(len(places)), [place_label(place) for place in places])
        axis.set_ylim(len(places) - 0.5, -0.5)
        add_legend(figure, {arm: data.colours[arm] for arm in arms}, [_shape(data, metric)])
        panels[metric] = figure
    level = f"{100 * data.study.comparison.ci_level:g} %"
    return Plot(
        "forest",
        "Paired differences at the last checkpoint",
        f"Arm minus {data.reference}, paired by seed, with {level} t intervals; n is the number of seeds. Shaded: "
        "the margin of equivalence where one was set. Right of the line the arm scores higher. An interval that holds "
        "0 does not show that there is no difference.",
        panels,
        rows,
        metric_columns(data),
    )


def _shape(data: StudyData, metric: str) -> Line2D:
    if data.is_held_out(metric):
        return Line2D([], [], color=INK, linestyle="none", marker="o", markerfacecolor="none", label="held out")
    return Line2D([], [], color=INK, linestyle="none", marker="o", label="optimised")


def _row(data: StudyData, axis: Axes, row: Row, y: float) -> None:
    colour = data.colours[row["arm"]]
    marker = algorithm_markers(list(data.study.algorithms)).get(row["algorithm"], "X")
    if row["difference"] is None:
        axis.annotate("no shared seed", (0, y), fontsize=7, va="center", xytext=(4, 0), textcoords="offset points")
        return
    estimable = row["ci_low"] is not None
    if estimable:
        axis.plot([row["ci_low"], row["ci_high"]], [y, y], color=colour, linewidth=1.8)
    face = "none" if data.is_held_out(row["metric"]) else colour
    axis.plot(
        [row["difference"]], [y], marker=marker, color=colour, markerfacecolor=face, markersize=5.5, linestyle="none"
    )
    label = f"n={row['num_seeds']}" + ("" if estimable else ", no interval")
    end = row["ci_high"] if estimable else row["difference"]
    axis.annotate(label, (end, y), fontsize=7, va="center", xytext=(4, 0), textcoords="offset points")
