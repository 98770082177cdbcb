"""How many seeds a family of tests needs, by each method: for deciding before the run."""

from collections.abc import Mapping
from typing import Any

from jagg.stats.equivalence import Margin
from jagg.stats.power import POWER, seeds_for_equivalence, seeds_for_sign_flip, seeds_to_detect


def seed_plan(
    num_tests: int,
    *,
    sd: float = 1.0,
    difference: float | None = None,
    margins: Mapping[str, float | Margin] | None = None,
    level: float = 0.95,
) -> list[dict[str, Any]]:
    """Seeds a family of `num_tests` needs at its first step, where Holm's and Bonferroni's corrections are the same.

    Args:
        sd: deviation of the paired differences over seeds, in the metric's unit; 1 makes all else multiples of it.
        difference: true difference that the t test shall find with power 0.8; default `sd`.
        margins: metric -> margin of equivalence to be shown with power 0.8 if the true difference is 0.

    Returns:
        Rows of `method` and `seeds`; None is more than the planner tries. The sign-flip row is what the test needs to
        reach the level at all, whatever the data.
    """
    alpha = (1 - level) / num_tests
    wanted = sd if difference is None else difference
    rows: list[dict[str, Any]] = [
        {"method": "exact sign flip: can reach the level", "seeds": seeds_for_sign_flip(num_tests, 1 - level)},
        {
            "method": f"paired t: finds a difference of {wanted:g} with power {POWER:g}",
            "seeds": seeds_to_detect(sd, wanted, alpha),
        },
    ]
    for metric, margin in (margins or {}).items():
        bounds = Margin.of(margin)
        rows.append(
            {
                "method": f"{metric}: shows {bounds.text} with power {POWER:g}",
                "seeds": seeds_for_equivalence(sd, bounds, alpha / 2),
            }
        )
    return rows
