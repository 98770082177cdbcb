"""Which windows use the arm's estimator and which the exact gradient (math.md 3 and 5)."""

from jagg.gradients.estimators.exact import ESTIMATOR as EXACT
from jagg.gradients.window import Estimator, Window


def route(estimator: Estimator, start: int, length: int, sampling_steps: int, jagg_frac: float) -> Estimator:
    """The arm's estimator iff the window starts at step j0 with j0 / T < jagg_frac and has 2 transitions or more."""
    return estimator if length >= 2 and start / sampling_steps < jagg_frac else EXACT


def route_by_confidence(chosen: Estimator, window: Window, max_residual: float | None) -> Estimator:
    """The estimator chosen by place iff the window's velocity residual is at most `max_residual`; None: by place alone.

    The residual is the mean over the window's samples, so the decision is one for all of them.
    """
    return chosen if max_residual is None or window.velocity_residual() <= max_residual else EXACT


def states_decide(chosen: Estimator, by_confidence: bool) -> bool:
    """Whether the states of a window have a say in its nodes, once its place has chosen the estimator."""
    return chosen.which_depends_on_states or (by_confidence and not is_exact(chosen))


def is_exact(estimator: Estimator) -> bool:
    """Whether an estimator is the exact gradient itself."""
    return estimator is EXACT
