"""The clipped objective of one transition and its derivative by the velocity (math.md 2 and 3)."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jagg.flow.transition import (
    Coefficient,
    log_prob,
    rounded,
    transition_mean,
    transition_std,
    velocity_coefficient,
)


def clipped_objective(
    ratio: Float[Tensor, "*transitions batch"], advantages: Float[Tensor, "batch"], clip_range: float
) -> Float[Tensor, "*transitions batch"]:
    """L = max(-A rho, -A clip(rho, 1 - eps, 1 + eps)), one value a sample and transition (math.md 2)."""
    return torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - clip_range, 1 + clip_range))


class Signals(NamedTuple):
    """Upstream signals s_j = dL_j / dv_j of transitions, and what they were made from."""

    signals: Float[Tensor, "transitions batch tokens channels"]
    ratio: Float[Tensor, "transitions batch"]
    loss: Float[Tensor, "transitions batch"]


def clipped_signals(
    latents: Float[Tensor, "transitions batch tokens channels"],
    next_latents: Float[Tensor, "transitions batch tokens channels"],
    velocities: Float[Tensor, "transitions batch tokens channels"],
    old_log_probs: Float[Tensor, "transitions batch"],
    advantages: Float[Tensor, "batch"],
    *,
    sigma: Coefficient,
    sigma_next: Coefficient,
    g: Coefficient,
    clip_range: float,
) -> Signals:
    """s_j in closed form: dL/drho rho dlogp/dmu b, zero where the clip holds the ratio (math.md 3).

    The log-probability is a mean, so its derivative by one latent carries 1 / (tokens channels).
    """
    mean = transition_mean(latents, velocities, sigma, sigma_next, g)
    std = transition_std(sigma, sigma_next, g)
    ratio = torch.exp(log_prob(next_latents, mean, std) - old_log_probs)
    loss = clipped_objective(ratio, advantages, clip_range)
    passes_clip = -advantages * ratio >= loss
    by_log_prob = torch.where(passes_clip, -advantages * ratio, 0.0) / latents[0, 0].numel()
    by_velocity = rounded(velocity_coefficient(sigma, sigma_next, g) / std**2, latents)
    return Signals(by_log_prob.to(latents)[..., None, None] * (next_latents - mean) * by_velocity, ratio, loss)
