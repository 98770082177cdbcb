"""What a claim says as conditions on quantities, and what their intervals certify or refute.

A claim is a tree: `All` parts must hold, or `AnyOf` them. `certify` shows that it holds and `refute` that it fails,
each wrong with probability at most `alpha` whatever the dependence between the quantities: a conjunction is certified
by certifying every part at alpha (intersection-union test, Berger 1982) and refuted by refuting one of k parts at
alpha / k (Bonferroni); a disjunction the other way round. Both return the quantities that decide, each with the alpha
that its interval was given, or None.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from scipy import stats

from jagg.stats.power import seeds_for_equivalence, seeds_to_detect

Pointer = tuple[str, int]
"""A table's file name and a row of it, 1 after the header."""


@dataclass(frozen=True)
class Quantity:
    """An estimate with its standard error, and the region in which the claim puts the true value.

    Without a standard error it is an exact count, if `reason` is empty, or cannot be estimated. With `log` the mean,
    the error and the region are logarithms of what is shown.
    """

    name: str
    mean: float | None
    low: float = -math.inf
    high: float = math.inf
    standard_error: float | None = None
    df: float | None = None
    num_seeds: int | None = None
    pointers: tuple[Pointer, ...] = ()
    reason: str = ""
    log: bool = False
    num_rollouts: int | None = None
    """Replicates where they are rollouts and not seeds: nothing is planned in seeds then."""

    @property
    def estimable(self) -> bool:
        return not self.reason

    def interval(self, alpha: float) -> tuple[float, float]:
        """Two-sided interval of level 1 - alpha; a point where the quantity is exact."""
        assert self.mean is not None
        if self.standard_error is None:
            return self.mean, self.mean
        half = float(stats.t.ppf(1 - alpha / 2, self.df)) * self.standard_error
        return self.mean - half, self.mean + half

    def shown(self, value: float | None) -> float | None:
        """A value on the scale that readers see."""
        return math.exp(value) if self.log and value is not None else value

    def slack(self, alpha: float) -> float:
        """How far inside the region the interval stays, in standard errors; negative where it leaves the region."""
        if not self.estimable:
            return -math.inf
        low, high = self.interval(alpha)
        return min(low - self.low, self.high - high) / (self.standard_error or 1.0)

    def seeds_needed(self, alpha: float) -> int | None:
        """Seeds that could show this part with 80 % power.

        If the truth is in the middle of a region with two ends, or is what was seen beside one with a single end.
        """
        if not self.estimable or self.standard_error is None or self.num_seeds is None or self.mean is None:
            return None
        sd = self.standard_error * math.sqrt(self.num_seeds)
        if math.isfinite(self.low) and math.isfinite(self.high):
            half = (self.high - self.low) / 2
            return seeds_for_equivalence(sd, half, alpha / 2) if half > 0 else None
        return seeds_to_detect(sd, self.mean - (self.low if math.isfinite(self.low) else self.high), alpha)


@dataclass(frozen=True)
class All:
    """Every part must hold."""

    parts: "tuple[Part, ...]" = field(default_factory=tuple)


@dataclass(frozen=True)
class AnyOf:
    """At least one part must hold."""

    parts: "tuple[Part, ...]" = field(default_factory=tuple)


Part = Quantity | All | AnyOf
Witnesses = list[tuple[Quantity, float]]


def certify(part: Part, alpha: float) -> Witnesses | None:
    """The quantities that show that the claim holds, with their alphas; None if it is not shown."""
    if isinstance(part, Quantity):
        return [(part, alpha)] if part.estimable and part.slack(alpha) >= 0 else None
    return _every(certify, part, alpha) if isinstance(part, All) else _some(certify, part, alpha)


def refute(part: Part, alpha: float) -> Witnesses | None:
    """The quantities that show that the claim fails, with their alphas; None if it is not shown."""
    if isinstance(part, Quantity):
        return [(part, alpha)] if part.estimable and _outside(part, alpha) else None
    return _some(refute, part, alpha) if isinstance(part, All) else _every(refute, part, alpha)


def _outside(quantity: Quantity, alpha: float) -> bool:
    low, high = quantity.interval(alpha)
    return high < quantity.low or low > quantity.high


def _every(shows, part: "All | AnyOf", alpha: float) -> Witnesses | None:  # type: ignore[no-untyped-def]
    found: Witnesses = []
    for inner in part.parts:
        witnesses = shows(inner, alpha)
        if witnesses is None:
            return None
        found += witnesses
    return found or None


def _some(shows, part: "All | AnyOf", alpha: float) -> Witnesses | None:  # type: ignore[no-untyped-def]
    shown = (shows(inner, alpha / len(part.parts)) for inner in part.parts)
    return next((witnesses for witnesses in shown if witnesses), None)


def quantities(part: Part) -> Iterator[Quantity]:
    """Every quantity of a claim."""
    if isinstance(part, Quantity):
        yield part
    else:
        for inner in part.parts:
            yield from quantities(inner)
