"""What the page's template is given: rows of the tables, and where each number stands."""

from typing import Any

from jagg.records import COVERAGE, read_table
from jagg.report.data import Row, StudyData
from jagg.report.figures.cost import QUANTITIES
from jagg.report.gradients import (
    QUALITY,
    ROUTING,
    jagg_quality,
    routing_summary,
    stress_conditions,
    stress_summary,
)
from jagg.report.models import (
    aggregation,
    algorithm_name,
    backbone_label,
    backbones,
    environments,
    is_embedded,
    scorers,
)
from jagg.report.narrative import arm_differences, gains, limits, phrase, run_counts, verdicts
from jagg.report.published import PAPER, cosines_in_words
from jagg.report.style import css_colour
from jagg.report.tables import COMPLETE
from jagg.report.traceable_values import Source
from jagg.report.tradeoffs import tradeoffs
from jagg.stats import COVERAGE_FILE
from jagg.stats.compare import POOLED
from jagg.stats.join import Cell

DIFFERENCES = Source("tables/paired_differences.csv", ("backbone", "algorithm", "metric", "step", "arm", "reference"))
PASSES = Source("tables/backward_passes.csv", ("backbone", "algorithm", "arm", "seed"))
COSTS = Source("tables/costs.csv", ("backbone", "algorithm", "quantity", "arm", "reference"))
EQUAL_COST = Source("tables/equal_cost.csv", ("backbone", "algorithm", "metric", "arm", "reference", "step", "budget"))
ATTRITION = Source("tables/attrition.csv", ("backbone", "algorithm", "metric", "arm", "reference", "step"))
CLAIMS = Source("tables/claims.csv", ("id", "kind"))
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
        "threshold": f"{data.threshold:g}",
        "jagg_quality": jagg_quality(data),
        "published_cosines": cosines_in_words(),
        "paper": PAPER,
        "routing": data.routing,
        "routing_summary": routing_summary(data),
        "stress": stress_summary(data),
        "stress_conditions": stress_conditions(data),
        "costs_in_short": costs_in_short(data),
        "quantities": list(QUANTITIES.values()),
        "tradeoffs": tradeoffs(data),
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
    """Each cell and arm with complete runs: their rows, and whether passes are what the closed form says.

    Passes that the arm draws have it as their expectation, so these are "drawn" and no fault.
    """
    found = []
    for cell in data.cells:
        for arm in data.study.arms:
            key = {"backbone": cell[0], "algorithm": cell[1], "arm": arm}
            runs = [row for row in data.passes if key.items() <= row.items()]
            if runs:
                equal = all(row["backward_passes"] == row["backward_passes_expected"] for row in runs)
                expected = "yes" if equal else "drawn" if data.study.arms[arm].draws_passes else "NO"
                found.append({"cell": cell, "arm": arm, "key": key, "runs": runs, "as_expected": expected})
    return found


def costs_in_short(data: StudyData) -> list[Row]:
    """Each arm's cost ratios, lowest and highest over cells, beside what the arm is."""
    found = []
    for arm in data.compared_arms:
        of_arm = [row for row in data.costs if row["arm"] == arm]
        if of_arm:
            settings = data.study.arms[arm]
            entry: Row = {"arm": arm, "estimator": settings.estimator, "schedule": settings.schedule, "ratios": []}
            for quantity in QUANTITIES:
                rows = [row for row in of_arm if row["quantity"] == quantity]
                ends = [COSTS.reduce(rows, "ratio", how, "ratio", arm=arm, quantity=quantity) for how in ("min", "max")]
                entry["ratios"].append(ends if ends[0].striptags() != ends[1].striptags() else ends[:1])
            found.append(entry)
    return found


def last_equal_cost(data: StudyData) -> list[Row]:
    """Equal-cost rows of the last checkpoint."""
    return [row for row in data.equal_cost if row["step"] == data.last_step]


def _grouped(rows: list[Row], name: str) -> dict[str, list[Row]]:
    grouped: dict[str, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row[name], []).append(row)
    return grouped
