"""Claims about sameness: margins, non-inferiority, equivalence, and the verdict that an interval allows."""

import math
from dataclasses import dataclass

from scipy import stats

from jagg.stats.estimates import Estimate

VERDICTS = ("superior", "non-inferior", "equivalent", "inferior", "inconclusive", "not-estimable")


@dataclass(frozen=True)
class Margin:
    """Differences that do not matter, low < 0 < high, in raw units; with high = inf only being lower matters."""

    low: float
    high: float

    @classmethod
    def of(cls, value: "float | Margin") -> "Margin":
        """A number stands for the same margin on both sides."""
        return value if isinstance(value, Margin) else cls(-value, value)

    def __post_init__(self) -> None:
        if not -math.inf < self.low < 0 < self.high:
            raise ValueError(f"margin: expected a finite low < 0 < high, got {self.low} and {self.high}")

    @property
    def one_sided(self) -> bool:
        """Whether only being worse matters."""
        return self.high == math.inf

    @property
    def bounds(self) -> tuple[float, float]:
        return self.low, self.high

    @property
    def text(self) -> str:
        """What a claim of sameness names: the kind of claim and its bounds."""
        if self.one_sided:
            return f"non-inferiority within {-self.low:g}"
        if self.high == -self.low:
            return f"equivalence within {self.high:g}"
        return f"equivalence between {self.low:g} and {self.high:g}"


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


def verdict(estimate: Estimate, margin: float | Margin | None, floor: float | None = None) -> str:
    """The word that the interval alone allows.

    A margin was fixed before the run as what does not matter, so an interval inside it is `equivalent` even where it
    leaves out 0; `also` then says on which side it lies. Without a margin only superior, inferior or inconclusive.
    A gain of at most `floor`, which other noise alone can make, is never `superior`.
    """
    if not estimate.estimable:
        return "not-estimable"
    low, high = estimate.ci_low, estimate.ci_high
    assert low is not None
    assert high is not None
    bounds = None if margin is None else Margin.of(margin)
    if bounds and bounds.low < low and high < bounds.high and not bounds.one_sided:
        return "equivalent"
    assert estimate.mean is not None
    if low > 0 and (floor is None or estimate.mean > floor):
        return "superior"
    if bounds and low > bounds.low:
        return "non-inferior"
    return "inferior" if high < 0 else "inconclusive"


def also(estimate: Estimate, margin: float | Margin | None, floor: float | None = None) -> str:
    """The margin behind a claim of sameness, and on which side of 0 an interval inside it lies."""
    word = verdict(estimate, margin, floor)
    if margin is None or word not in ("equivalent", "non-inferior"):
        return ""
    bounds = Margin.of(margin)
    assert estimate.ci_low is not None
    assert estimate.ci_high is not None
    if word == "non-inferior":
        below = "different from 0 (below) and " if estimate.ci_high < 0 else ""
        return f"{below}non-inferior within {-bounds.low:g}"
    within = bounds.text.removeprefix("equivalence ")
    if estimate.ci_low <= 0 <= estimate.ci_high:
        return f"equivalent {within}"
    side = "above" if estimate.ci_low > 0 else "below"
    return f"different from 0 ({side}) and equivalent {within}"
