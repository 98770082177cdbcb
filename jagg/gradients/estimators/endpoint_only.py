"""The ablation: the window's ends alone, each with its own signal; inner signals are dropped (math.md 3)."""

import torch

from jagg.gradients.window import Estimate, Estimator, Window


def endpoint_only(window: Window) -> Estimate:
    """Nodes 0 and W-1, M[0, 0] = M[1, W-1] = 1, rest 0."""
    weights = torch.zeros(2, len(window), dtype=torch.float64)
    weights[0, 0] = weights[1, -1] = 1.0
    return Estimate((0, len(window) - 1), weights)


ESTIMATOR = Estimator.certain(endpoint_only, expected_nodes=lambda length: 2.0)
