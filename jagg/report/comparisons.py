"""The tables that compare arms: differences, curves, costs, quality at equal cost, attrition."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jagg.config import AsymmetricMargin, Study
from jagg.keys import RunKey
from jagg.records import PAIRED_DIFFERENCES, table_of
from jagg.stats.attrition import attrition_rows
from jagg.stats.compare import compare_arms
from jagg.stats.costs import COUNTS, TIMES, cost_rows
from jagg.stats.design import Design
from jagg.stats.equal_cost import equal_cost_rows
from jagg.stats.equivalence import Margin
from jagg.stats.tables import ATTRITION, COSTS, CURVES, EQUAL_COST

_SCHEMAS = {
    "paired_differences.csv": PAIRED_DIFFERENCES,
    "curves.csv": CURVES,
    "costs.csv": COSTS,
    "equal_cost.csv": EQUAL_COST,
    "attrition.csv": ATTRITION,
}


def design_of(study: Study) -> Design:
    """What the study's file declares about its comparison."""
    declared = study.comparison
    return Design(
        reference=declared.reference,
        level=declared.ci_level,
        margins={metric: _margin(value) for metric, value in declared.margins.items()},
        optimised_metrics=list(study.reward.weights),
        primary_metric=declared.primary_metric,
        independent_cells=declared.independent_cells,
        aa_arm=declared.aa_arm,
        aggregation=declared.aggregation,
    )


def _margin(value: float | AsymmetricMargin) -> float | Margin:
    if isinstance(value, AsymmetricMargin):
        return Margin(-value.below, float("inf") if value.above is None else value.above)
    return value


def comparison_tables(
    study: Study,
    scores: pa.Table,
    histories: Mapping[RunKey, pa.Table],
    statuses: Mapping[RunKey, str],
    machines: Mapping[RunKey, str],
) -> dict[str, pa.Table]:
    """File name -> table; empty ones where no arm can be compared with the reference.

    Args:
        scores: the complete runs' scores.
        histories: each complete run's training steps, every step once.
        statuses: of every wanted run.
        machines: of every complete run, what it was timed on.

    Raises:
        InputError: scores cannot be compared.
    """
    present = set(scores.column("arm").unique().to_pylist())
    reference = study.comparison.reference
    arms = [arm for arm in study.arms if arm in present - {reference}]
    if not arms or reference not in present:
        return {name: table_of([], schema) for name, schema in _SCHEMAS.items()}
    design = design_of(study)
    if design.aa_arm not in present:
        design = Design(**{**vars(design), "aa_arm": None})
    compared = compare_arms(scores, design, arms)
    places = {key: ((key.backbone, key.algorithm), key.arm, key.seed) for key in statuses}
    totals = {places[key]: _totals(history) for key, history in histories.items()}
    spent = {places[key]: _spent(history) for key, history in histories.items()}
    lost = {places[key]: status for key, status in statuses.items()}
    return {
        "paired_differences.csv": compared.differences(),
        "curves.csv": compared.curves(),
        "costs.csv": table_of(
            cost_rows(totals, arms, design, {places[key]: machine for key, machine in machines.items()}), COSTS
        ),
        "equal_cost.csv": table_of(equal_cost_rows(compared.joined, spent, arms, design), EQUAL_COST),
        "attrition.csv": table_of(attrition_rows(compared.arms, compared.joined, lost, design), ATTRITION),
    }


def _totals(history: pa.Table) -> dict[str, float | None]:
    """A run's costs; `forward_passes` are those with and without gradients. A step without a cost leaves it unknown."""
    columns = {name: history.column(name) for name in (*COUNTS, *TIMES) if name != "forward_passes"}
    columns["forward_passes"] = pc.add(history.column("forward_passes_grad"), history.column("forward_passes_nograd"))
    return {name: pc.sum(column, skip_nulls=False).as_py() for name, column in columns.items()}


def _spent(history: pa.Table) -> dict[str, dict[int, float]]:
    """What a run had spent of each budget up to every training step; nothing at step 0."""
    steps = history.column("step").to_pylist()
    costs = {
        "trained_steps": np.ones(len(steps)),
        "backward_passes": history.column("backward_passes").to_numpy(),
        "wall_clock_s": history.column("step_s").to_numpy(),
    }
    sums = {budget: np.cumsum(np.asarray(values, float)) for budget, values in costs.items()}
    return {
        budget: {0: 0.0, **{step: float(value) for step, value in zip(steps, values) if np.isfinite(value)}}
        for budget, values in sums.items()
    }
