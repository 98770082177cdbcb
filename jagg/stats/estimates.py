"""Estimates of a mean difference and their intervals; the unit of replication is the seed (math.md 6)."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy import stats

Seeds = Float64[np.ndarray, "seeds"]
MAX_ENUMERATED_SEEDS = 20
_ROUNDING = 1e-10
_SCORE_ROUNDING = 1e-13
_COMPUTABLE = (1e-75, 1e75)  # fourth powers of a spread must stay inside the range of floating point


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval and two-sided test against 0; what cannot be estimated is None and `reason` says why."""

    mean: float | None
    sd: float | None = None
    standard_error: float | None = None
    df: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None
    method: str = "t, paired by seed"
    reason: str = ""

    @property
    def estimable(self) -> bool:
        return not self.reason


def unusable(*samples: Seeds, resolution: float = 0.0) -> str:
    """Why no interval follows from these samples, or an empty text.

    Args:
        resolution: a spread up to this much is rounding of the values behind the samples.
    """
    if any(len(sample) == 0 for sample in samples):
        return "no values"
    if not all(np.isfinite(sample).all() for sample in samples):
        return "values that are not finite"
    if any(len(sample) == 1 for sample in samples):
        return "one value has no spread (n = 1)"
    floor = max(resolution, _ROUNDING * max(float(np.abs(sample).max()) for sample in samples))
    spread = max(float(np.ptp(sample)) for sample in samples)
    if spread <= floor:
        return "no spread across seeds"
    if not _COMPUTABLE[0] < spread < _COMPUTABLE[1]:
        return "a spread outside the range of floating point"
    return ""


def rounding_spread(*scores: np.ndarray) -> float:
    """Spread that rounding alone can make in differences of these scores, a `resolution`."""
    return _SCORE_ROUNDING * max((float(np.abs(part).max()) for part in scores if len(part)), default=0.0)


def paired_t(differences: Seeds, level: float = 0.95, resolution: float = 0.0) -> Estimate:
    """Student's t interval of the mean of paired differences."""
    reason = unusable(differences, resolution=resolution)
    if reason:
        finite = len(differences) > 0 and bool(np.isfinite(differences).all())
        return Estimate(float(differences.mean()) if finite else None, reason=reason)
    n = len(differences)
    sd = float(differences.std(ddof=1))
    return t_interval(float(differences.mean()), sd / math.sqrt(n), n - 1, level, sd=sd)


def t_interval(
    mean: float,
    standard_error: float,
    df: float,
    level: float,
    *,
    sd: float | None = None,
    method: str = Estimate.method,
) -> Estimate:
    """Interval and two-sided p of an estimate whose standardised error is t with `df` degrees of freedom."""
    half = float(stats.t.ppf(0.5 + level / 2, df)) * standard_error
    p_value = 2 * float(stats.t.sf(abs(mean) / standard_error, df))
    return Estimate(mean, sd, standard_error, df, mean - half, mean + half, p_value, method)


def at_level(estimate: Estimate, level: float) -> tuple[float | None, float | None]:
    """The ends of an estimate's interval at another level; None where nothing is estimable."""
    if estimate.mean is None or estimate.standard_error is None or estimate.df is None:
        return None, None
    half = float(stats.t.ppf(0.5 + level / 2, estimate.df)) * estimate.standard_error
    return estimate.mean - half, estimate.mean + half


def welch(sample: Seeds, reference: Seeds, level: float = 0.95, resolution: float = 0.0) -> Estimate:
    """Unpaired difference of two means with unequal variances (Welch 1947); for seeds that are not paired."""
    reason = unusable(sample, reference, resolution=resolution)
    if reason:
        finite = min(len(sample), len(reference)) > 0 and bool(np.isfinite(np.concatenate([sample, reference])).all())
        return Estimate(float(sample.mean() - reference.mean()) if finite else None, method="Welch t", reason=reason)
    variances = np.array([part.var(ddof=1) / len(part) for part in (sample, reference)])
    df = satterthwaite(variances, np.array([len(sample) - 1, len(reference) - 1]))
    difference = float(sample.mean() - reference.mean())
    return t_interval(difference, math.sqrt(variances.sum()), df, level, method="Welch t")


def satterthwaite(variances: Float64[np.ndarray, "terms"], dfs: np.ndarray) -> float:
    """Degrees of freedom of a sum of independent variance estimates (Satterthwaite 1946)."""
    return float(variances.sum() ** 2 / (variances**2 / dfs).sum())


def mean_over_cells(cells: list[Estimate], level: float = 0.95) -> Estimate:
    """Unweighted mean of independent paired estimates, with Welch-Satterthwaite degrees of freedom.

    Cells that share seeds are not independent: their mean is taken seed by seed instead (`jagg.stats.pairs`).
    `sd` is the spread of the mean over cells for one seed in each.
    """
    method = "Welch-Satterthwaite t over cells"
    means = [cell.mean for cell in cells]
    mean = None if None in means else float(np.mean(means))  # type: ignore[arg-type]
    if not all(cell.estimable for cell in cells):
        return Estimate(mean, method=method, reason="a cell is not estimable")
    errors = np.array([cell.standard_error for cell in cells]) / len(cells)
    sd = float(np.linalg.norm(np.array([cell.sd for cell in cells], float))) / len(cells)
    df = satterthwaite(errors**2, np.array([cell.df for cell in cells]))
    return t_interval(float(np.mean(means)), math.sqrt((errors**2).sum()), df, level, sd=sd, method=method)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SignFlip:
    """Exact two-sided sign-flip test; `floor` is the smallest p that this many seeds can reach."""

    p_value: float | None
    floor: float | None
    arrangements: int | None


def sign_flip(differences: Seeds) -> SignFlip:
    """Exact two-sided test that the differences are symmetric about 0: all 2^n sign patterns are enumerated.

    Sums equal to the observed one up to rounding count as ties. Above `MAX_ENUMERATED_SEEDS` there is no p.
    """
    n = len(differences)
    if n == 0:
        return SignFlip(None, None, None)
    floor = sign_flip_floor(n)
    if n > MAX_ENUMERATED_SEEDS:
        return SignFlip(None, floor, None)
    if n == 1 or not np.isfinite(differences).all():
        return SignFlip(None, floor, 2**n)
    # The first sign is fixed, as mirrored patterns have equal absolute sums; sums of the two halves meet in the middle.
    half = n // 2
    left, right = _signed_sums(differences[:1], differences[1:half]), np.sort(_signed_sums(differences[half:]))
    reach = abs(differences.sum()) - _ROUNDING * np.abs(differences).sum()
    high = len(right) - np.searchsorted(right, reach - left, side="left")
    low = np.searchsorted(right, -reach - left, side="right")
    reached = np.minimum(high + low, len(right)).sum()  # at reach <= 0 every pattern counts from both sides
    return SignFlip(float(reached / 2 ** (n - 1)), floor, 2**n)


def _signed_sums(*parts: Seeds) -> np.ndarray:
    """Sums over all sign patterns; if there are two parts, the first keeps its signs."""
    *kept, flipped = parts
    sums = np.array([float(sum(part.sum() for part in kept))])
    for difference in flipped:
        sums = np.concatenate([sums + difference, sums - difference])
    return sums


def sign_flip_floor(num_seeds: int) -> float:
    """Smallest two-sided p of the sign-flip test with this many seeds: 2 / 2^n."""
    return 2.0 ** (1 - num_seeds)
