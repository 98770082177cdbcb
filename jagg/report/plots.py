"""Every figure of the report."""

from jagg.report.data import StudyData
from jagg.report.figures.cost import cost_bars
from jagg.report.figures.curves import difference_curves, reward_curves, score_by_passes
from jagg.report.figures.forest import forest
from jagg.report.figures.pairs import prompt_differences, slopes
from jagg.report.figures.pareto import pareto_passes, pareto_time
from jagg.report.figures.plot import Plot
from jagg.report.figures.quality import (
    cosine_by_window,
    error_bound,
    estimators_by_passes,
    routing,
    share_by_window,
)
from jagg.report.figures.stress import stress_by_estimator, stress_by_window_length

_ALWAYS = (reward_curves, score_by_passes)
_COMPARING = (forest, difference_curves, slopes, prompt_differences, cost_bars, pareto_passes, pareto_time)
_GRADIENTS = (cosine_by_window, share_by_window, estimators_by_passes, error_bound)
_STRESS = (stress_by_window_length, stress_by_estimator)


def all_plots(data: StudyData) -> list[Plot]:
    """Every figure that the study has something for; none that compares where one arm stands alone."""
    chosen = [
        *_ALWAYS,
        *(_COMPARING if data.differences else ()),
        *(_GRADIENTS if data.gradient_quality else ()),
        *((routing,) if data.routing else ()),
        *(_STRESS if data.stress else ()),
    ]
    plots = [make(data) for make in chosen]
    return [plot for plot in plots if plot.rows and plot.panels]
