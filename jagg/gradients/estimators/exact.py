"""The exact window gradient: every transition is its own node (math.md 3)."""

import torch

from jagg.gradients.window import Estimate, Estimator, Window


def exact(window: Window) -> Estimate:
    """All W nodes, identity weights."""
    return Estimate(tuple(range(len(window))), torch.eye(len(window), dtype=torch.float64))


ESTIMATOR = Estimator.certain(exact, expected_nodes=float)
