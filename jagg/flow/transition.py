"""One transition of the sampler and its log-probability (math.md 1).

Coefficients are numbers, or float64 tensors that broadcast over the latents so that many transitions go at once; both
are worked out in float64 and rounded once, when they meet the latents, so that the two ways agree bit for bit.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

Coefficient = float | Float[Tensor, "*#shape"]


def rounded(coefficient: Coefficient, like: Tensor) -> Coefficient:
    """A coefficient in the number format of the latents."""
    return coefficient.to(like) if isinstance(coefficient, Tensor) else coefficient


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
    return latents * rounded(shrink, latents) + velocity * rounded(velocity_coefficient(sigma, sigma_next, g), latents)


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
    return Step(mean, std, mean if noise is None else mean + rounded(std, latents) * noise)


def log_prob(
    next_latents: Float[Tensor, "*batch tokens channels"],
    mean: Float[Tensor, "*batch tokens channels"],
    std: Coefficient,
) -> Float64[Tensor, "*batch"]:
    """Gaussian log density of the next state, averaged over tokens and channels (both reference codes average).

    In float64: the ratio of two policies is the exponential of a small difference of these.
    """
    # Standardise before squaring: (z - mu)^2 and std^2 apart lose float32 digits where std is small.
    standardised = (next_latents - mean) / rounded(std, mean)
    log_std = torch.log(std).mean(dim=(-2, -1)) if isinstance(std, Tensor) else math.log(std)
    squares = standardised.square().mean(dim=(-2, -1), dtype=torch.float64)
    return -0.5 * squares - log_std - 0.5 * math.log(2 * math.pi)
