"""Claims about scores: paired differences, and the shape of curves (math.md 6)."""

import math
from collections import defaultdict

from jagg.claims import registry
from jagg.claims.context import Case, cell_name, missing, of_seeds
from jagg.claims.evidence import All, AnyOf, Part, Quantity
from jagg.claims.results import NotTestableError, Row
from jagg.stats.join import Joined, join_scores


def difference(test: registry.Difference, case: Case) -> Part:
    """Every paired difference of the scope lies where the claim says: one part a cell, metric and checkpoint."""
    table, rows = case.results.differences(test.arm, test.reference)
    found = {(row["backbone"], row["algorithm"], row["metric"], row["step"]): row for row in rows}
    steps = case.results.last_steps(row["step"] for row in rows)
    if not steps:
        raise NotTestableError("the results have no checkpoint after step 0")
    parts = []
    for cell in case.cells(test.arm):
        for metric in case.metrics:
            for step in steps if test.steps == "all" else steps[-1:]:
                name = f"{cell_name(cell)}, {metric}, step {step}: {test.arm} - {test.reference}"
                row = found.get((*cell, metric, step))
                parts.append(_difference(test, table, name, row) if row else missing(name, "no such row"))
    return All(tuple(parts))


def _difference(test: registry.Difference, table: str, name: str, row: Row) -> Quantity:
    low, high, reason = _region(test, row)
    n, sd = row["num_seeds"] or 0, row["sd_difference"]
    if not reason and (row["difference"] is None or not sd or n < 2 or row["ci_low"] is None):
        reason = f"n = {n}: no interval" if n < 2 else row["note"] or "no interval"
    return Quantity(
        name,
        row["difference"],
        low,
        high,
        None if reason else sd / math.sqrt(n),
        n - 1,
        n,
        ((table, row["#"]),),
        reason,
    )


def _region(test: registry.Difference, row: Row) -> tuple[float, float, str]:
    if test.relation == "superior":
        floor = row.get("aa_floor")
        noise = floor is not None and row["difference"] is not None and 0 < row["difference"] <= floor
        return 0.0, math.inf, f"no larger than what other noise does (A/A floor {floor:.4g})" if noise else ""
    if test.relation == "inferior":
        return -math.inf, 0.0, ""
    margin = test.margin.get(row["metric"]) if isinstance(test.margin, dict) else test.margin
    below, above = (margin, margin) if margin else (row["margin"], row.get("margin_high", row["margin"]))
    if test.relation == "non-inferior":
        above = math.inf
    if not below or not above:
        return -math.inf, math.inf, "no margin was declared for it"
    return -below, above, ""


def late_change(test: registry.LateChange, case: Case) -> Part:
    """From at least one checkpoint on, the reference falls and the arm rises until the last, in every cell and metric.

    The checkpoint is not picked from the data: it is any of those between step 0 and the last, each tried at its share
    of alpha.
    """
    scores = case.results.table("scores.parquet")
    lacking = {test.arm, test.reference} - set(scores.column("arm").unique().to_pylist())
    if lacking:
        raise NotTestableError(f"the results have no {' and no '.join(sorted(lacking))}")
    joined = join_scores(scores, [test.arm, test.reference], case.results.aggregation)
    steps = case.results.last_steps(place[2] for place in joined.scores)
    if len(steps) < 2:
        raise NotTestableError("a curve's change needs two checkpoints after step 0")
    return AnyOf(tuple(_falls_and_rises(test, case, joined, step, steps[-1]) for step in steps[:-1]))


def _falls_and_rises(test: registry.LateChange, case: Case, joined: Joined, start: int, end: int) -> All:
    parts = []
    for cell in case.cells(test.arm):
        for metric in case.metrics:
            for arm, low, high in ((test.reference, -math.inf, 0.0), (test.arm, 0.0, math.inf)):
                first = joined.scores.get((cell, metric, start, arm), {})
                last = joined.scores.get((cell, metric, end, arm), {})
                changes = [last[seed].value - first[seed].value for seed in sorted(set(first) & set(last))]
                name = f"{cell_name(cell)}, {metric}, {arm}: step {end} - step {start}"
                parts.append(of_seeds(name, changes, low, high, pointers=[("scores.parquet", 0)]))
    return All(tuple(parts))


def same_start(test: registry.SameStart, case: Case) -> Part:
    """Loss and gradient norm of the first training step are those of the reference, in every pair of runs."""
    by_arm: dict[str, dict[tuple, Row]] = defaultdict(dict)
    for row in case.results.rows("history.parquet"):
        if row["step"] == 1:
            by_arm[row["arm"]][row["backbone"], row["algorithm"], row["seed"]] = row
    ours, theirs = by_arm[test.arm], by_arm[test.reference]
    cells = set(case.cells(test.arm))
    shared = sorted(place for place in set(ours) & set(theirs) if place[:2] in cells)
    if not shared:
        raise NotTestableError(f"the results have no pair of runs of {test.arm} and {test.reference}")
    parts = []
    for place in shared:
        for column in ("loss", "grad_norm"):
            one, other = ours[place], theirs[place]
            name = f"{'/'.join(map(str, place))}: relative difference of {column} at training step 1"
            if one[column] is None or other[column] is None:
                parts.append(missing(name, "the history has no value"))
                continue
            gap = abs(one[column] - other[column]) / (abs(other[column]) or 1.0)
            pointers = (("history.parquet", one["#"]), ("history.parquet", other["#"]))
            parts.append(Quantity(name, gap, 0.0, test.tolerance, pointers=pointers))
    return All(tuple(parts))
