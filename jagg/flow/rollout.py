"""Trajectories: stochastic rollouts for training, and the deterministic sampler of evaluation."""

from collections.abc import Callable, Iterator
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

    def velocity(j: int, latents: Tensor) -> Tensor:
        return batched_velocity(field, latents, told_sigma(plan, j, latents), text, batch_size)

    *_, (_, made) = transitions(velocity, plan, text, initial, noise)
    return made


@torch.no_grad()
def transitions(
    velocity: Callable[[int, Float[Tensor, "batch tokens channels"]], Float[Tensor, "batch tokens channels"]],
    plan: TransitionPlan,
    text: TextFeatures,
    initial: Float[Tensor, "batch tokens channels"],
    noise: Callable[[int], Float[Tensor, "batch tokens channels"]],
) -> Iterator[tuple[int, Rollout]]:
    """Draw trajectories step by step: after each denoising step, the step and the trajectories, filled so far.

    `velocity`: of a denoising step and its latents, without gradients.
    """
    steps = plan.sampling_steps
    latents = initial.new_empty(steps + 1, *initial.shape)
    velocities = initial.new_empty(steps, *initial.shape)
    log_probs = initial.new_zeros(steps, len(initial), dtype=torch.float64)
    # A state of its own: graphs may hold it, and must not see the buffer written to.
    latents[0] = state = initial
    made = Rollout(plan, text, latents, velocities, log_probs)
    for j in range(steps):
        velocities[j] = velocity(j, state)
        g = plan.diffusion[j]
        drawn = noise(j).to(initial) if g > 0 else None
        step = sde_step(state, velocities[j], plan.sigmas[j], plan.sigmas[j + 1], g, drawn)
        latents[j + 1] = state = step.next
        if g > 0:
            log_probs[j] = log_prob(step.next, step.mean, step.std)
        yield j, made


def told_sigma(plan: TransitionPlan, j: int, latents: Float[Tensor, "batch tokens channels"]) -> Float[Tensor, "batch"]:
    """What the transformer is told the noise level of denoising step j is, once a sample."""
    return latents.new_full((len(latents),), plan.model_sigmas[j])


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
