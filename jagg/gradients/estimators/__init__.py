"""Gradient estimators by name; each is a node list and a weight matrix (math.md 3)."""

from jagg.errors import unknown_name
from jagg.gradients.estimators import endpoint_only, exact, jagg
from jagg.gradients.window import Estimator

ESTIMATORS: dict[str, Estimator] = {
    "exact": exact.ESTIMATOR,
    "jagg": jagg.ESTIMATOR,
    "endpoint_only": endpoint_only.ESTIMATOR,
}


def estimator_of(name: str) -> Estimator:
    """The estimator of a name.

    Raises:
        InputError: unknown name.
    """
    if name not in ESTIMATORS:
        raise unknown_name("estimator", name, ESTIMATORS, where="arms.<arm>.estimator")
    return ESTIMATORS[name]
