"""JAGG without its bias: now and then one inner transition is taken exactly and pays for all (math.md 3)."""

from typing import Literal

import torch

from jagg.gradients.estimators.jagg import jagg
from jagg.gradients.window import Estimate, Estimator, Outcome, Window

_UNIFORM_SHARE = 0.1
"""Share of the uniform draw in a draw by proxy: no inner transition may have probability 0."""
_LEAST_SHARE = 0.05
"""Least part of `probability` that a window keeps: a window is unbiased only if an inner transition can be drawn."""


def debiased(
    probability: float = 0.5, draw: Literal["uniform", "proxy"] = "uniform", full_residual: float | None = None
) -> Estimator:
    """Nodes 0, W-1 and, with probability p, one inner j drawn with probability q_j (no unit).

    Column j becomes `c = 1/(p q_j)` on j itself and `(1-alpha_j)(1-c)`, `alpha_j (1-c)` on the ends. `draw`: q_j is
    uniform, or proportional to the velocity residual of j. `full_residual`: p grows with the window's velocity residual
    and reaches `probability` there; without it p is the same for every window.
    """

    def outcomes(window: Window) -> list[Outcome]:
        if len(window) == 2:
            return [Outcome(1.0, jagg(window))]
        p = probability
        if full_residual is not None:
            p *= min(1.0, max(_LEAST_SHARE, window.velocity_residual() / full_residual))
        drawn = [
            Outcome(p * q, _with_inner(window, j, 1 / (p * q)))
            for j, q in enumerate(_draw_probabilities(window, draw), start=1)
        ]
        return drawn if p == 1 else [Outcome(1 - p, jagg(window)), *drawn]

    def nodes(length: int, share: float = 1.0) -> float:
        return 2.0 + share * probability * (length > 2)

    return Estimator(
        outcomes,
        expected_nodes=nodes,
        fewest_nodes=None if full_residual is None else lambda length: nodes(length, _LEAST_SHARE),
        which_depends_on_states=draw == "proxy" or full_residual is not None,
    )


def _draw_probabilities(window: Window, draw: str) -> list[float]:
    inner = len(window) - 2
    residuals = window.velocity_residuals()[1:-1].double().mean(dim=1)
    if draw == "uniform" or not residuals.any():
        return [1 / inner] * inner
    shares: list[float] = (_UNIFORM_SHARE / inner + (1 - _UNIFORM_SHARE) * residuals / residuals.sum()).tolist()
    return shares


def _with_inner(window: Window, j: int, c: float) -> Estimate:
    ends = jagg(window).weights
    weights = torch.stack([ends[0], torch.zeros_like(ends[0]), ends[1]])
    weights[[0, 2], j] = ends[:, j] * (1 - c)
    weights[1, j] = c
    return Estimate((0, j, len(window) - 1), weights)


ESTIMATOR = debiased()
