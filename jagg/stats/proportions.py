"""Intervals of shares."""

from statsmodels.stats.proportion import proportion_confint


def wilson(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share (Wilson 1927); `trials` at least 1, `level` without unit."""
    low, high = proportion_confint(successes, trials, alpha=1 - level, method="wilson")
    return float(low), float(high)
