"""Claims about sameness: non-inferiority, equivalence, and the verdict that an interval allows."""

from scipy import stats

from jagg.stats.estimates import Estimate

VERDICTS = ("superior", "non-inferior", "equivalent", "inferior", "inconclusive", "not-estimable")


def noninferiority_p(estimate: Estimate, margin: float) -> float | None:
    """One-sided p against a mean of -margin or less; None where nothing is estimable."""
    return _one_sided_p(estimate, -margin, 1)


def equivalence_p(estimate: Estimate, low: float, high: float) -> float | None:
    """Two one-sided tests (Schuirmann 1987): the larger of their p-values; bounds in raw units, low < high.

    It is below alpha exactly if the interval of level 1 - 2 alpha lies inside the bounds.
    """
    above_low = _one_sided_p(estimate, low, 1)
    below_high = _one_sided_p(estimate, high, -1)
    return None if above_low is None or below_high is None else max(above_low, below_high)


def _one_sided_p(estimate: Estimate, bound: float, side: int) -> float | None:
    if not estimate.estimable:
        return None
    assert estimate.mean is not None
    assert estimate.standard_error is not None
    return float(stats.t.sf(side * (estimate.mean - bound) / estimate.standard_error, estimate.df))


def verdict(estimate: Estimate, margin: float | None) -> str:
    """The word that the interval alone allows.

    A margin was fixed before the run as what does not matter, so an interval inside it is `equivalent` even where it
    leaves out 0; `also` then says on which side it lies. Without a margin only superior, inferior or inconclusive.
    """
    if not estimate.estimable:
        return "not-estimable"
    low, high = estimate.ci_low, estimate.ci_high
    assert low is not None
    assert high is not None
    if margin is not None and -margin < low and high < margin:
        return "equivalent"
    if low > 0:
        return "superior"
    if high < 0:
        return "inferior"
    return "non-inferior" if margin is not None and low > -margin else "inconclusive"


def also(estimate: Estimate, margin: float | None) -> str:
    """What an equivalent difference is besides: an interval inside the margin may still leave out 0."""
    if margin is None or verdict(estimate, margin) != "equivalent":
        return ""
    assert estimate.ci_low is not None
    assert estimate.ci_high is not None
    if estimate.ci_low <= 0 <= estimate.ci_high:
        return ""
    side = "above" if estimate.ci_low > 0 else "below"
    return f"different from 0 ({side}) and equivalent within {margin:g}"
