"""One transition of the sampler and its log-probability (math.md 1).

Coefficients are numbers, or tensors that broadcast over the latents so that many transitions go at once.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Coefficient = float | Float[Tensor, "*#shape"]


class Step(NamedTuple):
    """A Gaussian transition and the state drawn from it."""

    mean: Float[Tensor, "*batch tokens channels"]
    std: Coefficient
    next: Float[Tensor, "*batch tokens channels"]


def transition_std(sigma: Coefficient, sigma_next: Coefficient, g: Coefficient) -> Coefficient:
    """Standard deviation of a transition: g sqrt(-dsigma)."""
    return g * (sigma - sigma_next) ** 0.5


def velocity_coefficient(sigma: Coefficient, sigma_next: Coefficient, g: Coefficient) -> Coefficient:
    """b = d mu / d v = (1 + g^2 (1 - sigma) / (2 sigma)) dsigma, one number a transition."""
    return (1 + g**2 * (1 - sigma) / (2 * sigma)) * (sigma_next - sigma)


def transition_mean(
    latents: Float[Tensor, "*batch tokens channels"],
    velocity: Float[Tensor, "*batch tokens channels"],
    sigma: Coefficient,
    sigma_next: Coefficient,
    g: Coefficient,
) -> Float[Tensor, "*batch tokens channels"]:
    """mu = z (1 + g^2 / (2 sigma) dsigma) + b v."""
    shrink = 1 + g**2 / (2 * sigma) * (sigma_next - sigma)
    return latents * shrink + velocity * velocity_coefficient(sigma, sigma_next, g)


def sde_step(
    latents: Float[Tensor, "*batch tokens channels"],
    velocity: Float[Tensor, "*batch tokens channels"],
    sigma: Coefficient,
    sigma_next: Coefficient,
    g: Coefficient,
    noise: Float[Tensor, "*batch tokens channels"] | None = None,
) -> Step:
    """One step from sigma to sigma_next; without noise the next state is the mean, and g = 0 is the ODE step."""
    mean = transition_mean(latents, velocity, sigma, sigma_next, g)
    std = transition_std(sigma, sigma_next, g)
    return Step(mean, std, mean if noise is None else mean + std * noise)


def log_prob(
    next_latents: Float[Tensor, "*batch tokens channels"],
    mean: Float[Tensor, "*batch tokens channels"],
    std: Coefficient,
) -> Float[Tensor, "*batch"]:
    """Gaussian log density of the next state, averaged over tokens and channels (both reference codes average)."""
    # Standardise before squaring: (z - mu)^2 and std^2 apart lose float32 digits where std is small.
    standardised = (next_latents - mean) / std
    log_std = torch.log(std).mean(dim=(-2, -1)) if isinstance(std, Tensor) else math.log(std)
    return -0.5 * standardised.square().mean(dim=(-2, -1)) - log_std - 0.5 * math.log(2 * math.pi)
