"""What an arm's runs cost against the reference's: exact ratios of counts, intervals of times."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jagg.stats.design import Design
from jagg.stats.estimates import Estimate, Seeds, paired_t
from jagg.stats.join import Cell

COUNTS = ("backward_passes", "forward_passes", "images")
TIMES = ("rollout_s", "update_s", "step_s")
EXACT, LOG_T = "exact", "t on the log ratio, paired by seed"
Costs = Mapping[tuple[Cell, str, int], Mapping[str, float | None]]
"""(cell, arm, seed) -> quantity -> a run's total over its training; None is unknown."""


def log_ratio(arm: Seeds, reference: Seeds, level: float = 0.95) -> Estimate:
    """Ratio of costs paired by seed: the t interval of the mean log ratio, back on the ratio's scale.

    `sd` and `standard_error` stay on the log scale; `p_value` is against a ratio of 1. Costs must be positive.
    """
    if len(arm) and not (np.minimum(arm, reference) > 0).all():
        return Estimate(None, method=LOG_T, reason="a cost is not positive")
    logs = paired_t(np.log(arm) - np.log(reference), level)
    mean, low, high = (None if value is None else math.exp(value) for value in (logs.mean, logs.ci_low, logs.ci_high))
    return Estimate(mean, logs.sd, logs.standard_error, logs.df, low, high, logs.p_value, LOG_T, logs.reason)


def cost_rows(
    costs: Costs,
    arms: Iterable[str],
    design: Design,
    machines: Mapping[tuple[Cell, str, int], str] | None = None,
) -> list[dict[str, Any]]:
    """Rows of the table `COSTS`: every arm against the reference in every cell, over the seeds that both have.

    Args:
        machines: what each run was timed on; times of a pair are compared on one machine only. None: all on one.
    """
    timed_on = machines or {}
    cells = sorted({cell for cell, _, _ in costs})
    rows = []
    for arm in arms:
        for cell in cells:
            seeds = sorted(s for c, a, s in costs if (c, a) == (cell, arm) and (cell, design.reference, s) in costs)
            unlike = [s for s in seeds if timed_on.get((cell, arm, s)) != timed_on.get((cell, design.reference, s))]
            for quantity in (*COUNTS, *TIMES):
                ours, theirs = ([costs[cell, name, s][quantity] for s in seeds] for name in (arm, design.reference))
                rows.append(
                    {
                        "backbone": cell[0],
                        "algorithm": cell[1],
                        "quantity": quantity,
                        "arm": arm,
                        "reference": design.reference,
                        "num_seeds": len(seeds),
                        **_ratio_columns(quantity, ours, theirs, design.level, unlike),
                    }
                )
    return rows


def _ratio_columns(
    quantity: str, ours: list[float | None], theirs: list[float | None], level: float, unlike: list[int]
) -> dict[str, Any]:
    """Counts are known exactly, so their ratio is that of their sums and has no interval."""
    method = EXACT if quantity in COUNTS else LOG_T
    empty = dict.fromkeys(("mean_reference", "mean_arm", "ratio", "ratio_low", "ratio_high", "ci_level"))
    if not ours or None in ours or None in theirs:
        return {**empty, "method": method, "note": "not estimable: " + ("unknown cost" if ours else "no shared seed")}
    if unlike and method == LOG_T:
        where = f"pairs timed on different machines or libraries: seeds {', '.join(map(str, unlike))}"
        return {**empty, "method": method, "note": f"not estimable: {where}"}
    arm, reference = np.array(ours, float), np.array(theirs, float)
    means = {"mean_reference": float(reference.mean()), "mean_arm": float(arm.mean())}
    if method == LOG_T:
        estimate = log_ratio(arm, reference, level)
        return {
            **means,
            "ratio": estimate.mean,
            "ratio_low": estimate.ci_low,
            "ratio_high": estimate.ci_high,
            "ci_level": level if estimate.estimable else None,
            "method": method,
            "note": "" if estimate.estimable else f"not estimable: {estimate.reason}",
        }
    if not reference.all():
        return {**empty, **means, "method": method, "note": "not estimable: the reference's count is 0"}
    by_seed = arm / reference
    varies = by_seed.min() < by_seed.max()
    note = f"exact in each seed, {by_seed.min():.6g} to {by_seed.max():.6g} over seeds" if varies else ""
    return {**empty, **means, "ratio": float(arm.sum() / reference.sum()), "method": method, "note": note}
