"""Jacobians interpolated by a parabola in the noise level, through both ends and the middle (math.md 3)."""

import torch

from jagg.gradients.window import Estimate, Estimator, Window


def quadratic(window: Window) -> Estimate:
    """Nodes 0, floor(W/2) and W-1 with Lagrange weights in t = sigma; exact up to W = 3."""
    nodes = tuple(sorted({0, len(window) // 2, len(window) - 1}))
    t = window.alphas  # an affine map of t leaves Lagrange weights as they are
    weights = torch.ones(len(nodes), len(window), dtype=torch.float64)
    for row, node in enumerate(nodes):
        for other in nodes:
            if other != node:
                weights[row] *= (t - t[other]) / (t[node] - t[other])
    return Estimate(nodes, weights)


ESTIMATOR = Estimator.certain(quadratic, expected_nodes=lambda length: float(min(3, length)))
