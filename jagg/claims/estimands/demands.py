"""Demands on a study rather than on its numbers: that seeds, tables and sweeps are there."""

import math

from jagg.claims import registry
from jagg.claims.context import Case, cell_name, missing
from jagg.claims.evidence import All, Part, Quantity
from jagg.claims.results import NotTestableError

_DIFFERENCES = "paired_differences.csv"


def seed_coverage(test: registry.SeedCoverage, case: Case) -> Part:
    """Every row after step 0 has an interval and enough seeds, and no cell, metric or checkpoint is missing.

    Runs that are equal to the reference's have no interval, and need none: their seeds count.
    """
    results = case.results
    rows = [row for row in results.rows(_DIFFERENCES) if row["step"] > 0]
    found = {(row["backbone"], row["algorithm"], row["metric"], row["step"], row["arm"]): row for row in rows}
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    parts = []
    for cell in case.cells():
        for metric in case.metrics:
            for step in results.last_steps(row["step"] for row in rows):
                for arm in arms:
                    name = f"{cell_name(cell)}, {metric}, step {step}, {arm}: seeds with an interval, or equal"
                    row = found.get((*cell, metric, step, arm))
                    compared = row is not None and (row["ci_low"] is not None or row["difference"] == 0)
                    seeds = row["num_seeds"] if row and compared else 0
                    pointers = ((_DIFFERENCES, row["#"]),) if row else ()
                    parts.append(Quantity(name, float(seeds), test.min_seeds, math.inf, pointers=pointers))
    if not parts:
        raise NotTestableError(f"{_DIFFERENCES} has no row after step 0")
    return All(tuple(parts))


def table_coverage(test: registry.TableCoverage, case: Case) -> Part:
    """Every row of the cells fills the columns, and every split occurs."""
    cells = set(case.cells())
    rows = [row for row in case.results.rows(test.table) if (row["backbone"], row["algorithm"]) in cells]
    rows = [row for row in rows if not test.estimators or row["estimator"] in test.estimators]
    if not rows:
        raise NotTestableError(f"{test.table} has no such row of these cells")
    pointers = tuple((test.table, row["#"]) for row in rows)
    parts: list[Quantity] = []
    for column in test.columns:
        if column not in rows[0]:
            parts.append(missing(f"{test.table}: {column}", "no such column"))
            continue
        filled = sum(row[column] is not None for row in rows) / len(rows)
        parts.append(Quantity(f"{test.table}: share of rows with {column}", filled, 1.0, 1.0, pointers=pointers))
    for split in test.splits:
        count = float(sum(row.get("split") == split for row in rows))
        parts.append(Quantity(f"{test.table}: rows of split {split}", count, 1.0, math.inf, pointers=pointers))
    return All(tuple(parts))


def fraction_sweep(test: registry.FractionSweep, case: Case) -> Part:
    """Distinct jagg_frac of one estimator's arms that were evaluated at the last checkpoint, in every cell."""
    results = case.results
    if results.study is None:
        raise NotTestableError("the tables stand without their study's record, so their arms are not known")
    rows = results.rows(_DIFFERENCES)
    last = results.last_steps(row["step"] for row in rows)[-1]
    parts = []
    for cell in case.cells():
        here = [row for row in rows if (row["backbone"], row["algorithm"], row["step"]) == (*cell, last)]
        used = {}
        for row in here:
            arm = results.study.arms.get(row["arm"])
            if arm and arm.estimator == test.estimator:
                settings = arm.routing.jagg_frac
                used[settings[cell[1]] if isinstance(settings, dict) else settings] = (_DIFFERENCES, row["#"])
        used.pop(0.0, None)
        name = f"{cell_name(cell)}: values of jagg_frac at step {last}"
        count = float(len(used))
        parts.append(Quantity(name, count, test.min_fractions, math.inf, pointers=tuple(used.values())))
    return All(tuple(parts))


def formula(test: registry.Formula, case: Case) -> Part:
    """No table can show it."""
    raise NotTestableError(f"a statement about the method, not about results: {test.held_by}")
