"""Claims about cost: counted passes, which are exact, and times, which vary."""

import math
from collections import defaultdict
from itertools import pairwise

from jagg.claims import registry
from jagg.claims.context import Case, cell_name, missing, of_seeds
from jagg.claims.evidence import All, Part, Pointer, Quantity
from jagg.claims.results import NotTestableError, Row
from jagg.stats.join import Cell

_TABLE = "backward_passes.csv"
_CHANCE = 1e-4
"""Probability at most that drawn passes lie as far from their expectation as a run may."""
_TIME_RATIOS = {"step": "step_time_ratio", "update": "update_time_ratio"}


def passes(test: registry.Passes, case: Case) -> Part:
    """Passes of every cell of the scope lie where the claim says."""
    runs = _pairs(case, test.arm, test.reference)
    return All(tuple(_passes(test, case, cell, runs[cell]) for cell in case.cells(test.arm)))


def _passes(test: registry.Passes, case: Case, cell: Cell, pairs: list[tuple[Row, Row]]) -> Quantity:
    name = f"{cell_name(cell)}: {_PASSES[test.quantity].format(arm=test.arm, reference=test.reference)}"
    values = [_count(test, case, cell, arm, reference) for arm, reference in pairs]
    known = [value for value in values if value is not None and value > 0]
    if not known or len(known) < len(values):
        return missing(name, "no pair of complete runs" if not values else "a run has no such count above 0")
    pointers = _pointers(pairs)
    if max(known) == min(known):
        low, high = _ends(test)
        return Quantity(name, known[0], low, high, num_seeds=len(known), pointers=pointers)
    low, high = _log_ends(test)
    return of_seeds(name, [math.log(value) for value in known], low, high, pointers=pointers, log=True)


_PASSES = {
    "per_trajectory": "backward passes of {arm} a trajectory",
    "reduction": "backward passes of {reference} over {arm}",
    "window_reduction": "backward passes of {reference} over {arm} inside an approximated window",
}


def _count(test: registry.Passes, case: Case, cell: Cell, arm: Row, reference: Row) -> float | None:
    """None where a count is missing or the arm approximates no window."""
    if not (_counted(arm) and _counted(reference)):
        return None
    if test.quantity == "reduction":
        return float(_per_trajectory(reference) / _per_trajectory(arm))
    study = case.results.study
    if study is None:
        raise NotTestableError("the tables stand without their study's record, so their settings are not known")
    evaluations = study.backbones[cell[0]].guidance.evaluations_per_velocity
    if test.quantity == "per_trajectory":
        return _per_trajectory(arm) / evaluations
    if not arm["windows_approximate"] or arm["windows_exact"] is None:
        return None
    window = study.algorithms[cell[1]].window
    nodes = (arm["backward_passes"] / evaluations - window * arm["windows_exact"]) / arm["windows_approximate"]
    return float(window / nodes) if nodes else None


def _counted(row: Row) -> bool:
    return bool(row["backward_passes"] and row["trajectories"])


def _per_trajectory(row: Row) -> float:
    return float(row["backward_passes"] / row["trajectories"])


def _ends(test: registry.Passes | registry.Time) -> tuple[float, float]:
    return -math.inf if test.low is None else test.low, math.inf if test.high is None else test.high


def _log_ends(test: registry.Passes | registry.Time) -> tuple[float, float]:
    return (math.log(test.low) if test.low else -math.inf), (math.inf if test.high is None else math.log(test.high))


def _pairs(case: Case, arm: str, reference: str) -> dict[Cell, list[tuple[Row, Row]]]:
    """Rows of arm and reference by cell, paired by seed.

    Raises:
        NotTestableError: an arm has no run.
    """
    by_key: dict[str, dict[tuple[Cell, int], Row]] = defaultdict(dict)
    for row in case.results.rows(_TABLE):
        by_key[row["arm"]][(row["backbone"], row["algorithm"]), row["seed"]] = row
    for name in (arm, reference):
        if not by_key[name]:
            raise NotTestableError(f"the results have no arm {name}")
    pairs: dict[Cell, list[tuple[Row, Row]]] = defaultdict(list)
    for key in sorted(set(by_key[arm]) & set(by_key[reference])):
        pairs[key[0]].append((by_key[arm][key], by_key[reference][key]))
    return pairs


def _pointers(pairs: list[tuple[Row, Row]]) -> tuple[Pointer, ...]:
    return tuple((_TABLE, row["#"]) for pair in pairs for row in pair)


def _log_time_ratios(pairs: list[tuple[Row, Row]], stage: str) -> list[float] | None:
    """log(arm / reference) by seed; the table holds both over the study's own reference. None: a time is unknown."""
    column = _TIME_RATIOS[stage]
    if not all(row[column] for pair in pairs for row in pair):
        return None
    return [math.log(arm[column] / reference[column]) for arm, reference in pairs]


def time(test: registry.Time, case: Case) -> Part:
    """Time ratios of every cell of the scope lie where the claim says."""
    runs = _pairs(case, test.arm, test.reference)
    low, high = _log_ends(test)
    parts = []
    for cell in case.cells(test.arm):
        name = f"{cell_name(cell)}: {test.stage} time of {test.arm} over {test.reference}"
        ratios = _log_time_ratios(runs[cell], test.stage)
        if ratios is None:
            parts.append(missing(name, _UNKNOWN))
        else:
            parts.append(of_seeds(name, ratios, low, high, pointers=_pointers(runs[cell]), log=True))
    return All(tuple(parts))


_UNKNOWN = "the time of a run is not known"


def time_order(test: registry.TimeOrder, case: Case) -> Part:
    """On every backbone the time ratio is lower under one algorithm; runs of one seed are taken as a pair."""
    runs = _pairs(case, test.arm, test.reference)
    cells = set(case.cells(test.arm))
    parts = []
    for backbone in case.backbones:
        both = [(backbone, test.lower), (backbone, test.higher)]
        if not cells.issuperset(both):
            continue
        one, other = ({arm["seed"]: (arm, reference) for arm, reference in runs[cell]} for cell in both)
        shared = sorted(set(one) & set(other))
        lower, higher = (_log_time_ratios([side[seed] for seed in shared], test.stage) for side in (one, other))
        pointers = _pointers([pair for seed in shared for pair in (one[seed], other[seed])])
        name = f"{backbone}: {test.stage} time ratio under {test.lower} over that under {test.higher}"
        if lower is None or higher is None:
            parts.append(missing(name, _UNKNOWN))
            continue
        changes = [below - above for below, above in zip(lower, higher)]
        parts.append(of_seeds(name, changes, high=0.0, pointers=pointers, log=True))
    if not parts:
        raise NotTestableError(f"no backbone has both {test.lower} and {test.higher}")
    return All(tuple(parts))


def window_sweep(test: registry.WindowSweep, case: Case) -> Part:
    """Between arms, or algorithms, that differ in W alone, the reduction of passes grows as W does."""
    study = case.results.study
    if study is None:
        raise NotTestableError("the tables stand without their study's record, so their windows are not known")
    if test.arm not in study.arms:
        raise NotTestableError(f"the results have no arm {test.arm}")
    like = {"window": None}
    arms = [
        name
        for name, arm in study.arms.items()
        if arm.model_copy(update=like) == study.arms[test.arm].model_copy(update=like)
    ]
    runs = {name: _pairs(case, name, test.reference) for name in arms}
    groups: dict[tuple[str, str], dict[int, tuple[Row, Row]]] = defaultdict(dict)
    for cell in case.cells(test.arm):
        for name in arms:
            settings = study.arms[name].applied_to(study.algorithms[cell[1]]).model_dump(mode="json")
            window = settings.pop("window")
            if runs[name][cell] and all(_counted(row) for row in runs[name][cell][0]):
                groups[cell[0], str(sorted(settings.items()))][window] = runs[name][cell][0]
    parts = []
    for (backbone, _), pairs in groups.items():
        for small, large in pairwise(sorted(pairs)):
            gains = [_per_trajectory(pairs[window][1]) / _per_trajectory(pairs[window][0]) for window in (small, large)]
            name = f"{backbone}: gain at W = {large} over gain at W = {small}, divided by {large}/{small}"
            growth = gains[1] / gains[0] / (large / small)
            pointers = _pointers([pairs[small], pairs[large]])
            parts.append(Quantity(name, growth, 1 - test.tolerance, 1 + test.tolerance, pointers=pointers))
    if not parts:
        raise NotTestableError("no two arms or algorithms of the study differ in their window alone")
    return All(tuple(parts))


def ledger(test: registry.Ledger, case: Case) -> Part:
    """In every run the counted backward passes are those of the closed form, or as near as drawn passes must be."""
    cells = set(case.cells())
    rows = [row for row in case.results.rows(_TABLE) if (row["backbone"], row["algorithm"]) in cells]
    parts = []
    for row in rows:
        name = "{backbone}/{algorithm}/{arm}/seed-{seed}: counted - expected backward passes".format(**row)
        counts = row["backward_passes"], row["backward_passes_expected"]
        reach = _reach_of_draws(case, row)
        if None in counts or reach is None:
            parts.append(missing(name, "the table has no count"))
        else:
            parts.append(
                Quantity(name, float(counts[0] - counts[1]), 0.0 - reach, reach, pointers=((_TABLE, row["#"]),))
            )
    if not parts:
        raise NotTestableError("no run of these cells")
    return All(tuple(parts))


def _reach_of_draws(case: Case, row: Row) -> float | None:
    """How far a count may lie from the closed form, in backward passes: 0 unless the arm draws its passes.

    Hoeffding's inequality at _CHANCE for one draw of 0 or 1 pass in each window and training step, shared by the step's
    images. None where the table lacks the counts that this takes.
    """
    study = case.results.study
    arm = study.arms.get(row["arm"]) if study else None
    if study is None or arm is None or not arm.draws_passes:
        return 0.0
    if not row["trajectories"] or not row["trained_steps"] or row["windows_approximate"] is None:
        return None
    images = row["trajectories"] / row["trained_steps"]
    evaluations = study.backbones[row["backbone"]].guidance.evaluations_per_velocity
    draws = row["windows_approximate"] / images
    return float(evaluations * images * math.sqrt(draws * math.log(2 / _CHANCE) / 2))
