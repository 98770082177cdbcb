"""What became of the wanted runs, and what the comparison could be if the missing ones had gone badly or well."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from jagg.stats.design import Design
from jagg.stats.equivalence import verdict
from jagg.stats.estimates import Estimate, paired_t
from jagg.stats.join import Cell, Joined
from jagg.stats.pairs import POOLED_CELL, Comparison

COMPLETE, DIVERGED, MISSING, RATIO_FAILED = "complete", "diverged", "missing", "ratio check failed"
Statuses = Mapping[tuple[Cell, str, int], str]
"""(cell, arm, seed) -> one of the statuses above, for every wanted run."""


def attrition_rows(
    arms: Mapping[str, list[Comparison]], joined: Joined, statuses: Statuses, design: Design
) -> list[dict[str, Any]]:
    """Rows of the table `ATTRITION`, one a cell, metric and arm at the cell's last checkpoint.

    A score that is missing is set to the lowest and to the highest that any run of the cell has at any checkpoint, the
    untouched model's included; a pair's difference is then the worst that follows, or the worst seen, if that is worse.
    `worst_case_verdict` is the word only if it holds in both cases. Invented values have no spread of their own, so the
    intervals with them say how far the result could move, not how sure it is.
    """
    rows = []
    for arm, comparisons in arms.items():
        last: dict[Cell, int] = {}
        for comparison in comparisons:
            last[comparison.cell] = max(comparison.step, last.get(comparison.cell, comparison.step))
        rows += [
            _row(comparison, arm, joined, statuses, design)
            for comparison in comparisons
            if comparison.cell != POOLED_CELL and comparison.step == last[comparison.cell]
        ]
    return rows


def _row(comparison: Comparison, arm: str, joined: Joined, statuses: Statuses, design: Design) -> dict[str, Any]:
    cell, estimate, margin = comparison.cell, comparison.estimate, design.margin(comparison.metric)
    by_seed = {
        name: {s: status for (c, a, s), status in statuses.items() if (c, a) == (cell, name)}
        for name in (design.reference, arm)
    }
    lost = sorted((set(by_seed[design.reference]) | set(by_seed[arm])) - set(comparison.seeds))
    worst, best = (_imputed(comparison, joined, lost, design, sign) for sign in (-1, 1))
    words = {verdict(case, margin, comparison.floor) for case in (estimate, worst, best)}
    return {
        "backbone": cell[0],
        "algorithm": cell[1],
        "metric": comparison.metric,
        "arm": arm,
        "reference": design.reference,
        "step": comparison.step,
        **_counts("reference", by_seed[design.reference], comparison.seeds),
        **_counts("arm", by_seed[arm], comparison.seeds),
        "num_seeds": comparison.num_seeds,
        "difference": estimate.mean,
        "ci_low": estimate.ci_low,
        "ci_high": estimate.ci_high,
        "verdict": verdict(estimate, margin, comparison.floor),
        "num_imputed": len(lost),
        "worst_difference": worst.mean,
        "worst_ci_low": worst.ci_low,
        "worst_ci_high": worst.ci_high,
        "best_difference": best.mean,
        "best_ci_low": best.ci_low,
        "best_ci_high": best.ci_high,
        "worst_case_verdict": words.pop() if len(words) == 1 else "inconclusive",
        "note": f"worst and best case for seeds {', '.join(map(str, lost))}" if lost else "no run is missing",
    }


def _counts(side: str, statuses: Mapping[int, str], paired: tuple[int, ...]) -> dict[str, int]:
    counts = Counter(statuses.values())
    return {
        f"attempted_{side}": len(statuses),
        f"finished_{side}": counts[COMPLETE] + counts[RATIO_FAILED],
        f"diverged_{side}": counts[DIVERGED],
        f"missing_{side}": counts[MISSING],
        f"excluded_{side}": sum(
            status in (COMPLETE, RATIO_FAILED) and seed not in paired for seed, status in statuses.items()
        ),
    }  # fmt: skip


def _imputed(comparison: Comparison, joined: Joined, lost: list[int], design: Design, sign: int) -> Estimate:
    """The comparison with lost pairs at their worst (sign -1) or best (sign 1) for the arm."""
    cell, metric, step = comparison.place
    seen = [
        score.value
        for (c, m, _, _), by_seed in joined.scores.items()
        if (c, m) == (cell, metric)
        for score in by_seed.values()
        if np.isfinite(score.value)
    ]
    if not lost or not seen:
        return comparison.estimate
    low, high = (min(seen), max(seen)) if sign < 0 else (max(seen), min(seen))
    known = {name: joined.scores.get((cell, metric, step, name), {}) for name in (comparison.arm, design.reference)}
    ours, theirs = (
        np.array([known[name][seed].value if seed in known[name] else other for seed in lost])
        for name, other in ((comparison.arm, low), (design.reference, high))
    )
    differences = ours - theirs
    if len(comparison.seeds):
        observed = comparison.differences
        differences = np.minimum(differences, observed.min()) if sign < 0 else np.maximum(differences, observed.max())
    return paired_t(np.concatenate([comparison.differences, differences]), design.level)
