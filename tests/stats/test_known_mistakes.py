"""Mistakes that others made with such tables, each with its own numbers, through the real comparison."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from test_compare import by_prompt, by_seed, rows_of, table

from jagg.cli.results import compare as compare_verb
from jagg.errors import InputError
from jagg.records import PAIRED_DIFFERENCES
from jagg.stats.tables import ATTRITION, COSTS, CURVES, EQUAL_COST


def paired(differences: list[float], **options: object) -> dict:
    """The one row of a comparison whose seeds have these differences from 0.3."""
    runs = {"baseline": dict.fromkeys(range(len(differences)), 0.3), "jagg": {}}
    runs["jagg"] = {seed: 0.3 + difference for seed, difference in enumerate(differences)}
    (row,) = rows_of(table(by_seed(runs)), **options)
    return row


def test_own_means_do_not_rank_arms_whose_seeds_overlap_in_part() -> None:
    """Own means 0.320 and 0.345, on the shared seed 0.340 and 0.330; with no shared seed nothing is said."""
    runs = {"baseline": {0: 0.300, 1: 0.340}, "jagg": {1: 0.330, 2: 0.360}}
    (row,) = rows_of(table(by_seed(runs)), margins={"hpsv2": 0.05}, optimised_metrics=["hpsv2"])
    assert row["difference"] == pytest.approx(-0.010)
    assert (row["num_seeds"], row["verdict"], row["verdict_family"]) == (1, "not-estimable", "not-estimable")
    assert (row["mean_reference"], row["mean_arm"]) == pytest.approx((0.340, 0.330))
    (row,) = rows_of(table(by_seed({"baseline": {0: 0.3, 1: 0.34}, "jagg": {2: 0.33, 3: 0.36}})))
    empty = ("difference", "mean_reference", "mean_arm", "ci_low", "p_value", "p_holm", "sign_flip_p", "verdict_family")
    assert [row[name] for name in empty] == [None] * len(empty)
    assert row["verdict"] == "not-estimable"


def test_one_run_against_five_names_the_single_side_and_has_no_spread() -> None:
    runs = {"baseline": {seed: 0.3 + 0.01 * seed for seed in range(5)}, "jagg": {0: 0.4}}
    (row,) = rows_of(table(by_seed(runs)))
    spreads = ("sd_difference", "standard_error", "ci_low", "ci_high", "ci_low_unpaired", "p_unpaired")
    assert [row[name] for name in spreads] == [None] * len(spreads)
    assert "jagg has a single seed" in row["note"]
    assert "baseline has a single seed" not in row["note"]


OFFSETS = np.array([-0.02, -0.01, 0.0, 0.01, 0.02])


def runs_by_prompts() -> np.ndarray:
    """5 runs x 150 prompts, run offsets -0.02 to 0.02, noise 0.02."""
    return OFFSETS[:, None] + 0.02 * np.random.default_rng(0).normal(size=(5, 150))


def test_runs_and_not_prompts_are_resampled_whatever_the_order_of_rows() -> None:
    differences = runs_by_prompts()
    rng = np.random.default_rng(1)
    resampled = [values[rng.integers(len(values), size=(4000, len(values)))].mean(axis=1)
                 for values in (differences.mean(axis=1), differences.mean(axis=0))]  # fmt: skip
    by_runs, by_prompts = (np.ptp(np.quantile(means, [0.025, 0.975])) for means in resampled)
    assert by_runs == pytest.approx(0.0236, abs=0.003)
    assert by_prompts == pytest.approx(0.0060, abs=0.003)
    rows = by_prompt(differences.tolist())
    shuffled = [rows[place] for place in np.random.default_rng(2).permutation(len(rows))]
    (row,) = rows_of(table(shuffled))
    assert (row["num_seeds"], row["num_prompts"]) == (5, 150)
    assert row["ci_high"] - row["ci_low"] > by_runs  # t, with a spread estimated from five runs
    assert row["ci_high_crossed"] - row["ci_low_crossed"] > 0.999 * (row["ci_high"] - row["ci_low"])


def test_a_matrix_without_labels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "matrix.csv"
    np.savetxt(path, runs_by_prompts().T, delimiter=",")
    with pytest.raises(InputError, match="lacks columns"):
        compare_verb([path], arm=["jagg"], reference="baseline", out=tmp_path)


def test_three_seeds_of_four_prompts_are_three_units() -> None:
    differences = np.array(
        [[0.016, 0.018, 0.017, 0.017], [0.006, 0.008, 0.007, 0.007], [-0.003, -0.001, -0.002, -0.002]]
    )
    flat = stats.ttest_1samp(differences.ravel(), 0)
    assert flat.pvalue == pytest.approx(0.0097, abs=5e-5)
    assert tuple(flat.confidence_interval()) == pytest.approx((0.00216, 0.01250), abs=6e-6)
    (row,) = rows_of(table(by_prompt(differences.tolist())))
    assert row["num_seeds"] == 3
    assert row["difference"] == pytest.approx(0.00733, abs=5e-6)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((-0.01628, 0.03094), abs=6e-6)
    assert row["p_value"] == pytest.approx(0.313, abs=5e-4)
    assert row["verdict"] == "inconclusive"


FIVE = [0.010, 0.012, 0.008, 0.011, 0.009]


def test_few_seeds_have_a_t_interval_and_no_bootstrap() -> None:
    row = paired(FIVE)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((0.008037, 0.011963), abs=5e-7)
    assert row["ci_method"] == "t, paired by seed"
    every = [*PAIRED_DIFFERENCES.names, *CURVES.names, *COSTS.names, *EQUAL_COST.names, *ATTRITION.names]
    assert not [name for name in every if any(word in name for word in ("bootstrap", "bca", "percentile"))]
    draws = np.random.default_rng(5).normal(size=(2000, 5))
    quantile = stats.t.ppf(0.975, 4)
    held = np.abs(draws.mean(axis=1)) <= quantile * draws.std(axis=1, ddof=1) / np.sqrt(5)
    index = np.stack(np.meshgrid(*[np.arange(5)] * 5, indexing="ij")).reshape(5, -1)
    ends = [np.quantile(draw[index].mean(axis=0), [0.025, 0.975]) for draw in draws[:500]]
    percentile = np.mean([low <= 0 <= high for low, high in ends])
    assert 0.935 <= held.mean() <= 0.965
    assert percentile < 0.9  # the reason why none is offered


@pytest.mark.parametrize("scale", [1000.0, 1e-6])
def test_an_interval_does_not_depend_on_the_unit(scale: float) -> None:
    row = paired(FIVE)
    other = {"baseline": dict.fromkeys(range(5), 0.3 * scale), "jagg": {}}
    other["jagg"] = {seed: scale * (0.3 + difference) for seed, difference in enumerate(FIVE)}
    (scaled,) = rows_of(table(by_seed(other, unit="points")))
    for end in ("ci_low", "ci_high", "ci_low_family", "ci_high_family"):
        assert scaled[end] == pytest.approx(scale * row[end], rel=1e-9)
    assert row["difference"] - row["ci_low"] == pytest.approx(row["ci_high"] - row["difference"], rel=1e-9)


def test_signs_of_pairs_are_flipped_and_nothing_else() -> None:
    reference = np.array([0.300, 0.320, 0.340, 0.310, 0.330])
    arm = reference + FIVE
    runs = {"baseline": dict(enumerate(reference)), "jagg": dict(enumerate(arm))}
    (row,) = rows_of(table(by_seed(runs)))
    assert (row["sign_flip_p"], row["sign_flip_arrangements"]) == (0.0625, 32)
    other = stats.permutation_test((arm, reference), lambda a, b: a.mean() - b.mean(), permutation_type="independent",
                                   n_resamples=np.inf)  # fmt: skip
    assert other.pvalue == pytest.approx(0.3333, abs=5e-5)


@pytest.mark.parametrize(("seeds", "smallest"), [(3, 0.25), (4, 0.125), (5, 0.0625), (6, 0.03125), (8, 0.0078125)])
def test_the_smallest_p_that_the_pairs_can_reach_stands_beside_theirs(seeds: int, smallest: float) -> None:
    row = paired([0.01 + 0.001 * seed for seed in range(seeds)])
    assert (row["sign_flip_p"], row["sign_flip_floor"]) == (smallest, smallest)


def test_no_rank_test_is_offered_and_ties_broken_by_rounding_are_ties() -> None:
    """Differences -0.025, 0.05, 0.05, -0.05: every sum of signs is at least as far from 0 as theirs, so p = 1."""
    one, other = [0.5, 0.825, 0.375, 0.5], [0.525, 0.775, 0.325, 0.55]
    assert len({abs(a - b) for a, b in zip(one, other)}) == 4  # three are equal on paper
    (row,) = rows_of(table(by_seed({"jagg": dict(enumerate(one)), "baseline": dict(enumerate(other))})))
    assert row["sign_flip_p"] == 1.0
    every = [*PAIRED_DIFFERENCES.names, *CURVES.names, *COSTS.names, *EQUAL_COST.names, *ATTRITION.names]
    assert not [name for name in every if any(word in name for word in ("rank", "wilcoxon", "mann"))]


def test_equivalence_is_the_larger_p_and_stands_beside_a_difference_from_0() -> None:
    row = paired([0.0041, 0.0049, 0.0045, 0.0047, 0.0043], margins={"hpsv2": 0.005})
    assert row["p_noninferiority"] == pytest.approx(1.47e-7, rel=5e-3)
    assert row["p_equivalence"] == pytest.approx(0.01206, abs=5e-6)
    assert row["p_value"] == pytest.approx(5.8e-6, rel=1e-2)
    assert row["verdict"] == "equivalent"
    assert "different from 0 (above) and equivalent within 0.005" in row["note"]


def test_a_test_that_could_not_be_done_counts_in_its_family() -> None:
    """Three metrics of one family, one without spread: the others are corrected for three."""
    steady = {arm: dict.fromkeys(range(4), 0.3) for arm in ("baseline", "jagg")}
    rows = by_seed(steady, metric="hpsv2")
    for metric, factor in (("pickscore", 1.0), ("clipscore", 4.0)):
        differences = 0.01 * (1 + factor * np.array([-0.3, 0.1, 0.4, -0.2]))
        ours = {seed: 0.3 + float(difference) for seed, difference in enumerate(differences)}
        rows += by_seed({"baseline": dict.fromkeys(range(4), 0.3), "jagg": ours}, metric=metric)
    found = {row["metric"]: row for row in rows_of(table(rows))}
    assert found["hpsv2"]["p_holm"] is None
    assert {row["family_size"] for row in found.values()} == {3}
    assert found["pickscore"]["p_holm"] == pytest.approx(3 * found["pickscore"]["p_value"])
    assert found["clipscore"]["p_holm"] == pytest.approx(2 * found["clipscore"]["p_value"])
