"""Trajectories: stochastic rollouts for training, and the deterministic sampler of evaluation."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from jagg.backbones.protocol import Backbone, TextFeatures
from jagg.flow.schedule import TransitionPlan
from jagg.flow.transition import log_prob, sde_step


@runtime_checkable
class VelocityField(Protocol):
    """Anything with a backbone's velocity; training puts the pass ledger here."""

    def velocity(
        self, latents: Float[Tensor, "batch tokens channels"], sigma: Float[Tensor, "batch"], text: TextFeatures
    ) -> Float[Tensor, "batch tokens channels"]: ...


@dataclass(frozen=True)
class Rollout:
    """Trajectories of a batch, without gradients."""

    plan: TransitionPlan
    text: TextFeatures
    """Prompt features of each trajectory."""
    latents: Float[Tensor, "states batch tokens channels"]
    """States 0..T."""
    velocities: Float[Tensor, "steps batch tokens channels"]
    log_probs: Float64[Tensor, "steps batch"]
    """Of each transition under the policy that drew it; 0 for ODE steps."""

    @property
    def clean(self) -> Float[Tensor, "batch tokens channels"]:
        """What is decoded: x0 as the last velocity predicts it, so the last transition's noise never reaches an image.

        The reference DanceGRPO code decodes this too; without it the reward would be paid for hiding that noise.
        """
        last = self.plan.sampling_steps - 1
        return self.latents[last] - self.plan.sigmas[last] * self.velocities[last]


@torch.no_grad()
def batched_velocity(
    field: VelocityField,
    latents: Float[Tensor, "batch tokens channels"],
    sigma: Float[Tensor, "batch"],
    text: TextFeatures,
    batch_size: int,
) -> Float[Tensor, "batch tokens channels"]:
    """Velocities without gradients, at most `batch_size` samples at a time."""
    parts = [slice(first, first + batch_size) for first in range(0, len(latents), batch_size)]
    return torch.cat([field.velocity(latents[part], sigma[part], text[part]) for part in parts])


@torch.no_grad()
def rollout(
    field: VelocityField,
    plan: TransitionPlan,
    text: TextFeatures,
    initial: Float[Tensor, "batch tokens channels"],
    noise: Callable[[int], Float[Tensor, "batch tokens channels"]],
    batch_size: int,
) -> Rollout:
    """Draw one trajectory from each initial latent; `noise` gives the noise of a denoising step (math.md 1)."""
    steps = plan.sampling_steps
    latents = initial.new_empty(steps + 1, *initial.shape)
    velocities = initial.new_empty(steps, *initial.shape)
    log_probs = initial.new_zeros(steps, len(initial), dtype=torch.float64)
    latents[0] = initial
    for j in range(steps):
        told = initial.new_full((len(initial),), plan.model_sigmas[j])
        velocities[j] = batched_velocity(field, latents[j], told, text, batch_size)
        g = plan.diffusion[j]
        drawn = noise(j).to(initial) if g > 0 else None
        step = sde_step(latents[j], velocities[j], plan.sigmas[j], plan.sigmas[j + 1], g, drawn)
        latents[j + 1] = step.next
        if g > 0:
            log_probs[j] = log_prob(step.next, step.mean, step.std)
    return Rollout(plan, text, latents, velocities, log_probs)


@torch.no_grad()
def sample_ode(
    backbone: Backbone,
    text: TextFeatures,
    initial: Float[Tensor, "batch tokens channels"],
    sigmas: tuple[float, ...],
) -> Float[Tensor, "batch tokens channels"]:
    """Clean latents by Euler steps along the exact schedule; the sampler of every evaluation."""
    latents = initial
    for sigma, sigma_next in pairwise(sigmas):
        velocity = backbone.velocity(latents, initial.new_full((len(initial),), sigma), text)
        latents = sde_step(latents, velocity, sigma, sigma_next, 0.0).next
    return latents
