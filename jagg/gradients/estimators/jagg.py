"""JAGG: Jacobians inside the window are interpolated between its two ends (math.md 3; arXiv 2607.17572)."""

import torch

from jagg.gradients.window import Estimate, Estimator, Window


def jagg(window: Window) -> Estimate:
    """Nodes 0 and W-1 with weights 1 - alpha_j and alpha_j, alpha_j = (t_0 - t_j) / (t_0 - t_{W-1}), t = sigma."""
    alpha = window.alphas
    return Estimate((0, len(window) - 1), torch.stack([1 - alpha, alpha]))


ESTIMATOR = Estimator.certain(jagg, expected_nodes=lambda length: 2.0)
