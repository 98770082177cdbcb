"""Quality against cost: each arm's difference at the last checkpoint beside its passes and times."""

from collections.abc import Iterable
from statistics import fmean
from typing import Any

import pyarrow as pa

from jagg.records import PARETO, table_of

Row = dict[str, Any]
_COSTS = ("backward_passes_per_trajectory", "ratio_to_baseline", "update_time_ratio", "step_time_ratio")


def pareto(differences: pa.Table, passes: pa.Table) -> pa.Table:
    """One row a cell, metric and arm that was compared: difference with its interval, and costs as means over seeds."""
    costs: dict[tuple[str, str, str], list[Row]] = {}
    for row in passes.to_pylist():
        costs.setdefault((row["backbone"], row["algorithm"], row["arm"]), []).append(row)
    compared = differences.to_pylist()
    last = max((row["step"] for row in compared), default=None)
    names = ("backbone", "algorithm", "metric", "role", "step", "arm", "reference")
    return table_of(
        (
            {name: row[name] for name in (*names, "num_seeds", "difference", "ci_low", "ci_high")}
            | {
                name: _mean(run[name] for run in costs[row["backbone"], row["algorithm"], row["arm"]])
                for name in _COSTS
            }
            for row in compared
            if row["step"] == last and (row["backbone"], row["algorithm"], row["arm"]) in costs
        ),
        PARETO,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known of every seed; None where one is unknown."""
    found = list(values)
    known = [value for value in found if value is not None]
    return fmean(known) if known and len(known) == len(found) else None
