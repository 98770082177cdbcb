"""A sweep in words: which arms are equivalent, which cannot be judged, and the run that tries to prove JAGG wrong."""

from jagg.config import resolve
from jagg.report.data import Row, StudyData
from jagg.report.figures.plot import of_cell
from jagg.report.narrative import verdict_counts
from jagg.stats.compare import POOLED


def tradeoffs(data: StudyData) -> Row:
    """Arms by how many of their comparisons (cells x metrics, last checkpoint) are equivalent or not estimable."""
    rows = [row for row in data.last_differences() if row["backbone"] != POOLED]
    arms = [
        {
            "arm": arm,
            "of": len(mine),
            "equivalent": sum(row["verdict"] == "equivalent" for row in mine),
            "not_estimable": sum(row["verdict"] == "not-estimable" for row in mine),
            "counts": verdict_counts(mine),
            "identical": all(row["difference"] == 0 and row["verdict"] == "not-estimable" for row in mine),
            "falsifies": is_falsification(data, arm),
        }
        for arm in data.compared_arms
        if (mine := [row for row in rows if row["arm"] == arm])
    ]
    return {
        "has_margins": bool(data.study.comparison.margins),
        "everywhere": [arm for arm in arms if arm["equivalent"] == arm["of"]],
        "somewhere": [arm for arm in arms if 0 < arm["equivalent"] < arm["of"]],
        "nowhere": [arm for arm in arms if not arm["equivalent"] and arm["not_estimable"] < arm["of"]],
        "not_estimable": [arm for arm in arms if arm["not_estimable"] and not arm["identical"]],
        "identical": [arm for arm in arms if arm["identical"]],
        "missing_cells": [cell for cell in data.cells if not of_cell(rows, cell)],
        "falsification": [arm for arm in arms if arm["falsifies"]],
    }


def is_falsification(data: StudyData, name: str) -> bool:
    """Whether an arm gives every window to JAGG, by place and at the algorithm's own length, against the exact arm."""
    arm, reference = data.study.arms[name], data.study.arms[data.reference]
    algorithms = data.study.algorithms
    return (
        reference.estimator == "exact"
        and arm.estimator == "jagg"
        and arm.routing.max_residual is None
        and all(resolve(arm.routing.jagg_frac, algorithm) == 1.0 for algorithm in algorithms)
        and all(arm.window in (None, algorithm.window) for algorithm in algorithms.values())
    )
