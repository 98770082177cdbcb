"""The interval for other seeds and other prompts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jagg.stats.crossed import crossed
from jagg.stats.estimates import paired_t

D = np.array([[0.9, 3.1, 5.2, 2.0], [1.4, 3.3, 6.1, 2.2], [0.7, 3.2, 5.5, 1.4]])


def test_mean_squares_by_hand() -> None:
    """Two-way analysis of variance, one value a seed and prompt; variance and freedom as in the docstring."""
    n, p = D.shape
    total = ((D - D.mean()) ** 2).sum()
    between_seeds = p * ((D.mean(1) - D.mean()) ** 2).sum()
    between_prompts = n * ((D.mean(0) - D.mean()) ** 2).sum()
    ms = [between_seeds / 2, between_prompts / 3, (total - between_seeds - between_prompts) / 6]
    variance = (ms[0] + ms[1] - ms[2]) / (n * p)
    df = (ms[0] + ms[1] - ms[2]) ** 2 / (ms[0] ** 2 / 2 + ms[1] ** 2 / 3 + ms[2] ** 2 / 6)
    half = stats.t.ppf(0.975, df) * np.sqrt(variance)
    estimate = crossed(D)
    assert estimate.df == pytest.approx(df)
    assert (estimate.ci_low, estimate.ci_high) == pytest.approx((D.mean() - half, D.mean() + half))


matrices = st.lists(st.lists(st.integers(-50, 50), min_size=3, max_size=3), min_size=3, max_size=5)


@given(matrices.filter(lambda rows: len({sum(row) for row in rows}) > 1), st.floats(0.01, 100), st.floats(-5, 5))
def test_order_scale_and_shift(rows: list[list[int]], scale: float, shift: float) -> None:
    d = np.array(rows, float)
    base, moved = crossed(d), crossed(scale * d[::-1, ::-1] + shift)
    assert (moved.ci_low, moved.ci_high) == pytest.approx(
        (scale * base.ci_low + shift, scale * base.ci_high + shift), rel=1e-6, abs=1e-6 * scale
    )
    fixed = paired_t(d.mean(axis=1))
    assert base.ci_low <= fixed.ci_low + 1e-9
    assert base.ci_high >= fixed.ci_high - 1e-9


@pytest.mark.parametrize(
    ("differences", "reason"),
    [(D[:1], "n = 1"), (D[:, :1], "two prompts"), (np.ones((3, 4)), "no spread"), (D * np.nan, "not finite")],
)
def test_what_cannot_be_estimated_has_a_reason(differences: np.ndarray, reason: str) -> None:
    estimate = crossed(differences)
    assert reason in estimate.reason
    assert estimate.ci_low is None
