"""Gradient estimators by name; each is a node list and a weight matrix (math.md 3)."""

from collections.abc import Callable

from jagg.config import Arm
from jagg.errors import unknown_name
from jagg.gradients.estimators import (
    debiased,
    endpoint_only,
    exact,
    jagg,
    kriging,
    midpoint,
    monte_carlo,
    quadratic,
)
from jagg.gradients.window import Estimator

ESTIMATORS: dict[str, Estimator] = {
    "exact": exact.ESTIMATOR,
    "jagg": jagg.ESTIMATOR,
    "endpoint_only": endpoint_only.ESTIMATOR,
    "midpoint": midpoint.ESTIMATOR,
    "monte_carlo": monte_carlo.ESTIMATOR,
    "quadratic": quadratic.ESTIMATOR,
    "debiased": debiased.ESTIMATOR,
    "kriging": kriging.ESTIMATOR,
}

ADJUSTABLE: dict[str, Callable[..., Estimator]] = {"debiased": debiased.debiased}
"""Estimators with settings of their own: name -> maker, whose arguments are the arm's section of that name."""


def estimator_of(name: str) -> Estimator:
    """The estimator of a name, with the settings it has by default.

    Raises:
        InputError: unknown name.
    """
    if name not in ESTIMATORS:
        raise unknown_name("estimator", name, ESTIMATORS, where="arms.<arm>.estimator")
    return ESTIMATORS[name]


def arm_estimator(arm: Arm) -> Estimator:
    """The estimator of an arm, with the arm's settings.

    Raises:
        InputError: unknown name.
    """
    settings = getattr(arm, arm.estimator, None)
    return estimator_of(arm.estimator) if settings is None else ADJUSTABLE[arm.estimator](**dict(settings))
