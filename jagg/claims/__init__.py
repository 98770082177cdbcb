"""Claims and verdicts: what results say about published claims."""

from collections.abc import Callable
from typing import Any

from jagg.claims.context import Case
from jagg.claims.estimands import costs, demands, gradients, quality
from jagg.claims.evidence import Part

ESTIMANDS: dict[str, Callable[[Any, Case], Part]] = {
    "difference": quality.difference,
    "late_change": quality.late_change,
    "same_start": quality.same_start,
    "passes": costs.passes,
    "time": costs.time,
    "time_order": costs.time_order,
    "window_sweep": costs.window_sweep,
    "ledger": costs.ledger,
    "window_quality": gradients.window_quality,
    "window_order": gradients.window_order,
    "seed_coverage": demands.seed_coverage,
    "table_coverage": demands.table_coverage,
    "fraction_sweep": demands.fraction_sweep,
    "formula": demands.formula,
}
"""Estimand of a claim's test -> the function that turns it into conditions on quantities."""
