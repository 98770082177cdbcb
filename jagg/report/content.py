"""What the page's template is given: rows of the tables, and where each number stands."""

from typing import Any

from jagg.records import COVERAGE, read_table
from jagg.report.data import Row, StudyData
from jagg.report.models import (
    aggregation,
    algorithm_name,
    backbone_label,
    backbones,
    environments,
    is_embedded,
    scorers,
)
from jagg.report.shown import Source
from jagg.report.style import css_colour
from jagg.report.tables import COMPLETE
from jagg.report.words import arm_differences, gains, limits, phrase, run_counts, verdicts
from jagg.stats import COVERAGE_FILE
from jagg.stats.compare import POOLED
from jagg.stats.join import Cell

DIFFERENCES = Source("tables/paired_differences.csv", ("backbone", "algorithm", "metric", "step", "arm", "reference"))
PASSES = Source("tables/backward_passes.csv", ("backbone", "algorithm", "arm", "seed"))
COSTS = Source("tables/costs.csv", ("backbone", "algorithm", "quantity", "arm", "reference"))
EQUAL_COST = Source("tables/equal_cost.csv", ("backbone", "algorithm", "metric", "arm", "reference", "step", "budget"))
ATTRITION = Source("tables/attrition.csv", ("backbone", "algorithm", "metric", "arm", "reference", "step"))
CLAIMS = Source("tables/claims.csv", ("id", "kind"))
QUALITY = Source("tables/gradient_quality.csv", ("backbone", "algorithm", "estimator", "step", "split", "window"))
ROUTING = Source("tables/routing_calibration.csv", ("backbone", "algorithm", "estimator", "rule", "holdout"))
GAINS = Source("figures/gains.csv", ("arm", "metric"))


def content(data: StudyData) -> dict[str, Any]:
    """Everything on the page but its figures and images."""
    study = data.study
    return {
        "study": study,
        "reference": data.reference,
        "level": f"{100 * study.comparison.ci_level:g}",
        "last_step": data.last_step,
        "embedded": is_embedded(data),
        "models": [backbone_label(data, name) for name in study.backbones],
        "cells": {cell: cell_name(data, cell) for cell in [*data.cells, (POOLED, POOLED)]},
        "counts": run_counts(data),
        "not_complete": [row for row in data.runs if row["status"] != COMPLETE],
        "verdicts": verdicts(data),
        "phrase": phrase,
        "aa_arm": study.comparison.aa_arm,
        "spent": spent(data),
        "gains": _grouped(gains(data), "arm"),
        "backbones": backbones(data),
        "scorers": scorers(data),
        "aggregation": aggregation(data),
        "colours": {arm: css_colour(colour) for arm, colour in data.colours.items()},
        "differences": data.last_differences(),
        "passes": passes_by_arm(data),
        "costs": data.costs,
        "equal_cost": last_equal_cost(data),
        "attrition": [row for row in data.attrition if row["num_imputed"]],
        "claims": data.claims,
        "quality": data.gradient_quality,
        "jagg_quality": jagg_quality(data),
        "routing": data.routing,
        "arm_differences": arm_differences(data),
        "limits": limits(data),
        "coverage": read_table(COVERAGE_FILE, COVERAGE).to_pylist(),
        "environments": environments(data),
        "shown": {
            "differences": DIFFERENCES, "passes": PASSES, "costs": COSTS, "equal_cost": EQUAL_COST,
            "attrition": ATTRITION, "claims": CLAIMS, "quality": QUALITY, "routing": ROUTING, "gains": GAINS,
        },
    }  # fmt: skip


def cell_name(data: StudyData, cell: Cell) -> Row:
    """A cell by its names in the study, and the models that made its results."""
    backbone, algorithm = cell
    if backbone == POOLED:
        labels = dict.fromkeys(backbone_label(data, name) for name in data.study.backbones)
        return {"name": "mean over cells", "model": ", ".join(labels)}
    model = f"{backbone_label(data, backbone)}, {algorithm_name(data, algorithm)}"
    return {"name": f"{backbone}, {algorithm}", "model": model}


def spent(data: StudyData) -> dict[str, list[Row]]:
    """Backward passes a trajectory of each arm beside the reference, by algorithm; mean over backbones and seeds."""
    return {
        arm: [
            {
                "name": algorithm_name(data, algorithm),
                "arm": _spent(data, algorithm, arm),
                "reference": _spent(data, algorithm, data.reference),
            }
            for algorithm in data.study.algorithms
        ]
        for arm in data.compared_arms
    }


def _spent(data: StudyData, algorithm: str, arm: str) -> Any:
    runs = [row for row in data.passes if (row["algorithm"], row["arm"]) == (algorithm, arm)]
    return PASSES.reduce(runs, "backward_passes_per_trajectory", "mean", "long", algorithm=algorithm, arm=arm)


def passes_by_arm(data: StudyData) -> list[Row]:
    """Each cell and arm with complete runs: their rows, and whether passes are what the closed form says."""
    found = []
    for cell in data.cells:
        for arm in data.study.arms:
            key = {"backbone": cell[0], "algorithm": cell[1], "arm": arm}
            runs = [row for row in data.passes if key.items() <= row.items()]
            if runs:
                expected = all(row["backward_passes"] == row["backward_passes_expected"] for row in runs)
                found.append({"cell": cell, "arm": arm, "key": key, "runs": runs, "as_expected": expected})
    return found


def jagg_quality(data: StudyData) -> list[Row]:
    """What the windows of each cell say of JAGG's gradient, over all probed checkpoints and splits."""
    found = []
    for cell in data.cells:
        key = {"backbone": cell[0], "algorithm": cell[1], "estimator": "jagg"}
        rows = [row for row in data.gradient_quality if key.items() <= row.items()]
        shown = {
            name: QUALITY.reduce(rows, column, how, "short", **key)
            for name, column, how in (
                ("lowest", "cosine_mean", "min"),
                ("highest", "cosine_mean", "max"),
                ("above", "fraction_above_threshold", "min"),
                ("error", "relative_error_mean", "mean"),
                ("bound", "bound_mean", "mean"),
                ("path", "path_error_mean", "mean"),
                ("curve", "curve_error_mean", "mean"),
            )
        }
        if rows:
            found.append({"cell": cell, **shown})
    return found


def last_equal_cost(data: StudyData) -> list[Row]:
    """Equal-cost rows of the last checkpoint."""
    return [row for row in data.equal_cost if row["step"] == data.last_step]


def _grouped(rows: list[Row], name: str) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row[name], []).append(row)
    return grouped
