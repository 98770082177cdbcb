"""Quality at equal cost: both arms are read where they have spent the same, within each seed."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64

from jagg.stats.design import Design
from jagg.stats.estimates import Estimate, paired_t, rounding_spread
from jagg.stats.join import Cell, Joined

BUDGETS = ("trained_steps", "backward_passes", "wall_clock_s")
Spent = Mapping[tuple[Cell, str, int], Mapping[str, Mapping[int, float]]]
"""(cell, arm, seed) -> budget -> step -> what the run had spent from its start to that step."""
Curve = tuple[Float64[np.ndarray, "checkpoints"], Float64[np.ndarray, "checkpoints"]]


def read_at(curve: Curve, spent: float) -> float:
    """A score at a cost between two checkpoints, by linear interpolation; NaN outside them, never extrapolated."""
    costs, scores = curve
    if not costs[0] <= spent <= costs[-1]:
        return float("nan")
    return float(np.interp(spent, costs, scores))


def equal_cost_rows(joined: Joined, spent: Spent, arms: Iterable[str], design: Design) -> list[dict[str, Any]]:
    """Rows of the table `EQUAL_COST` (see there for which costs are equal), step 0 left out."""
    places = sorted({place[:3] for place in joined.scores if place[2] > 0})
    scores = _by_run(joined)
    return [
        _row(scores, spent, place, arm, budget, design)
        for arm in arms
        for place in places
        for budget in BUDGETS
        if (*place, arm) in joined.scores
    ]


Scores = dict[tuple[Cell, str, str], dict[int, dict[int, float]]]
"""(cell, metric, arm) -> seed -> step -> score."""


def _by_run(joined: Joined) -> Scores:
    scores: Scores = {}
    for (cell, metric, step, arm), by_seed in joined.scores.items():
        for seed, score in by_seed.items():
            scores.setdefault((cell, metric, arm), {}).setdefault(seed, {})[step] = score.value
    return scores


def _row(
    scores: Scores, spent: Spent, place: tuple[Cell, str, int], arm: str, budget: str, design: Design
) -> dict[str, Any]:
    cell, metric, step = place
    names = (arm, design.reference)
    runs = {name: scores.get((cell, metric, name), {}) for name in names}
    shared = sorted(seed for seed in runs[arm] if all(step in runs[name].get(seed, {}) for name in names))
    curves = {
        (name, seed): _curve(runs[name][seed], spent.get((cell, name, seed), {}).get(budget, {}))
        for name in names
        for seed in shared
    }
    unknown = sorted({seed for (_, seed), curve in curves.items() if curve is None})
    levels = np.array([] if unknown else [min(spent[cell, n, s][budget][step] for n in names) for s in shared])
    ours, theirs = (
        np.array([read_at(curves[name, s], at) for s, at in zip(shared, levels)])  # type: ignore[arg-type]
        for name in names
    )
    reason = _reason(shared, unknown, ours, theirs)
    estimate = (
        Estimate(None, reason=reason)
        if reason
        else paired_t(ours - theirs, design.level, rounding_spread(ours, theirs))
    )
    known = not reason
    return {
        "backbone": cell[0],
        "algorithm": cell[1],
        "metric": metric,
        "arm": arm,
        "reference": design.reference,
        "step": step,
        "budget": budget,
        "spent_low": float(levels.min()) if len(levels) else None,
        "spent_high": float(levels.max()) if len(levels) else None,
        "num_seeds": len(shared),
        "mean_reference": float(theirs.mean()) if known else None,
        "mean_arm": float(ours.mean()) if known else None,
        "difference": estimate.mean,
        "ci_low": estimate.ci_low,
        "ci_high": estimate.ci_high,
        "ci_level": design.level if estimate.estimable else None,
        "p_value": estimate.p_value,
        "note": _read_back(curves, shared, levels, names)
        if estimate.estimable
        else f"not estimable: {estimate.reason}",
    }


def _curve(scores: Mapping[int, float], costs: Mapping[int, float]) -> Curve | None:
    """A run's score against what it had spent, at its checkpoints; None where a cost is unknown."""
    steps = sorted(scores)
    if any(step not in costs for step in steps):
        return None
    return np.array([costs[step] for step in steps]), np.array([scores[step] for step in steps])


def _reason(shared: list[int], unknown: list[int], ours: np.ndarray, theirs: np.ndarray) -> str:
    if not shared:
        return "no shared seed"
    if unknown:
        return f"cost not known for seeds {', '.join(map(str, unknown))}"
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return "a score is not finite, or this cost lies outside a run's checkpoints"
    return ""


def _read_back(curves: dict, shared: list[int], levels: np.ndarray, names: tuple[str, str]) -> str:
    """Which arm is read between its checkpoints."""
    between = [name for name in names if any(at not in curves[name, s][0] for s, at in zip(shared, levels))]
    return f"{' and '.join(between)}: between checkpoints, by linear interpolation" if between else ""
