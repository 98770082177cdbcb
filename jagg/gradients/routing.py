"""Which windows use the arm's estimator and which the exact gradient (math.md 3)."""

from jagg.gradients.estimators.exact import ESTIMATOR as EXACT
from jagg.gradients.window import Estimator


def route(estimator: Estimator, start: int, length: int, sampling_steps: int, jagg_frac: float) -> Estimator:
    """The arm's estimator iff the window starts at step j0 with j0 / T < jagg_frac and has 2 transitions or more."""
    return estimator if length >= 2 and start / sampling_steps < jagg_frac else EXACT


def is_exact(estimator: Estimator) -> bool:
    """Whether an estimator is the exact gradient itself."""
    return estimator is EXACT
