"""Jacobians predicted at the states that were really visited: simple kriging from the window's ends (math.md 3)."""

import torch
from jaxtyping import Float
from torch import Tensor

from jagg.gradients.window import Estimate, Estimator, Window


def kriging(window: Window) -> Estimate:
    """Nodes 0 and W-1; each sample's weights minimise E ||J_j - w_0 J_0 - w_1 J_{W-1}||^2 under a Gaussian process.

    The prior is that of a velocity linear in x = (z, t, 1) with independent weights of equal variance: the covariance
    of two Jacobians is the linear kernel `<z, z'> + t t' + 1`. On the chord this is JAGG; off it, the weights follow
    the state and not the noise level alone.
    """
    x = _inputs(window)
    ends = x[[0, -1]]
    gram = torch.einsum("kbi,lbi->bkl", ends, ends)
    towards = torch.einsum("kbi,jbi->bkj", ends, x)
    weights = torch.linalg.solve(gram, towards)
    return Estimate((0, len(window) - 1), weights.permute(1, 2, 0))


def _inputs(window: Window) -> Float[Tensor, "window batch inputs"]:
    z = window.latents.double().flatten(2)
    t = torch.tensor(window.sigmas, dtype=torch.float64, device=z.device)[:, None, None].expand(-1, z.shape[1], 1)
    return torch.cat([z, t, torch.ones_like(t)], dim=2)


ESTIMATOR = Estimator.certain(kriging, expected_nodes=lambda length: 2.0)
