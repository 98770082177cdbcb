"""What a number of seeds can show: smallest detectable difference, seeds needed."""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import optimize, stats

from jagg.stats.equivalence import Margin
from jagg.stats.estimates import sign_flip_floor

POWER = 0.8
MAX_SEEDS = 100_000


def smallest_detectable(standard_error: float, df: float, alpha: float = 0.05, power: float = POWER) -> float:
    """The true difference that a two-sided t test at `alpha` finds with probability `power`, in units of the error."""
    return _noncentrality(round(df, 6), alpha, power) * standard_error


@lru_cache(maxsize=4096)
def _noncentrality(df: float, alpha: float, power: float) -> float:
    def shortfall(noncentrality: float) -> float:
        return _t_power(noncentrality, df, alpha) - power

    high = 4.0
    while shortfall(high) < 0:
        high *= 2
    return float(optimize.brentq(shortfall, 0.0, high))


def _t_power(noncentrality: float, df: float, alpha: float) -> float:
    """Power of the two-sided t test: the other tail is left out, it is below alpha / 2 and falls."""
    critical = stats.t.ppf(1 - alpha / 2, df)
    return float(stats.nct.sf(critical, df, noncentrality))


def seeds_to_detect(sd: float, difference: float, alpha: float = 0.05, power: float = POWER) -> int | None:
    """Fewest seeds with which a two-sided t test at `alpha` finds a true `difference`; None above `MAX_SEEDS`."""
    if difference == 0:
        return None
    return _fewest(lambda n: _t_power(math.sqrt(n) * abs(difference) / sd, n - 1, alpha) >= power)


def seeds_for_equivalence(sd: float, margin: float | Margin, alpha: float = 0.025, power: float = POWER) -> int | None:
    """Fewest seeds with which two one-sided tests at `alpha` show equivalence if the true difference is 0.

    With a one-sided margin the claim is non-inferiority.
    """
    return _fewest(lambda n: equivalence_power(sd, margin, n, alpha) >= power)


def equivalence_power(sd: float, margin: float | Margin, num_seeds: int, alpha: float) -> float:
    """Probability that the interval of level 1 - 2 alpha lies inside the margin if the true difference is 0.

    The mean and the estimated deviation are independent: the normal probability is averaged over the deviation's
    chi-squared distribution, at 400 equally likely points.
    """
    half_width = stats.t.ppf(1 - alpha, num_seeds - 1) * _deviations(num_seeds - 1)
    low, high = (math.sqrt(num_seeds) * bound / sd for bound in Margin.of(margin).bounds)
    inside = stats.norm.cdf(high - half_width) - stats.norm.cdf(low + half_width)
    return float(np.maximum(inside, 0.0).mean())


@lru_cache(maxsize=4096)
def _deviations(df: int) -> np.ndarray:
    """Equally likely values of an estimated deviation whose true value is 1."""
    points = (np.arange(400) + 0.5) / 400
    return np.sqrt(stats.chi2.ppf(points, df) / df)


def seeds_for_sign_flip(num_tests: int = 1, alpha: float = 0.05) -> int:
    """Fewest seeds with which the exact sign-flip test can reach `alpha` at Holm's first step among `num_tests`."""
    seeds = 1
    while num_tests * sign_flip_floor(seeds) > alpha:
        seeds += 1
    return seeds


def _fewest(enough: Callable[[int], bool]) -> int | None:
    """Smallest n >= 2 with enough(n), for a condition that stays true once it is."""
    high = 2
    while not enough(high):
        high *= 2
        if high > MAX_SEEDS:
            return None
    low = high // 2  # not enough, or 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
