"""A verdict per claim, from intervals alone."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from jagg.claims import ESTIMANDS
from jagg.claims.context import Case, missing
from jagg.claims.evidence import All, Part, Pointer, Quantity, certify, quantities, refute
from jagg.claims.registry import Claim
from jagg.claims.results import NotTestableError, Results
from jagg.records import CLAIMS, table_of

REPRODUCED, CONTRADICTED, INCONCLUSIVE, NOT_TESTABLE = VERDICTS = (
    "reproduced",
    "contradicted",
    "inconclusive",
    "not-testable",
)
PUBLISHED, ANY_MODEL = "published models", "any model"
COUNTERPARTS = SMALL, OTHER = "small-model counterpart", "other-model counterpart"


def audit(claims: Iterable[tuple[str, Claim]], results: Results) -> pa.Table:
    """A table of schema `CLAIMS`: one row a claim and kind of models.

    A claim about published models is held against them alone. Where the results were made by other models, a second
    row, a counterpart, shows what the same tests say of these; the two are never mixed. Each `verdict` is
    wrong with probability at most alpha = 1 - level of the intervals, counted per row (see `jagg.claims.evidence`).
    `verdict_family` shares alpha out among all rows that rest on intervals (Bonferroni): all of them are right at once
    with probability at least the level.
    """
    drafts = [draft for source, claim in claims for draft in _rows(source, claim, results)]
    tested = sum(_has_intervals(part) for _, part in drafts)
    return table_of([row | _in_family(part, results, tested) for row, part in drafts], CLAIMS)


Draft = tuple[dict[str, Any], Part | None]
"""A row of `CLAIMS` without the family's columns, and the condition behind it; None: nothing could be tested."""


def _has_intervals(part: Part | None) -> bool:
    return part is not None and any(each.standard_error is not None for each in quantities(part))


def _in_family(part: Part | None, results: Results, tested: int) -> dict[str, Any]:
    verdict = NOT_TESTABLE if part is None else decide(part, (1 - results.level) / max(1, tested))["verdict"]
    return {"family_claims": tested if _has_intervals(part) else None, "verdict_family": verdict}


def _rows(source: str, claim: Claim, results: Results) -> list[Draft]:
    backbones = list(dict.fromkeys(backbone for backbone, _ in results.cells))
    if not claim.scope.models:
        return [_row(source, claim, results, ANY_MODEL, backbones)]
    published = [name for name in backbones if results.model(name) in claim.scope.models]
    others = [name for name in backbones if name not in published]
    rows = [_row(source, claim, results, PUBLISHED, published)]
    small = all(results.is_small(name) for name in others)
    return [*rows, _row(source, claim, results, SMALL if small else OTHER, others)] if others else rows


def _row(source: str, claim: Claim, results: Results, kind: str, backbones: Sequence[str]) -> Draft:
    tests = claim.counterpart if kind in COUNTERPARTS and claim.counterpart else claim.tests
    part = None
    try:
        if not backbones:
            made_by = ", ".join(_label(results, name) for name in dict.fromkeys(cell[0] for cell in results.cells))
            raise NotTestableError(
                f"a claim about {' and '.join(claim.scope.models)}; these results were made by {made_by or 'no model'}"
            )
        part = _condition(tests, Case(results, claim.scope, tuple(backbones)), kind == PUBLISHED)
        found = decide(part, 1 - results.level)
    except NotTestableError as error:
        found = _nothing(str(error))
    row = {
        "id": f"{claim.id}-counterpart" if kind in COUNTERPARTS else claim.id,
        "statement": claim.statement,
        "scope": _scope(claim, results, kind, backbones),
        "published": "; ".join(_published(number) for number in claim.published),
        "test": "; ".join(_described(test) for test in tests),
        "source": source,
        "kind": kind,
        **found,
    }
    return row, part


def _condition(tests: Sequence[Any], case: Case, published: bool) -> Part:
    """All tests of a claim, and a missing part for each model, algorithm and metric that it names and none has."""
    parts: list[Part] = []
    reasons = []
    for test in tests:
        try:
            parts.append(ESTIMANDS[test.estimand](test, case))
        except NotTestableError as error:
            reasons.append(str(error))
    if not parts:
        raise NotTestableError("; ".join(dict.fromkeys(reasons)))
    absent = set(case.scope.algorithms) - {algorithm for _, algorithm in case.results.cells}
    if published:
        absent |= set(case.scope.models) - {case.results.model(backbone) for backbone in case.backbones}
    parts += [missing(name, "not among the results") for name in sorted(absent)]
    parts += [missing("a test of the claim", reason) for reason in reasons]
    return All(tuple(inner for part in parts for inner in (part.parts if isinstance(part, All) else (part,))))


def decide(part: Part, alpha: float) -> dict[str, Any]:
    """Verdict, reason and numbers of one claim; a wrong reproduced or contradicted has probability at most alpha."""
    every = list(quantities(part))
    gaps = [quantity for quantity in every if not quantity.estimable]
    if len(gaps) == len(every):
        return _nothing(_gaps(gaps), every)
    if (witnesses := certify(part, alpha)) is not None:
        quantity, own = min(witnesses, key=lambda pair: pair[0].slack(pair[1]))
        reason = _reason(f"all {len(witnesses)} hold; the closest" if len(witnesses) > 1 else "holds", quantity, own)
        return _numbers(REPRODUCED, reason, quantity, own, every)
    if (witnesses := refute(part, alpha)) is not None:
        quantity, own = min(witnesses, key=lambda pair: pair[0].slack(pair[1]))
        return _numbers(CONTRADICTED, _reason("fails", quantity, own), quantity, own, every)
    estimable = [quantity for quantity in every if quantity.estimable]
    quantity = min(estimable, key=lambda each: each.slack(alpha))
    reason = _reason("undecided", quantity, alpha) if quantity.slack(alpha) < 0 else "what could be tested holds"
    seeds = [each.seeds_needed(alpha) for each in estimable if each.slack(alpha) < 0]
    found = _numbers(INCONCLUSIVE, reason + (f"; {_gaps(gaps)}" if gaps else ""), quantity, alpha, every)
    return found | {"seeds_needed": None if None in seeds or not seeds else max(seeds)}  # type: ignore[type-var]


def _nothing(reason: str, every: Sequence[Quantity] = ()) -> dict[str, Any]:
    return {
        "estimate": next((each.shown(each.mean) for each in every if each.mean is not None), None),
        "ci_low": None,
        "ci_high": None,
        "verdict": NOT_TESTABLE,
        "reason": reason,
        "seeds_needed": None,
        "evidence": _evidence(every),
        "ci_level": None,
        "num_tests": len(every),
        "num_seeds": next((each.num_seeds for each in every), None),
    }


def _numbers(verdict: str, reason: str, quantity: Quantity, alpha: float, every: Sequence[Quantity]) -> dict[str, Any]:
    exact = quantity.standard_error is None
    low, high = quantity.interval(alpha)
    return {
        "estimate": quantity.shown(quantity.mean),
        "ci_low": None if exact else quantity.shown(low),
        "ci_high": None if exact else quantity.shown(high),
        "verdict": verdict,
        "reason": reason,
        "seeds_needed": None,
        "evidence": _evidence(every),
        "ci_level": None if exact else 1 - alpha,
        "num_tests": len(every),
        "num_seeds": quantity.num_seeds,
    }


def _reason(word: str, quantity: Quantity, alpha: float) -> str:
    low, high = (quantity.shown(value) for value in quantity.interval(alpha))
    value = f"exactly {low:.4g}" if low == high else f"{100 * (1 - alpha):.4g} % interval {low:.4g} to {high:.4g}"
    rollouts = "" if quantity.num_rollouts is None else f" over {quantity.num_rollouts} rollouts"
    return f"{word}: {quantity.name}: {value}{rollouts}, {_region(quantity)}"


def _region(quantity: Quantity) -> str:
    low, high = quantity.shown(quantity.low), quantity.shown(quantity.high)
    assert low is not None
    assert high is not None
    if low == high:
        return f"claimed {low:.4g}"
    if high == float("inf"):
        return f"claimed at least {low:.4g}"
    return f"claimed at most {high:.4g}" if low in (float("-inf"), 0.0) else f"claimed {low:.4g} to {high:.4g}"


def _gaps(gaps: Sequence[Quantity]) -> str:
    listed = [f"{quantity.name}: {quantity.reason}" for quantity in gaps]
    return "; ".join(listed[:3]) + (f"; and {len(listed) - 3} more that cannot be tested" if len(listed) > 3 else "")


def _evidence(every: Sequence[Quantity]) -> str:
    """Tables and their rows, as in `backward_passes.csv#1-3,7`."""
    rows: Mapping[str, set[int]] = defaultdict(set)
    for quantity in every:
        for pointer in quantity.pointers:
            rows[pointer[0]].add(pointer[1])
    return "; ".join(f"{table}{_ranges(sorted(numbers))}" for table, numbers in rows.items())


def _ranges(numbers: Sequence[int]) -> str:
    if numbers == [0]:
        return ""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return "#" + ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def pointers(evidence: str) -> list[Pointer]:
    """The rows that a text of evidence names; row 0 is the whole table."""
    found = []
    for entry in filter(None, evidence.split("; ")):
        table, _, listed = entry.partition("#")
        for run in filter(None, listed.split(",")):
            first, _, last = run.partition("-")
            found += [(table, row) for row in range(int(first), int(last or first) + 1)]
        if not listed:
            found.append((table, 0))
    return found


def _label(results: Results, backbone: str) -> str:
    return results.labels.get(backbone, backbone)


def _scope(claim: Claim, results: Results, kind: str, backbones: Sequence[str]) -> str:
    """The models, algorithms, metrics and setting of a row; of a counterpart the models that made the results."""
    models = ", ".join(_label(results, name) for name in backbones)
    if kind == PUBLISHED:
        models = ", ".join(claim.scope.models)
    elif kind in COUNTERPARTS:
        models = f"{models} (not {' or '.join(claim.scope.models)})"
    parts = [models, *(", ".join(names) for names in (claim.scope.algorithms, claim.scope.metrics) if names)]
    parts += [", ".join(f"{name} {value}" for name, value in claim.scope.setting.items())]
    return "; ".join(part for part in parts if part)


def _published(number: Any) -> str:
    text = f"{number.what}: {number.value}" if number.what else number.value
    return text if number.n is None else f"{text} (n = {number.n})"


def _described(test: Any) -> str:
    """A test as its estimand and the settings that differ from their defaults."""
    settings = test.model_dump(mode="json", exclude_defaults=True)
    name = settings.pop("estimand")
    return f"{name}: " + ", ".join(f"{key} {value}" for key, value in settings.items()) if settings else name
