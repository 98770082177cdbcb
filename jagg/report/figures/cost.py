"""What the arms cost beside the reference."""

from collections.abc import Sequence
from fractions import Fraction

from matplotlib.axes import Axes

from jagg.report.data import Row, StudyData
from jagg.report.figures.plot import LABELS, Plot, of_cell, place_label
from jagg.report.style import INK, add_legend, panel

QUANTITIES = {
    "backward_passes": "backward passes",
    "forward_passes": "forward passes",
    "update_s": "update time",
    "step_s": "step time",
}
_MOST = 3.0
"""The axis shows ratios up to this; longer bars are cut, their text says how long they are."""


def cost_bars(data: StudyData) -> Plot:
    """Cost of each arm over the reference's, by cell: exact ratios of counts, times with their intervals."""
    arms = data.compared_arms
    rows = [row for row in data.costs if row["quantity"] in QUANTITIES]
    thickness = 0.8 / len(arms)
    panels = {}
    for quantity, title in QUANTITIES.items():
        height = 0.8 + max(0.42, 0.2 * len(arms)) * len(data.cells)
        figure, axis = panel(f"{title}, ratio to {data.reference}", height, LABELS)
        shown = [row for row in rows if row["quantity"] == quantity and row["ratio"] is not None]
        end = min(max([1.0, *(row["ratio_high"] or row["ratio"] for row in shown)]), _MOST)
        for slot, cell in enumerate(data.cells):
            for row in of_cell(shown, cell):
                y = slot + (arms.index(row["arm"]) - (len(arms) - 1) / 2) * thickness
                _bar(axis, row, y, thickness, data.colours[row["arm"]], end)
        axis.axvline(1, color=INK, linewidth=0.8)
        axis.grid(visible=False, axis="y")
        axis.set_yticks(range(len(data.cells)), [place_label(cell) for cell in data.cells])
        axis.set_ylim(len(data.cells) - 0.5, -0.5)
        axis.set_xlim(0, 2.1 * end)  # room for the text at the end of a bar
        axis.set_xticks([tick for tick in (0, 0.5, 1, 1.5, 2, 2.5, 3) if tick <= end])
        add_legend(figure, {arm: data.colours[arm] for arm in arms})
        panels[title.replace(" ", "-")] = figure
    level = f"{100 * data.study.comparison.ci_level:g} %"
    return Plot(
        "cost",
        "Cost beside the reference",
        "Arm over reference, paired by seed; below 1 is cheaper. Passes are counted and exact, so they have no "
        "interval; a fraction is their exact ratio over all seeds. Times are what this machine took, without "
        f"evaluation, with {level} intervals over seeds (thin lines).",
        panels,
        rows,
        columns=2,
    )


def _bar(axis: Axes, row: Row, y: float, thickness: float, colour: str, end: float) -> None:
    axis.barh(y, min(row["ratio"], end), height=0.9 * thickness, color=colour, alpha=0.8, linewidth=0)
    text = f"{row['ratio']:.3g}" + _fraction(row)
    if row["ratio_low"] is not None:
        ends = [min(row["ratio_low"], end), min(row["ratio_high"], end)]
        axis.plot(ends, [y, y], color=INK, linewidth=1)
        text += " [{ratio_low:.3g}, {ratio_high:.3g}]".format(**row)
    axis.annotate(text, (end, y), fontsize=7, va="center", xytext=(4, 0), textcoords="offset points")


def _fraction(row: Row) -> str:
    """The exact ratio of counts as a fraction in lowest terms, where one short enough to read exists."""
    counts: Sequence[float] = (row["mean_arm"], row["mean_reference"])
    if row["method"] != "exact" or 0 in counts:
        return ""
    ratio = Fraction(row["ratio"]).limit_denominator(1000)
    exact = abs(float(ratio) - row["ratio"]) < 1e-9 and 1 < ratio.denominator < 1000
    return f" = {ratio.numerator}/{ratio.denominator}" if exact else ""
