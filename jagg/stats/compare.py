"""Paired differences of every arm with the reference, as the table of the contract."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jagg.errors import InputError
from jagg.records import PAIRED_DIFFERENCES, table_of
from jagg.stats.aggregation import POOLED_PROMPTS
from jagg.stats.curves import curve_rows
from jagg.stats.design import Design
from jagg.stats.equivalence import Margin, also, equivalence_p, noninferiority_p, verdict
from jagg.stats.estimates import MAX_ENUMERATED_SEEDS, Estimate, at_level
from jagg.stats.families import EXPLORATORY, Membership, declared_family
from jagg.stats.join import Cell, Joined, join_scores, read_scores
from jagg.stats.pairs import POOLED, Comparison, Place, compare_arm
from jagg.stats.power import seeds_for_equivalence, seeds_to_detect, smallest_detectable
from jagg.stats.preference import with_win_probability
from jagg.stats.scales import Scale
from jagg.stats.tables import CURVES

__all__ = ["POOLED", "Compared", "compare", "compare_arms", "compare_files"]


@dataclass(frozen=True)
class Compared:
    """Every comparison of every arm, and the tables that follow."""

    design: Design
    arms: dict[str, list[Comparison]]
    joined: Joined

    @np.errstate(over="ignore", invalid="ignore")  # what overflows is not finite, and a note says so
    def differences(self) -> pa.Table:
        """The table of schema `PAIRED_DIFFERENCES`."""
        return table_of((row for arm in self.arms.values() for row in self._rows(arm)), PAIRED_DIFFERENCES)

    def curves(self) -> pa.Table:
        """The table of schema `CURVES`."""
        return table_of((row for arm in self.arms.values() for row in curve_rows(arm, self.design)), CURVES)

    def _rows(self, comparisons: list[Comparison]) -> Iterable[dict[str, Any]]:
        members, total = declared_family(comparisons, self.design.primary)
        gains = _reference_gains(comparisons)
        for comparison in comparisons:
            place = comparison.place
            scale = self.joined.scales[comparison.metric]
            num_arms = len(set(self.arms) - {self.design.aa_arm})
            extra = _Context(members.get(place), total, gains.get(place), num_arms, scale)
            yield _row(comparison, self.design, extra)


@np.errstate(over="ignore", invalid="ignore")
def compare_arms(scores: pa.Table, design: Design, arms: Collection[str] | None = None) -> Compared:
    """Pair arms with the reference by seed; arguments and errors as `compare`."""
    names = design.arms_of(scores, arms)
    extra = [design.aa_arm] if design.aa_arm is not None and design.aa_arm not in names else []
    joined = join_scores(scores, [design.reference, *names, *extra], design.aggregation)
    compared = {arm: compare_arm(joined, arm, design) for arm in [*names, *extra]}
    floors = _floors(compared[design.aa_arm]) if design.aa_arm is not None else {}
    floored = {arm: [replace(each, floor=floors.get(each.place)) for each in compared[arm]] for arm in names}
    return Compared(design, floored, joined)


def compare(
    scores: pa.Table,
    *,
    reference: str,
    arms: Collection[str] | None = None,
    level: float = 0.95,
    margins: Mapping[str, float | Margin] | None = None,
    optimised_metrics: Collection[str] | None = None,
    primary_metric: str | None = None,
    independent_cells: bool = False,
    aa_arm: str | None = None,
    aggregation: str = POOLED_PROMPTS,
) -> pa.Table:
    """Paired differences arm - reference per cell, metric and checkpoint, then pooled over cells.

    The seed is the unit of replication: a seed's score is the mean over prompts of the mean over images, and
    differences are taken within (seed, prompt, image); a higher score is better. Only seeds that both arms have are
    used; the others are named in `note`. Pooled rows: `jagg.stats.pairs`; families: `jagg.stats.families`, one an arm.
    Percentile and BCa bootstraps are not offered at any number of seeds: below 10 they are far too short, and above
    they add nothing to the t interval of a mean.

    Args:
        scores: long table with the columns of `SCORES` (signature, environment and prompt_group may be missing), in any
            row order.
        arms: arms to compare; default all but the reference.
        level, margins, optimised_metrics, primary_metric, independent_cells, aa_arm, aggregation: as in `Design`.

    Returns:
        A table of schema `PAIRED_DIFFERENCES`.

    Raises:
        InputError: no rows, an unknown arm or metric, duplicate rows, prompts or images of a shared seed that do not
            match, units that do not convert, or scorers, environments, signatures or prompt groups that differ.
    """
    design = Design(
        reference, level, margins or {}, optimised_metrics, primary_metric, independent_cells=independent_cells,
        aa_arm=aa_arm, aggregation=aggregation,
    )  # fmt: skip
    return compare_arms(scores, design, arms).differences()


def compare_files(
    scores: Sequence[Path],
    design: Design,
    arms: Collection[str] | None = None,
    *,
    whole_prompts: bool = False,
    picked_by: str | None = None,
) -> Compared:
    """`compare_arms` on long tables in files, CSV or parquet.

    Args:
        whole_prompts: leave out the prompts that a metric's scorer cuts.
        picked_by: compare also how probably this metric's model picks an arm's image over the reference's.

    Raises:
        InputError: as `compare`, a table is missing, truncated, or lacks a column, or it is not known which prompts are
            cut.
    """
    table = read_scores(scores)
    table = _uncut(table) if whole_prompts else table
    table = with_win_probability(table, picked_by, design.reference) if picked_by else table
    return compare_arms(table, design, arms)


def _uncut(scores: pa.Table) -> pa.Table:
    cut = scores.column("truncated")
    if cut.null_count:
        metrics = sorted(set(scores.filter(pc.is_null(cut)).column("metric").to_pylist()))
        raise InputError(
            "it is not known which prompts are cut",
            where="column truncated of the scores",
            expected="true or false in every row",
            got=f"rows without it, of {', '.join(metrics)}",
            fix="score the images with jagg score, which says so",
        )
    return scores.filter(pc.invert(cut))


def _floors(aa: list[Comparison]) -> dict[Place, float]:
    """How far from 0 the difference of the reference with itself may be: the farther end of its interval."""
    return {
        comparison.place: max(abs(low), abs(high))
        for comparison in aa
        if (low := comparison.estimate.ci_low) is not None and (high := comparison.estimate.ci_high) is not None
    }


def _reference_gains(comparisons: list[Comparison]) -> dict[Place, float]:
    """What the reference has gained since its first checkpoint, over the seeds that are compared at both."""
    first: dict[tuple[Cell, str], Comparison] = {}
    for comparison in sorted(comparisons, key=lambda c: c.step):
        first.setdefault((comparison.cell, comparison.metric), comparison)
    gains = {}
    for comparison in comparisons:
        start = first[comparison.cell, comparison.metric]
        shared = [seed for seed in comparison.seeds if seed in start.seeds]
        if comparison.step == start.step or not shared:
            continue
        now = comparison.reference_scores[[comparison.seeds.index(seed) for seed in shared]]
        then = start.reference_scores[[start.seeds.index(seed) for seed in shared]]
        if np.isfinite(now).all() and np.isfinite(then).all():
            gains[comparison.place] = float(now.mean() - then.mean())
    return gains


@dataclass(frozen=True)
class _Context:
    """What a row knows of the other rows."""

    member: Membership | None
    family_tests: int
    gain: float | None
    num_arms: int
    scale: Scale


def _row(comparison: Comparison, design: Design, context: _Context) -> dict[str, Any]:
    estimate, flips = comparison.estimate, comparison.flips
    margin = design.margin(comparison.metric)
    needed, seeds_note = _seeds_needed(comparison, margin, design)
    return {
        "backbone": comparison.cell[0],
        "algorithm": comparison.cell[1],
        "metric": comparison.metric,
        "role": design.role(comparison.metric),
        "step": comparison.step,
        "arm": comparison.arm,
        "reference": design.reference,
        "num_seeds": comparison.num_seeds,
        "mean_reference": comparison.mean_reference,
        "mean_arm": comparison.mean_arm,
        "difference": estimate.mean,
        "sd_difference": estimate.sd,
        "ci_low": estimate.ci_low,
        "ci_high": estimate.ci_high,
        "ci_level": design.level if estimate.estimable else None,
        "ci_method": estimate.method if estimate.estimable else None,
        "p_value": estimate.p_value,
        "sign_flip_p": flips.p_value,
        "sign_flip_floor": flips.floor,
        "sign_flip_arrangements": flips.arrangements,
        "margin": None if margin is None else -margin.low,
        "p_noninferiority": None if margin is None else noninferiority_p(estimate, -margin.low),
        "p_equivalence": None if margin is None or margin.one_sided else equivalence_p(estimate, *margin.bounds),
        "verdict": verdict(estimate, margin, comparison.floor),
        "smallest_detectable": _smallest_detectable(estimate, design.alpha),
        "seeds_needed": needed,
        "num_prompts": comparison.num_prompts,
        "num_images": comparison.num_images,
        "standard_error": estimate.standard_error,
        "df": estimate.df,
        "margin_low": None if margin is None else margin.low,
        "margin_high": None if margin is None or margin.one_sided else margin.high,
        "reference_gain": context.gain,
        "aa_floor": comparison.floor,
        "unit": context.scale.unit,
        "aggregation": design.aggregation,
        "prompt_groups": ", ".join(f"{name} {size}" for name, size in comparison.group_sizes.items()),
        "note": "; ".join(part for part in _notes(comparison, design, context, seeds_note) if part),
        **_family_columns(comparison, margin, design, context),
        **_sensitivity_columns(comparison, design.level),
    }


def _family_columns(comparison: Comparison, margin: Margin | None, design: Design, context: _Context) -> dict[str, Any]:
    """Tier, corrected p, and an interval that holds at once with those of all declared tests (Bonferroni)."""
    member, estimate = context.member, comparison.estimate
    if member is None:
        names = ("p_holm", "family_size", "family_tests", "ci_low_family", "ci_high_family", "verdict_family")
        return {**dict.fromkeys(names), "family": EXPLORATORY}
    low, high = at_level(estimate, 1 - design.alpha / context.family_tests)
    return {
        "family": member.family,
        "p_holm": member.p_holm,
        "family_size": member.size,
        "family_tests": context.family_tests,
        "ci_low_family": low,
        "ci_high_family": high,
        "verdict_family": verdict(replace(estimate, ci_low=low, ci_high=high), margin, comparison.floor),
    }


def _sensitivity_columns(comparison: Comparison, level: float) -> dict[str, Any]:
    """What other methods say of the same runs."""
    crossed, unpaired = comparison.crossed(level), comparison.unpaired
    low, high = comparison.leave_one_seed_out
    return {
        "ci_low_crossed": crossed.ci_low,
        "ci_high_crossed": crossed.ci_high,
        "df_crossed": crossed.df,
        "leave_one_seed_out_low": low,
        "leave_one_seed_out_high": high,
        "ci_low_unpaired": unpaired.ci_low,
        "ci_high_unpaired": unpaired.ci_high,
        "p_unpaired": unpaired.p_value,
        "seed_correlation": comparison.seed_correlation,
    }


def _notes(comparison: Comparison, design: Design, context: _Context, seeds_note: str) -> Iterable[str]:
    estimate, margin = comparison.estimate, design.margin(comparison.metric)
    if not estimate.estimable and "no shared seed" not in comparison.notes:
        yield f"not estimable: {estimate.reason}"
    yield from comparison.notes
    yield context.scale.note
    if comparison.is_weighted:
        yield "no crossed interval: groups of unequal size have equal weight"
    yield also(estimate, margin, comparison.floor)
    yield seeds_note
    if margin is not None and context.gain is not None and -margin.low > context.gain:
        yield f"margin exceeds what training gained ({context.gain:.4g})"
    yield _floor_note(comparison, design)
    if context.member is not None and context.num_arms > 1:
        yield f"the family holds the tests of this arm alone, of {context.num_arms} arms"
    if len(comparison.seeds) > MAX_ENUMERATED_SEEDS:
        yield f"sign-flip test not enumerated above {MAX_ENUMERATED_SEEDS} seeds"


def _floor_note(comparison: Comparison, design: Design) -> str:
    """What the A/A arm says of a row: it is the yardstick itself, or the row's difference is no larger than it."""
    estimate, floor = comparison.estimate, comparison.floor
    if design.aa_arm is None or estimate.mean is None or not estimate.estimable:
        return ""
    assert estimate.ci_low is not None
    assert estimate.ci_high is not None
    if comparison.arm == design.aa_arm:
        away = "" if estimate.ci_low <= 0 <= estimate.ci_high else ", and its interval leaves out 0: look for a cause"
        return f"A/A: the reference with other noise{away}"
    if floor is None:
        return "no A/A floor here: the A/A arm has no interval"
    if estimate.ci_low <= 0 <= estimate.ci_high or abs(estimate.mean) > floor:
        return ""
    word = "not an improvement: " if estimate.mean > 0 else ""
    return f"{word}no larger than what other noise does to the reference (A/A floor {floor:.4g})"


def _smallest_detectable(estimate: Estimate, alpha: float) -> float | None:
    if estimate.standard_error is None or estimate.df is None:
        return None
    return smallest_detectable(estimate.standard_error, estimate.df, alpha)


def _seeds_needed(comparison: Comparison, margin: Margin | None, design: Design) -> tuple[int | None, str]:
    """Seeds that a claim would need (see `PAIRED_DIFFERENCES`), and a note where these cannot test the margin."""
    estimate, each = comparison.estimate, comparison.num_seeds_each
    num_seeds = comparison.num_seeds if each is None else each
    if estimate.sd is None or estimate.mean is None:
        return None, ""
    if margin is None:
        return seeds_to_detect(estimate.sd, estimate.mean, design.alpha), ""
    needed = seeds_for_equivalence(estimate.sd, margin, design.alpha / 2)
    if needed is not None and needed <= num_seeds:
        return needed, ""
    would = "no number of seeds that the planner tries would" if needed is None else f"{needed} could"
    seeds = f"{num_seeds} seeds" + ("" if each is None else " of a cell")
    return needed, f"these {seeds} cannot be expected to show {margin.text}; {would}"
