"""A published table alone: what its numbers can and cannot support, without any data behind them."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pyarrow as pa
from scipy import stats

from jagg.forensics.reported_values import PICKED, TEXTS, UNITS, Row, half_unit, printed_p, read_published
from jagg.records import table_of

__all__ = ["CHECKS", "FINDINGS", "WRONG", "audit_published", "half_unit", "read_published"]

FINDINGS = pa.schema(
    [
        *[(name, pa.string()) for name in ("check", "finding", *TEXTS)],
        ("step", pa.int64()),
        *[(name, pa.string()) for name in ("printed", "possible", "reason", "evidence")],
    ]
)
"""One row a check of a number or pair. `finding`: holds, unsupported (it may be true but nothing shown supports it) or
impossible (it cannot be what it is said to be). `printed` against `possible`; `evidence`: rows of that table."""

HOLDS, UNSUPPORTED, IMPOSSIBLE = "holds", "unsupported", "impossible"
WRONG = (UNSUPPORTED, IMPOSSIBLE)


def audit_published(rows: list[Row]) -> pa.Table:
    """Every check on every row or pair that it applies to; a table of schema `FINDINGS`."""
    return table_of([finding for check in CHECKS.values() for finding in check(rows)], FINDINGS)


def _finding(
    check: str, finding: str, row: Row, printed: object, possible: object, reason: str, *others: Row
) -> dict[str, Any]:
    numbers = ",".join(str(number) for number in sorted({row["#"], *(other["#"] for other in others)}))
    label = {name: row[name] for name in (*TEXTS, "step")}
    texts = {"printed": str(printed), "possible": str(possible), "reason": reason, "evidence": f"#{numbers}"}
    return {"check": check, "finding": finding, **label, **texts}


def _pairs(rows: list[Row]) -> Iterator[tuple[Row, Row]]:
    groups = defaultdict(list)
    for row in rows:
        if row["value"] is not None and row["saved_share"] is None:
            groups[row["source"], row["setting"], row["metric"], row["step"]].append(row)
    for group in groups.values():
        yield from ((one, other) for one, other in combinations(group, 2) if one["arm"] != other["arm"])


def ranges(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """Numbers that no result can have, whatever the data."""
    for row in rows:
        sign, number = printed_p(row["p"]) if row["p"] is not None else ("=", "0")
        wrong = {
            "a number of seeds below 1": row["n"] is not None and row["n"] < 1 and f"n = {row['n']}",
            "a deviation below 0": row["sd"] is not None and float(row["sd"]) < 0 and f"sd {row['sd']}",
            "a p above 1, or below 0": (float(number) > 1 or (sign == "<" and float(number) == 0)) and f"p {row['p']}",
            "a statistic below 0 of a test that has none": row["statistic"] is not None
            and row["test"] in ("chi2", "f")
            and float(row["statistic"]) < 0
            and f"{row['test']} = {row['statistic']}",
            "an interval whose ends are swapped": None not in (row["ci_low"], row["ci_high"])
            and float(row["ci_low"]) > float(row["ci_high"])
            and f"{row['ci_low']} to {row['ci_high']}",
            "more saved than there was": row["unit"] in ("saving", "percent")
            and row["value"] is not None
            and float(row["value"]) - half_unit(row["value"]) > UNITS[row["unit"]]
            and f"{row['value']} {row['unit']}",
        }
        for reason, printed in wrong.items():
            if printed:
                yield _finding("ranges", IMPOSSIBLE, row, printed, "none", reason)


def seeds(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """A comparison needs two seeds or more on both sides; one has no spread, whatever is printed beside it."""
    for one, other in _pairs(rows):
        gap = f"{float(one['value']) - float(other['value']):+.6g} ({one['arm']} - {other['arm']})"
        single = [row for row in (one, other) if row["n"] is None or row["n"] < 2]
        if single:
            sides = " and ".join(
                f"{row['arm']} (n = {'not stated' if row['n'] is None else row['n']})" for row in single
            )
            reason = f"no interval can be given: single or unstated seeds on the side of {sides}"
            yield _finding("seeds", UNSUPPORTED, one, gap, "not estimable", reason, other)
        else:
            yield _finding("seeds", HOLDS, one, gap, "an interval can be given", "", other)
    for row in rows:
        if row["n"] == 1 and row["sd"] is not None:
            reason = "one seed has no standard deviation; this one is of something else"
            yield _finding("seeds", IMPOSSIBLE, row, f"sd {row['sd']}", "none", reason)
        if row["n"] == 1 and None not in (row["ci_low"], row["ci_high"]):
            reason = "one seed has no interval; this one is of something else"
            yield _finding("seeds", IMPOSSIBLE, row, f"{row['ci_low']} to {row['ci_high']}", "none", reason)


def grid(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """A mean of N items of a given grain lies on the grid grain / N (GRIM; Brown and Heathers 2017)."""
    for row in rows:
        if row["items"] is None or row["value"] is None:
            continue
        step = (row["grain"] or 1.0) / row["items"]
        nearest = round(float(row["value"]) / step) * step
        fits = abs(nearest - float(row["value"])) <= half_unit(row["value"])
        reason = f"{row['items']} items of grain {row['grain'] or 1:g} have means {step:.6g} apart"
        yield _finding("grid", HOLDS if fits else IMPOSSIBLE, row, row["value"], f"{nearest:.6g} is nearest", reason)


_TESTS: dict[str, Callable[[float, Row], float]] = {
    "t": lambda value, row: 2 * float(stats.t.sf(abs(value), row["df"])),
    "z": lambda value, row: 2 * float(stats.norm.sf(abs(value))),
    "chi2": lambda value, row: float(stats.chi2.sf(value, row["df"])),
    "f": lambda value, row: float(stats.f.sf(value, row["df"], row["df2"])),
}
"""Test -> p of a statistic; t and z two-sided."""


def p_values(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """A printed p is one that its statistic gives, up to the rounding of both."""
    for row in rows:
        if row["p"] is None or row["statistic"] is None or row["test"] is None:
            continue
        value, slack = abs(float(row["statistic"])), half_unit(row["statistic"])
        high, low = (_TESTS[row["test"]](end, row) for end in (max(0.0, value - slack), value + slack))
        sign, text = printed_p(row["p"])
        printed, own = float(text), min(half_unit(text), 0.01)  # a bare 0 or 1 does not stand for anything up to a half
        fits = {"<": low <= printed, ">": high >= printed, "=": low - own <= printed <= high + own}[sign]
        reason = f"{row['test']} = {row['statistic']} gives p from {low:.3g} to {high:.3g}"
        claimed = printed <= 0.05 if sign == "<" else sign == "=" and printed < 0.05
        if not fits and claimed != (low < 0.05):
            reason += "; the decision at 0.05 changes"
        yield _finding("p_values", HOLDS if fits else IMPOSSIBLE, row, f"p {row['p']}", f"{low:.3g}-{high:.3g}", reason)


def intervals(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """An interval holds its own estimate, and is as wide as its spread and number of seeds make it."""
    for row in rows:
        if row["ci_low"] is None or row["ci_high"] is None or row["value"] is None or (row["n"] or 2) < 2:
            continue
        low, high, value = (float(row[name]) for name in ("ci_low", "ci_high", "value"))
        printed = f"{row['ci_low']} to {row['ci_high']}"
        rounding = {name: half_unit(row[name]) for name in ("ci_low", "ci_high", "value")}
        below, above = (rounding[name] + rounding["value"] for name in ("ci_low", "ci_high"))
        if not low - below <= value <= high + above:
            yield _finding("intervals", IMPOSSIBLE, row, printed, row["value"], "the interval leaves out its estimate")
        elif row["sd"] is not None and row["n"] and float(row["sd"]) >= 0:
            quantile = float(stats.t.ppf(0.5 + (row["ci_level"] or 0.95) / 2, row["n"] - 1)) / math.sqrt(row["n"])
            half, tolerance = quantile * float(row["sd"]), quantile * half_unit(row["sd"]) + (below + above) / 2
            fits = abs((high - low) / 2 - half) <= tolerance
            reason = f"t interval of sd {row['sd']} and n = {row['n']}; another width was made from other units"
            possible = f"{value - half:.6g} to {value + half:.6g}"
            yield _finding("intervals", HOLDS if fits else UNSUPPORTED, row, printed, possible, reason)
        else:
            yield _finding("intervals", HOLDS, row, printed, row["value"], "holds its estimate")


def selection(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """A checkpoint that was picked for its score shows the luck of the pick; a fixed or last one does not."""
    for row in rows:
        if row["selected"] is None:
            continue
        picked = row["selected"] in PICKED
        others = [
            other
            for other in rows
            if other is not row and all(other[name] == row[name] for name in TEXTS) and other["step"] != row["step"]
        ]
        reason = (
            f"the row was picked ({row['selected']}) among checkpoints: its difference is biased upwards"
            if picked
            else "declared before or the last"
        )
        if row["note"]:
            reason += f"; {row['note']}"
        finding = UNSUPPORTED if picked else HOLDS
        yield _finding("selection", finding, row, f"step {row['step']}", "a step declared before", reason, *others)


def different_steps(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """Arms that are never shown at one common step, as when each is shown at its own best."""
    groups: dict[tuple, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["step"] is not None and row["value"] is not None:
            groups[row["source"], row["setting"], row["metric"]][row["arm"]].append(row)
    for arms in groups.values():
        for one, other in combinations(arms.values(), 2):
            steps = [{row["step"] for row in side} for side in (one, other)]
            if not steps[0] & steps[1]:
                printed = f"{one[0]['arm']} at {sorted(steps[0])}, {other[0]['arm']} at {sorted(steps[1])}"
                reason = "the arms have no step in common"
                yield _finding("different_steps", UNSUPPORTED, one[0], printed, "a common step", reason, other[0])


def amdahl(rows: list[Row]) -> Iterator[dict[str, Any]]:
    """What making a part of the work cheaper can save at most: 1 / (1 - f + f / s) of the whole (Amdahl 1967)."""
    for row in rows:
        if row["saved_share"] is None or row["part_speedup"] is None or row["value"] is None:
            continue
        share, part = row["saved_share"], row["part_speedup"]
        left = 1 - share + share / part
        limit = 1 / left if row["unit"] == "x" else UNITS[row["unit"]] * (1 - left)
        fits = float(row["value"]) - half_unit(row["value"]) <= limit
        reason = f"{share:.4g} of the whole made {part:.4g} times cheaper"
        if row["note"]:
            reason += f"; {row['note']}"
        unit = {"x": "x", "percent": " %"}.get(row["unit"], "")
        finding = HOLDS if fits else IMPOSSIBLE
        yield _finding("amdahl", finding, row, f"{row['value']}{unit}", f"at most {limit:.4g}{unit}", reason)


CHECKS: dict[str, Callable[[list[Row]], Iterator[dict[str, Any]]]] = {
    "ranges": ranges,
    "seeds": seeds,
    "grid": grid,
    "p_values": p_values,
    "intervals": intervals,
    "selection": selection,
    "different_steps": different_steps,
    "amdahl": amdahl,
}
"""Check -> what it finds in the rows of a published table."""
