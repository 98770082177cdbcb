"""Every arm paired with the reference by seed, cell by cell, and pooled over cells."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from jagg.errors import InputError
from jagg.stats.aggregation import EQUAL_WEIGHT, POOLED_PROMPTS, group_sizes
from jagg.stats.crossed import METHOD as CROSSED
from jagg.stats.crossed import crossed
from jagg.stats.design import Design
from jagg.stats.estimates import Estimate, Seeds, SignFlip, mean_over_cells, paired_t, rounding_spread, sign_flip, welch
from jagg.stats.join import Cell, Joined, SeedScore

POOLED = "pooled"
POOLED_CELL: Cell = (POOLED, POOLED)
OVER_CELLS = "t, paired by seed, of the mean over cells"
Place = tuple[Cell, str, int]


@dataclass(frozen=True)
class ByPrompt:
    """Differences by seed and prompt, where every seed has the same prompts; `prompts` are codes of one `Joined`."""

    prompts: np.ndarray
    differences: Float64[np.ndarray, "seeds prompts"]


@dataclass(frozen=True)
class Comparison:
    """One arm against the reference in one cell (or pooled), metric and checkpoint, over the seeds that both have."""

    cell: Cell
    metric: str
    step: int
    arm: str
    seeds: tuple[int, ...]
    arm_scores: Seeds
    reference_scores: Seeds
    estimate: Estimate
    unpaired: Estimate
    by_prompt: ByPrompt | None
    num_seeds: int
    mean_reference: float | None
    mean_arm: float | None
    num_prompts: int | None = None
    num_images: int | None = None
    notes: list[str] = field(default_factory=list)
    num_seeds_each: int | None = None
    """Seeds of the smallest cell, where cells that share no seed are pooled."""
    floor: float | None = None
    """How far from 0 other noise alone can put the difference here; None: not measured."""
    group_sizes: dict[str, int] = field(default_factory=dict)
    """Group -> number of its prompts in a seed; empty where prompts have no groups."""
    aggregation: str = POOLED_PROMPTS

    @property
    def is_weighted(self) -> bool:
        """Whether prompts count differently, by the size of their group."""
        return self.aggregation == EQUAL_WEIGHT and len(set(self.group_sizes.values())) > 1

    @property
    def place(self) -> Place:
        return self.cell, self.metric, self.step

    @property
    def differences(self) -> Seeds:
        return self.arm_scores - self.reference_scores

    @cached_property
    def flips(self) -> SignFlip:
        paired = len(self.seeds) or self.cell != POOLED_CELL
        return sign_flip(self.differences) if paired else SignFlip(None, None, None)

    def crossed(self, level: float) -> Estimate:
        """The interval for other seeds and other prompts."""
        if self.by_prompt is None:
            return Estimate(None, method=CROSSED, reason="seeds do not share their prompts")
        if self.is_weighted:
            # Its mean squares are those of prompts that count alike.
            return Estimate(None, method=CROSSED, reason="groups of unequal size have equal weight")
        return crossed(self.by_prompt.differences, level, rounding_spread(self.arm_scores, self.reference_scores))

    @property
    def leave_one_seed_out(self) -> tuple[float | None, float | None]:
        """Lowest and highest mean difference with one seed left out."""
        differences, n = self.differences, len(self.seeds)
        if n < 2 or not np.isfinite(differences).all():
            return None, None
        means = (differences.sum() - differences) / (n - 1)
        return float(means.min()), float(means.max())

    @property
    def seed_correlation(self) -> float | None:
        """Correlation of the arms' scores over seeds, from three seeds on; above 0 pairing narrows the interval."""
        arm, reference = self.arm_scores, self.reference_scores
        if len(self.seeds) < 3 or not np.isfinite(self.differences).all():
            return None
        if min(np.ptp(arm), np.ptp(reference)) <= rounding_spread(arm, reference):
            return None
        scale = max(np.abs(arm).max(), np.abs(reference).max())
        return float(np.corrcoef(arm / scale, reference / scale)[0, 1])


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) and np.isfinite(values).all() else None


def compare_arm(joined: Joined, arm: str, design: Design) -> list[Comparison]:
    """An arm against the reference in every cell, metric and checkpoint, then pooled where there are several cells.

    Raises:
        InputError: prompts or images of a shared seed do not match.
    """
    places = sorted({place[:3] for place in joined.scores if place[3] in (arm, design.reference)})
    cells = [_compare_place(joined, place, arm, design) for place in places]
    return cells + _pooled(cells, design)


def _compare_place(joined: Joined, place: Place, arm: str, design: Design) -> Comparison:
    reference = design.reference
    ours = joined.scores.get((*place, arm), {})
    theirs = joined.scores.get((*place, reference), {})
    shared = sorted(set(ours) & set(theirs))
    for seed in shared:
        _check_items(joined, place, seed, {arm: ours[seed], reference: theirs[seed]})
    arm_scores = np.array([ours[seed].value for seed in shared])
    reference_scores = np.array([theirs[seed].value for seed in shared])
    resolution = rounding_spread(arm_scores, reference_scores)
    all_ours, all_theirs = (np.array([score.value for score in scores.values()]) for scores in (ours, theirs))
    return Comparison(
        *place,
        arm,
        tuple(shared),
        arm_scores,
        reference_scores,
        paired_t(arm_scores - reference_scores, design.level, resolution=resolution),
        welch(all_ours, all_theirs, design.level, resolution=rounding_spread(all_ours, all_theirs)),
        _by_prompt(ours, theirs, shared),
        len(shared),
        _mean(reference_scores),
        _mean(arm_scores),
        len(ours[shared[0]].prompts) if shared else None,
        len(ours[shared[0]].items) if shared else None,
        _seed_notes(ours, theirs, arm, reference),
        group_sizes=group_sizes(joined.groups[code] for code in ours[shared[0]].prompts) if shared else {},
        aggregation=design.aggregation,
    )


def _by_prompt(ours: dict[int, SeedScore], theirs: dict[int, SeedScore], shared: list[int]) -> ByPrompt | None:
    if not shared or any(not np.array_equal(ours[seed].prompts, ours[shared[0]].prompts) for seed in shared):
        return None
    differences = np.stack([ours[seed].by_prompt - theirs[seed].by_prompt for seed in shared])
    return ByPrompt(ours[shared[0]].prompts, differences)


def _check_items(joined: Joined, place: Place, seed: int, scores: dict[str, SeedScore]) -> None:
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


def _pooled(comparisons: list[Comparison], design: Design) -> list[Comparison]:
    """Unweighted means over all cells, where there is more than one.

    Cells of one seed share prompts and noise, so their differences are correlated and the seed is the unit: the mean
    over cells is taken within each seed first, and the interval is the paired t of these means. Only where no seed
    stands in two cells, or cells are declared independent, are the cells' own variances added (Welch-Satterthwaite).
    """
    cells = {comparison.cell for comparison in comparisons}
    groups: dict[tuple[str, int], list[Comparison]] = {}
    for comparison in comparisons:
        groups.setdefault((comparison.metric, comparison.step), []).append(comparison)
    pooled = []
    for _, group in sorted(groups.items()) if len(cells) > 1 else ():
        lacking = cells - {comparison.cell for comparison in group if comparison.seeds}
        if lacking:
            pooled.append(_incomplete(group, lacking))
        elif design.independent_cells or _disjoint(group):
            pooled.append(_over_independent_cells(group, design))
        else:
            pooled.append(_over_shared_seeds(group, design))
    return pooled


def _disjoint(group: list[Comparison]) -> bool:
    seeds = [seed for comparison in group for seed in comparison.seeds]
    return len(set(seeds)) == len(seeds)


def _over_shared_seeds(group: list[Comparison], design: Design) -> Comparison:
    seeds = tuple(sorted(set.intersection(*(set(comparison.seeds) for comparison in group))))
    rows = [[comparison.seeds.index(seed) for seed in seeds] for comparison in group]
    arm, reference = (
        np.mean([scores[chosen] for scores, chosen in zip(side, rows)], axis=0)
        for side in ([c.arm_scores for c in group], [c.reference_scores for c in group])
    )
    resolution = rounding_spread(arm, reference)
    alone = sorted({seed for comparison in group for seed in comparison.seeds} - set(seeds))
    notes = [f"left out, not in every cell: seeds {', '.join(map(str, alone))}"] if alone else []
    return _pooled_comparison(
        group,
        replace(paired_t(arm - reference, design.level, resolution=resolution), method=OVER_CELLS),
        notes,
        seeds=seeds,
        arm_scores=arm,
        reference_scores=reference,
        unpaired=welch(arm, reference, design.level, resolution=resolution),
        by_prompt=_mean_by_prompt(group, rows),
        num_seeds=len(seeds),
        mean_reference=_mean(reference),
        mean_arm=_mean(arm),
    )


def _mean_by_prompt(group: list[Comparison], rows: list[list[int]]) -> ByPrompt | None:
    known = [comparison.by_prompt for comparison in group if comparison.by_prompt is not None]
    if len(known) < len(group) or any(not np.array_equal(part.prompts, known[0].prompts) for part in known):
        return None
    return ByPrompt(known[0].prompts, np.mean([part.differences[chosen] for part, chosen in zip(known, rows)], axis=0))


def _over_independent_cells(group: list[Comparison], design: Design) -> Comparison:
    """The seeds of all cells are replicates: no seed is a unit over cells, so nothing here is done by seed."""
    lacking = [comparison.cell for comparison in group if not comparison.estimate.estimable]
    notes = ["cells share no seed"]
    if lacking:
        notes.append(f"not estimable in {', '.join('/'.join(cell) for cell in sorted(lacking))}")
    return _pooled_comparison(
        group,
        mean_over_cells([comparison.estimate for comparison in group], design.level),
        notes,
        num_seeds=sum(comparison.num_seeds for comparison in group),
        num_seeds_each=min(comparison.num_seeds for comparison in group),
        mean_reference=_mean_known([comparison.mean_reference for comparison in group]),
        mean_arm=_mean_known([comparison.mean_arm for comparison in group]),
    )


def _incomplete(group: list[Comparison], lacking: set[Cell]) -> Comparison:
    where = ", ".join("/".join(cell) for cell in sorted(lacking))
    estimate = Estimate(None, method=OVER_CELLS, reason="a cell has no pair of runs at this checkpoint")
    return _pooled_comparison(group, estimate, [f"not estimable in {where}"])


def _mean_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


_NONE = np.array([])
_NO_PAIRS = Estimate(None, method="Welch t", reason="cells do not share seeds")


def _pooled_comparison(
    group: list[Comparison],
    estimate: Estimate,
    notes: list[str],
    *,
    seeds: tuple[int, ...] = (),
    arm_scores: np.ndarray = _NONE,
    reference_scores: np.ndarray = _NONE,
    unpaired: Estimate = _NO_PAIRS,
    by_prompt: ByPrompt | None = None,
    num_seeds: int = 0,
    num_seeds_each: int | None = None,
    mean_reference: float | None = None,
    mean_arm: float | None = None,
) -> Comparison:
    return Comparison(
        POOLED_CELL,
        group[0].metric,
        group[0].step,
        group[0].arm,
        seeds,
        arm_scores,
        reference_scores,
        estimate,
        unpaired,
        by_prompt,
        num_seeds,
        mean_reference,
        mean_arm,
        notes=[f"mean over {len(group)} cells", *notes],
        group_sizes=group[0].group_sizes if all(c.group_sizes == group[0].group_sizes for c in group) else {},
        aggregation=group[0].aggregation,
        num_seeds_each=num_seeds_each,
    )
