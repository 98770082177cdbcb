"""Every figure of the report."""

from jagg.report.data import StudyData
from jagg.report.figures.cost import cost_bars, pareto
from jagg.report.figures.curves import difference_curves, reward_curves, score_by_passes
from jagg.report.figures.forest import forest
from jagg.report.figures.pairs import prompt_differences, slopes
from jagg.report.figures.plot import Plot
from jagg.report.figures.quality import gradient_quality


def all_plots(data: StudyData) -> list[Plot]:
    """Every figure that the study has something for; none that compares where one arm stands alone."""
    plots = [reward_curves(data), score_by_passes(data)]
    if data.differences:
        comparing = (forest, difference_curves, slopes, prompt_differences, cost_bars, pareto)
        plots += [make(data) for make in comparing]
    return [*plots, gradient_quality(data)] if data.gradient_quality else plots
