"""Equivalence, verdicts, multiplicity and power."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jagg.stats.equivalence import VERDICTS, also, equivalence_p, noninferiority_p, verdict
from jagg.stats.estimates import Estimate, paired_t
from jagg.stats.multiplicity import holm
from jagg.stats.power import (
    equivalence_power,
    seeds_for_equivalence,
    seeds_for_sign_flip,
    seeds_to_detect,
    smallest_detectable,
)

INSIDE = np.array([0.0041, 0.0049, 0.0045, 0.0047, 0.0043])


def test_equivalence_takes_the_larger_p() -> None:
    estimate = paired_t(INSIDE)
    assert noninferiority_p(estimate, 0.005) == pytest.approx(1.47e-7, rel=0.01)
    assert equivalence_p(estimate, -0.005, 0.005) == pytest.approx(0.01206, rel=1e-3)
    assert estimate.p_value == pytest.approx(5.8e-6, rel=0.01)
    assert verdict(estimate, 0.005) == "equivalent"
    assert also(estimate, 0.005) == "different from 0 (above) and equivalent within 0.005"


@given(st.lists(st.integers(-50, 50), min_size=3, max_size=6).filter(lambda xs: len(set(xs)) > 1))
def test_equivalence_is_the_interval_inside_asymmetric_bounds(values: list[int]) -> None:
    low, high, alpha = -11.3, 23.7, 0.05
    x = np.array(values, float)
    estimate = paired_t(x, level=1 - 2 * alpha)
    assert (equivalence_p(estimate, low, high) < alpha) == (low < estimate.ci_low and estimate.ci_high < high)
    above = stats.ttest_1samp(x, low, alternative="greater").pvalue
    below = stats.ttest_1samp(x, high, alternative="less").pvalue
    assert equivalence_p(estimate, low, high) == pytest.approx(max(above, below))


def test_a_tiny_equivalence_p_is_not_rounded_to_zero() -> None:
    p = equivalence_p(paired_t(np.linspace(-1e-9, 1e-9, 10)), -1.0, 1.0)
    assert p is not None
    assert 0 < p < 1e-50


@pytest.mark.parametrize(
    ("low", "high", "margin", "word"),
    [
        (0.001, 0.02, None, "superior"),
        (-0.02, -0.001, None, "inferior"),
        (-0.001, 0.001, None, "inconclusive"),
        (0.001, 0.02, 0.01, "superior"),
        (-0.02, -0.001, 0.01, "inferior"),
        (-0.002, 0.02, 0.01, "non-inferior"),
        (-0.02, 0.02, 0.01, "inconclusive"),
        (-0.02, 0.002, 0.01, "inconclusive"),
        (-0.002, 0.002, 0.01, "equivalent"),
        (-0.01, 0.01, 0.01, "inconclusive"),
    ],
)
def test_verdict_follows_from_the_interval(low: float, high: float, margin: float | None, word: str) -> None:
    estimate = Estimate((low + high) / 2, 1.0, 1.0, 2, low, high, p_value=None)
    assert verdict(estimate, margin) == word
    assert word in VERDICTS


def test_nothing_estimable_has_no_verdict_and_no_p() -> None:
    estimate = paired_t(np.array([0.5]))
    assert verdict(estimate, 0.01) == "not-estimable"
    assert equivalence_p(estimate, -0.01, 0.01) is None
    assert noninferiority_p(estimate, 0.01) is None


@pytest.mark.parametrize(
    ("given_p", "size", "expected"),
    [
        ([0.01, 0.04, 0.03], None, [0.03, 0.06, 0.06]),
        ([0.01, 0.02, 0.03, 0.005], None, [0.03, 0.04, 0.04, 0.02]),
        ([0.01, 0.02, 0.03, 0.04, 0.05], None, [0.05, 0.08, 0.09, 0.09, 0.09]),
        ([0.01, None, 0.03], 3, [0.03, None, 0.06]),
        ([0.01, float("nan"), 0.03], None, [0.03, None, 0.06]),
        ([0.01], 4, [0.04]),
        ([0.04, 0.01], None, [0.04, 0.02]),
        ([None, None], None, [None, None]),
        ([], None, []),
    ],
)
def test_holm(given_p: list, size: int | None, expected: list) -> None:
    assert holm(given_p, size) == pytest.approx(expected)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_as_the_step_down_procedure(values: list[float]) -> None:
    """At any level the tests rejected one after another, smallest p first, are those corrected to below it."""
    for level in (0.01, 0.05, 0.2):
        rejected = set()
        for rank, place in enumerate(np.argsort(values, kind="stable")):
            if values[place] * (len(values) - rank) > level:
                break
            rejected.add(int(place))
        assert {place for place, p in enumerate(holm(values)) if p is not None and p <= level} == rejected


def test_holm_refuses_a_family_smaller_than_its_tests() -> None:
    with pytest.raises(ValueError, match="family_size"):
        holm([0.1, 0.2], 1)


@pytest.mark.parametrize(
    ("n", "reference"), [(2, 11.549890), (3, 3.264044), (5, 1.681997), (10, 0.996002), (20, 0.660441)]
)
def test_smallest_detectable_agrees_with_statsmodels(n: int, reference: float) -> None:
    """Reference: statsmodels 0.15, TTestPower().solve_power(nobs=n, alpha=0.05, power=0.8)."""
    assert smallest_detectable(1 / np.sqrt(n), n - 1) == pytest.approx(reference, rel=1e-4)


def test_seeds_to_detect_is_the_first_with_enough_power() -> None:
    """statsmodels 0.15, TTestPower().power(0.5, n, 0.05): 0.7954 at n = 33, 0.8078 at n = 34."""
    assert seeds_to_detect(sd=1.0, difference=0.5) == 34
    assert seeds_to_detect(1.0, 0.0) is None
    assert seeds_to_detect(1.0, 1e-6) is None


def test_equivalence_power_agrees_with_simulation() -> None:
    x = np.random.default_rng(0).normal(size=(100_000, 6))
    half = stats.t.ppf(0.975, 5) * x.std(1, ddof=1) / np.sqrt(6)
    simulated = (np.abs(x.mean(1)) + half < 1.5).mean()
    assert equivalence_power(1.0, 1.5, 6, 0.025) == pytest.approx(simulated, abs=0.006)


def test_seeds_for_equivalence_is_the_first_with_enough_power() -> None:
    needed = seeds_for_equivalence(1.0, 0.5)
    assert equivalence_power(1.0, 0.5, needed - 1, 0.025) < 0.8 <= equivalence_power(1.0, 0.5, needed, 0.025)


@pytest.mark.parametrize(("tests", "seeds"), [(1, 6), (3, 7), (6, 8), (12, 9)])
def test_seeds_that_the_sign_flip_test_needs(tests: int, seeds: int) -> None:
    assert seeds_for_sign_flip(tests) == seeds


def test_verdict_certifies_falsely_at_most_at_its_level() -> None:
    """True difference on the margin's edge: `equivalent` in at most 2.5 % of studies of 4 seeds."""
    rng = np.random.default_rng(1)
    words = [verdict(paired_t(x), 0.5) for x in rng.normal(0.5, 0.2, size=(4000, 4))]
    assert words.count("equivalent") / len(words) <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / len(words))


def test_every_combination_of_ends_has_exactly_one_word() -> None:
    ends = [-0.02, -0.01, -0.005, 0.0, 0.005, 0.01, 0.02]
    words = {
        verdict(Estimate(0.0, 1.0, 1.0, 2, low, high, p_value=None), 0.01)
        for low, high in itertools.combinations(ends, 2)
    }
    assert words == set(VERDICTS) - {"not-estimable"}
