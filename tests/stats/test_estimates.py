"""Intervals and exact tests against published numbers, hand calculation and simulation."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jagg.stats.estimates import mean_over_cells, paired_t, sign_flip, sign_flip_floor, welch

FIVE = np.array([0.010, 0.012, 0.008, 0.011, 0.009])
samples = st.lists(st.integers(-1000, 1000), min_size=2, max_size=8).filter(lambda xs: len(set(xs)) > 1)


def test_paired_t_on_the_sleep_data() -> None:
    """R: t.test(extra ~ group, paired = TRUE) on `sleep`."""
    first = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
    second = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])
    estimate = paired_t(first - second)
    assert estimate.mean / estimate.standard_error == pytest.approx(-4.062128, abs=1e-6)
    assert estimate.p_value == pytest.approx(0.002832890, abs=1e-9)
    assert (estimate.ci_low, estimate.ci_high) == pytest.approx((-2.459886, -0.7001142), abs=1e-6)


def test_t_interval_of_five_seeds() -> None:
    estimate = paired_t(FIVE)
    assert (estimate.ci_low, estimate.ci_high) == pytest.approx((0.008037, 0.011963), abs=1e-6)


@pytest.mark.parametrize(
    ("differences", "reason", "mean"),
    [
        ([], "no values", None),
        ([0.01], "n = 1", 0.01),
        ([0.01, 0.01, 0.01], "no spread", 0.01),
        ([0.0, 0.0], "no spread", 0.0),
        ([0.01, np.nan, 0.02], "not finite", None),
        ([0.01, np.inf, 0.02], "not finite", None),
        ([1e300, 2e300, 4e300], "range of floating point", pytest.approx(7e300 / 3)),
        ([1e-300, 2e-300, 4e-300], "range of floating point", pytest.approx(7e-300 / 3)),
    ],
)
def test_what_cannot_be_estimated_is_empty_with_a_reason(differences: list, reason: str, mean: float | None) -> None:
    estimate = paired_t(np.array(differences, float))
    assert reason in estimate.reason
    assert estimate.mean == mean
    assert (estimate.sd, estimate.ci_low, estimate.ci_high, estimate.p_value, estimate.df) == (None,) * 5


def test_equal_differences_are_no_spread_in_spite_of_rounding() -> None:
    reference = np.array([0.3, 0.7, 1.1])
    differences = (reference + 0.1) - reference
    assert differences.std() > 0
    assert not paired_t(differences).estimable
    assert not paired_t((reference + 1e-17) - reference + 5e-17 * np.arange(3), resolution=1e-13).estimable


@given(samples, st.floats(0.001, 1000), st.floats(-10, 10))
def test_interval_follows_scale_shift_and_sign(values: list[int], scale: float, shift: float) -> None:
    x = np.array(values, float) / 100
    base, scaled, moved, swapped = paired_t(x), paired_t(scale * x), paired_t(x + shift), paired_t(-x)
    assert (scaled.ci_low, scaled.ci_high) == pytest.approx((scale * base.ci_low, scale * base.ci_high), rel=1e-9)
    assert moved.ci_high - moved.ci_low == pytest.approx(base.ci_high - base.ci_low, rel=1e-6)
    assert (swapped.ci_low, swapped.ci_high) == pytest.approx((-base.ci_high, -base.ci_low))
    assert swapped.p_value == pytest.approx(base.p_value)


def test_t_interval_covers_95_percent_at_five_seeds() -> None:
    draws = np.random.default_rng(0).normal(size=(2000, 5))
    covered = sum(estimate.ci_low <= 0 <= estimate.ci_high for estimate in map(paired_t, draws))
    assert 0.935 <= covered / len(draws) <= 0.965


def test_sign_flip_is_exact_and_paired() -> None:
    result = sign_flip(FIVE)
    assert (result.p_value, result.floor, result.arrangements) == (0.0625, 0.0625, 32)


@given(samples)
def test_sign_flip_equals_plain_enumeration_in_integers(values: list[int]) -> None:
    """Ties that rounding breaks are counted: the same data as decimals give the p of the integers."""
    sums = [abs(sum(s * v for s, v in zip(signs, values))) for signs in itertools.product((1, -1), repeat=len(values))]
    exact = sum(total >= abs(sum(values)) for total in sums) / len(sums)
    assert sign_flip(np.array(values) / 1000 / 3).p_value == exact


def test_sign_flip_agrees_with_scipy() -> None:
    d = np.array([0.3, -0.1, 0.25, 0.4, 0.05, -0.02, 0.31])
    reference = stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip(d).p_value == pytest.approx(reference.pvalue)


@pytest.mark.parametrize(("n", "floor"), [(3, 0.25), (4, 0.125), (5, 0.0625), (6, 0.03125), (8, 0.0078125)])
def test_sign_flip_floor(n: int, floor: float) -> None:
    assert sign_flip_floor(n) == floor
    assert sign_flip(np.arange(1.0, n + 1)).p_value == floor


def test_sign_flip_of_one_seed_or_many_has_no_p() -> None:
    assert sign_flip(np.array([0.1])).p_value is None
    assert sign_flip(np.arange(21.0)).p_value is None
    assert sign_flip(np.array([0.1, np.nan])).p_value is None


def test_welch_agrees_with_scipy() -> None:
    a, b = np.array([0.31, 0.33, 0.30, 0.36]), np.array([0.29, 0.30, 0.28])
    reference = stats.ttest_ind(a, b, equal_var=False)
    interval = reference.confidence_interval()
    ours = welch(a, b)
    assert (ours.p_value, ours.ci_low, ours.ci_high) == pytest.approx((reference.pvalue, interval.low, interval.high))


def test_one_run_against_many_has_no_interval() -> None:
    estimate = welch(np.array([0.35]), np.array([0.30, 0.31, 0.32, 0.33, 0.34]))
    assert estimate.mean == pytest.approx(0.03)
    assert estimate.ci_low is None
    assert "n = 1" in estimate.reason


def test_mean_over_cells_of_equal_cells_is_a_pooled_t() -> None:
    cells = [paired_t(x) for x in (np.array([1.0, 2.0, 3.0]), np.array([3.0, 4.0, 5.0]))]
    pooled = mean_over_cells(cells)
    assert pooled.mean == 3.0
    assert pooled.df == pytest.approx(4)
    assert pooled.standard_error == pytest.approx(np.sqrt(1 / 3 / 2))


def test_mean_over_cells_needs_every_cell() -> None:
    pooled = mean_over_cells([paired_t(FIVE), paired_t(np.array([0.1]))])
    assert not pooled.estimable
    assert pooled.ci_low is None
