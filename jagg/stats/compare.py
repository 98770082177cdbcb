"""Paired differences of every arm with the reference, as the table of the contract."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from jagg.errors import InputError, unknown_name
from jagg.records import PAIRED_DIFFERENCES, table_of
from jagg.stats.equivalence import also, equivalence_p, noninferiority_p, verdict
from jagg.stats.estimates import MAX_ENUMERATED_SEEDS, Estimate, SignFlip, mean_over_cells, paired_t, sign_flip
from jagg.stats.join import Cell, Joined, SeedScore, join_scores, read_scores
from jagg.stats.multiplicity import holm
from jagg.stats.power import seeds_for_equivalence, seeds_to_detect, smallest_detectable

POOLED = "pooled"
_ROUNDING = 1e-13


@dataclass(frozen=True)
class Comparison:
    """One arm against the reference in one cell (or pooled), metric and checkpoint."""

    cell: Cell
    metric: str
    step: int
    arm: str
    differences: dict[int, float]
    mean_reference: float | None
    mean_arm: float | None
    estimate: Estimate
    flips: SignFlip
    num_prompts: int | None
    num_images: int | None
    notes: list[str] = field(default_factory=list)


@np.errstate(over="ignore", invalid="ignore")  # what overflows is not finite, and a note says so
def compare(
    scores: pa.Table,
    *,
    reference: str,
    arms: Collection[str] | None = None,
    level: float = 0.95,
    margins: Mapping[str, float] | None = None,
    optimised_metrics: Collection[str] | None = None,
) -> pa.Table:
    """Paired differences arm - reference per cell, metric and checkpoint, then pooled over cells.

    The seed is the unit of replication: a seed's score is the mean over prompts of the mean over images, and
    differences are taken within (seed, prompt, image); a higher score is better. Only seeds that both arms have are
    used; the others are named in `note`. `p_holm` corrects over the cells and metrics of an arm at the last checkpoint
    of each cell that the two arms share, one test a cell and metric whether it could be done or not; other rows are
    exploratory.

    Args:
        scores: long table with the columns of `SCORES` (signature and environment may be missing), in any row order.
        arms: arms to compare; default all but the reference.
        level: level of the intervals, which the verdicts follow from.
        margins: metric -> margin of equivalence and non-inferiority, in the metric's unit.
        optimised_metrics: metrics that are part of the training reward; None leaves `role` empty.

    Returns:
        A table of schema `PAIRED_DIFFERENCES`.

    Raises:
        InputError: no rows, an unknown arm or metric, duplicate rows, prompts or images of a shared seed that do not
            match, or units, scorers, environments or signatures that differ.
    """
    if not len(scores):
        raise InputError("nothing to compare", where="the scores", expected="one row an image and metric", got="none")
    known = scores.column("arm").unique().to_pylist()
    names = sorted(set(known) - {reference}) if arms is None else list(dict.fromkeys(arms))
    if reference in names or not names:
        raise InputError("nothing to compare", where="arms", expected=f"arms other than {reference}", got=names)
    joined = join_scores(scores, [reference, *names])
    margins = margins or {}
    metrics = scores.column("metric").unique().to_pylist()
    for where, given in (("margins", margins), ("optimised metrics", optimised_metrics or ())):
        for metric in given:
            if metric not in metrics:
                raise unknown_name("metric", metric, metrics, where=where)
    rows: list[dict[str, Any]] = []
    for arm in names:
        comparisons = _cells(joined, arm, reference, level)
        family, family_size = _family_p(comparisons)
        comparisons += _pooled(comparisons, level)
        for comparison in comparisons:
            metric = comparison.metric
            row = _row(comparison, reference, level, margins.get(metric))
            row["role"] = None if optimised_metrics is None else _role(metric, optimised_metrics)
            key = (comparison.cell, metric, comparison.step)
            row["p_holm"] = family.get(key)
            row["family_size"] = family_size if key in family else None
            rows.append(row)
    return table_of(rows, PAIRED_DIFFERENCES)


def compare_files(
    scores: Sequence[Path],
    *,
    reference: str,
    arms: Collection[str] | None = None,
    level: float = 0.95,
    margins: Mapping[str, float] | None = None,
    optimised: Collection[str] | None = None,
) -> pa.Table:
    """`compare` on long tables in files, CSV or parquet.

    Raises:
        InputError: as `compare`, or a table is missing, truncated, or lacks a column.
    """
    return compare(
        read_scores(scores), reference=reference, arms=arms, level=level, margins=margins, optimised_metrics=optimised
    )


def _role(metric: str, optimised_metrics: Collection[str]) -> str:
    return "optimised" if metric in optimised_metrics else "held_out"


def _cells(joined: Joined, arm: str, reference: str, level: float) -> list[Comparison]:
    places = sorted({place[:3] for place in joined.scores if place[3] in (arm, reference)})
    return [_compare_place(joined, place, arm, reference, level) for place in places]


def _compare_place(joined: Joined, place: tuple[Cell, str, int], arm: str, reference: str, level: float) -> Comparison:
    ours = joined.scores.get((*place, arm), {})
    theirs = joined.scores.get((*place, reference), {})
    shared = sorted(set(ours) & set(theirs))
    for seed in shared:
        _check_items(joined, place, seed, {arm: ours[seed], reference: theirs[seed]})
    arm_scores = np.array([ours[seed].value for seed in shared])
    reference_scores = np.array([theirs[seed].value for seed in shared])
    differences = arm_scores - reference_scores
    scale = float(np.abs(np.concatenate([arm_scores, reference_scores])).max()) if shared else 0.0
    estimate = paired_t(differences, level, resolution=_ROUNDING * scale)
    first = ours[shared[0]] if shared else None
    return Comparison(
        *place,
        arm,
        dict(zip(shared, differences.tolist())),
        _mean(reference_scores),
        _mean(arm_scores),
        estimate,
        sign_flip(differences),
        first.num_prompts if first else None,
        len(first.items) if first else None,
        _seed_notes(ours, theirs, arm, reference),
    )


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) and np.isfinite(values).all() else None


def _check_items(joined: Joined, place: tuple[Cell, str, int], seed: int, scores: dict[str, SeedScore]) -> None:
    (arm, ours), (reference, theirs) = scores.items()
    if np.array_equal(ours.items, theirs.items):
        return
    cell, metric, step = place
    gaps = []
    for name, mine, other in ((arm, ours, theirs), (reference, theirs, ours)):
        prompts = sorted(joined.prompts_of(mine.items) - joined.prompts_of(other.items))
        extra = prompts or joined.items(np.setdiff1d(mine.items, other.items))
        if extra:
            more = f" and {len(extra) - 10} more" if len(extra) > 10 else ""
            gaps.append(f"only in {name}: {', '.join(extra[:10])}{more}")
    raise InputError(
        "prompts or images of one seed do not match between arms",
        where=f"{'/'.join(cell)}, {metric}, step {step}, seed {seed}",
        expected=f"the same prompts and images in {arm} and {reference}",
        got="; ".join(gaps),
        fix="score the missing images",
    )


def _seed_notes(ours: dict[int, SeedScore], theirs: dict[int, SeedScore], arm: str, reference: str) -> list[str]:
    notes = []
    for name, mine, other in ((arm, ours, theirs), (reference, theirs, ours)):
        alone = sorted(set(mine) - set(other))
        if alone:
            notes.append(f"left out, only in {name}: seeds {', '.join(map(str, alone))}")
        if len(mine) == 1 and len(other) > 1:
            notes.append(f"{name} has a single seed")
        broken = [seed for seed in sorted(mine) if not np.isfinite(mine[seed].value)]
        if broken:
            notes.append(f"not finite in {name}: seeds {', '.join(map(str, broken))}")
    return notes if set(ours) & set(theirs) else ["no shared seed", *notes]


def _family_p(comparisons: list[Comparison]) -> tuple[dict[tuple[Cell, str, int], float | None], int]:
    """Holm-corrected p of every cell and metric at the cell's last shared checkpoint, and the size of that family."""
    last: dict[Cell, int] = {}
    for comparison in comparisons:
        if comparison.differences:
            last[comparison.cell] = max(comparison.step, last.get(comparison.cell, 0))
    family = [comparison for comparison in comparisons if last.get(comparison.cell) == comparison.step]
    size = len({comparison.cell for comparison in comparisons}) * len({comparison.metric for comparison in comparisons})
    corrected = holm([comparison.estimate.p_value for comparison in family], size)
    return {(c.cell, c.metric, c.step): p for c, p in zip(family, corrected)}, size


def _pooled(comparisons: list[Comparison], level: float) -> list[Comparison]:
    """Unweighted means over all cells, where there is more than one; sign flips act on whole seeds."""
    cells = {comparison.cell for comparison in comparisons}
    places = sorted({(comparison.metric, comparison.step) for comparison in comparisons})
    pooled = []
    for metric, step in places if len(cells) > 1 else []:
        group = [comparison for comparison in comparisons if (comparison.metric, comparison.step) == (metric, step)]
        lacking = cells - {comparison.cell for comparison in group if comparison.estimate.estimable}
        notes = [f"not estimable in {', '.join(sorted('/'.join(cell) for cell in lacking))}"] if lacking else []
        complete = {comparison.cell for comparison in group} == cells
        seeds = sorted(set.intersection(*(set(comparison.differences) for comparison in group)))
        means = np.array([np.mean([comparison.differences[seed] for comparison in group]) for seed in seeds])
        estimate = mean_over_cells([comparison.estimate for comparison in group], level)
        if not complete:
            estimate = Estimate(None, method=estimate.method, reason="a cell has no such checkpoint")
        pooled.append(
            Comparison(
                (POOLED, POOLED),
                metric,
                step,
                group[0].arm,
                dict(zip(seeds, means.tolist())),
                _mean_known([comparison.mean_reference for comparison in group]) if complete else None,
                _mean_known([comparison.mean_arm for comparison in group]) if complete else None,
                estimate,
                sign_flip(means) if complete else SignFlip(None, None, None),
                None,
                None,
                [f"mean over {len(cells)} cells", *notes],
            )
        )
    return pooled


def _mean_known(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else float(np.mean(known))  # type: ignore[arg-type]


def _row(comparison: Comparison, reference: str, level: float, margin: float | None) -> dict[str, Any]:
    estimate, flips, n = comparison.estimate, comparison.flips, len(comparison.differences)
    needed, note = _seeds_needed(estimate, margin, level, n)
    notes = [*comparison.notes, also(estimate, margin), note]
    if not estimate.estimable and "no shared seed" not in comparison.notes:
        notes.insert(0, f"not estimable: {estimate.reason}")
    if n > MAX_ENUMERATED_SEEDS:
        notes.append(f"sign-flip test not enumerated above {MAX_ENUMERATED_SEEDS} seeds")
    alpha = 1 - level
    return {
        "backbone": comparison.cell[0],
        "algorithm": comparison.cell[1],
        "metric": comparison.metric,
        "step": comparison.step,
        "arm": comparison.arm,
        "reference": reference,
        "num_seeds": n,
        "mean_reference": comparison.mean_reference,
        "mean_arm": comparison.mean_arm,
        "difference": estimate.mean,
        "sd_difference": estimate.sd,
        "ci_low": estimate.ci_low,
        "ci_high": estimate.ci_high,
        "ci_level": level if estimate.estimable else None,
        "ci_method": estimate.method if estimate.estimable else None,
        "p_value": estimate.p_value,
        "sign_flip_p": flips.p_value,
        "sign_flip_floor": flips.floor,
        "sign_flip_arrangements": flips.arrangements,
        "margin": margin,
        "p_noninferiority": None if margin is None else noninferiority_p(estimate, margin),
        "p_equivalence": None if margin is None else equivalence_p(estimate, -margin, margin),
        "verdict": verdict(estimate, margin),
        "smallest_detectable": _smallest_detectable(estimate, alpha),
        "seeds_needed": needed,
        "num_prompts": comparison.num_prompts,
        "num_images": comparison.num_images,
        "note": "; ".join(part for part in notes if part),
    }


def _smallest_detectable(estimate: Estimate, alpha: float) -> float | None:
    if estimate.standard_error is None or estimate.df is None:
        return None
    return smallest_detectable(estimate.standard_error, estimate.df, alpha)


def _seeds_needed(estimate: Estimate, margin: float | None, level: float, num_seeds: int) -> tuple[int | None, str]:
    """Seeds that a claim would need (see `PAIRED_DIFFERENCES`), and a note where these cannot test the margin."""
    if estimate.sd is None or estimate.mean is None:
        return None, ""
    if margin is None:
        return seeds_to_detect(estimate.sd, estimate.mean, 1 - level), ""
    needed = seeds_for_equivalence(estimate.sd, margin, (1 - level) / 2)
    if needed is not None and needed <= num_seeds:
        return needed, ""
    return needed, f"these {num_seeds} seeds cannot be expected to show equivalence within {margin:g}"
