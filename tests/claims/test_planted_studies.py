"""Simulated result tables of known truth: the audit certifies what is false at most as often as it declares."""

import pytest
from planted import PLANTED, false_certifications
from scipy import stats

ALPHA = 0.05


def allowed(num_tables: int) -> int:
    """Most wrong verdicts that a rate of alpha makes but once in a thousand such simulations."""
    return int(stats.binom.ppf(0.999, num_tables, ALPHA))


def test_false_certification_in_a_few_planted_tables() -> None:
    wrong, given = false_certifications(10 * len(PLANTED), seed=1)
    assert wrong <= allowed(10 * len(PLANTED))
    assert given["not-testable"] == 0


@pytest.mark.coverage
def test_false_certification_is_at_most_alpha_at_the_edge_of_the_claims() -> None:
    wrong, given = false_certifications(1200, seed=2)
    print(f"1200 planted tables: {wrong} wrong verdicts ({wrong / 1200:.2%}); {given}")
    assert wrong <= allowed(1200)
    assert wrong > 0  # the truths lie at the edge: an audit that never decides would prove nothing
