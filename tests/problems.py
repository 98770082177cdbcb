"""One fixed rollout and the gradients of its loss, by the code under test and by plain autograd."""

from dataclasses import dataclass, replace

import torch
from analytic import AnalyticBackbone, Curved
from torch import Tensor, nn

from jagg.algorithms.objective import clipped_objective
from jagg.flow import Rollout, StepNoise, rollout, shifted_sigmas
from jagg.flow.schedule import constant_diffusion, transition_plan
from jagg.flow.transition import log_prob, transition_mean, transition_std
from jagg.gradients import estimator_of, schedule_of
from jagg.gradients.schedules.protocol import Method
from jagg.gradients.window import Estimator
from jagg.train.ledger import Ledger


@dataclass(frozen=True)
class Problem:
    """A batch of trajectories, their advantages, and the policy to be trained."""

    backbone: AnalyticBackbone
    rollout: Rollout
    advantages: Tensor
    clip_range: float = 10.0

    @property
    def images(self) -> int:
        return len(self.advantages)


def problem(
    module: nn.Module | None = None,
    *,
    images: int = 6,
    steps: int = 10,
    g: float = 0.5,
    off_policy: float = 0.0,
    seed: int = 0,
    first: int = 0,
) -> Problem:
    """Float64 trajectories of a policy; `off_policy` moves the parameters after the rollout."""
    backbone = AnalyticBackbone(module or Curved(dtype=torch.float64))
    sigmas = shifted_sigmas(steps, 3.0)
    plan = transition_plan(
        sigmas, constant_diffusion(sigmas, g), tuple(range(first, steps)), window=4, quantise_timestep=False
    )
    noise = StepNoise(seed, 0, 1, ["red"] * images, list(range(images)), backbone.latent_shape)
    text = backbone.encode_prompts(["red", "green"] * (images // 2))
    made = rollout(backbone, plan, text, noise.initial(False).double(), noise.transition, images)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in backbone.transformer.parameters():
            parameter.add_(off_policy * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return Problem(backbone, made, torch.randn(images, generator=generator, dtype=torch.float64))


def gradient(
    of: Problem,
    estimator: str | Estimator = "exact",
    *,
    jagg_frac: float = 1.0,
    batch_size: int = 100,
    splits: int = 1,
    max_residual: float | None = None,
) -> dict[str, Tensor]:
    """The gradient that the native schedule accumulates, by parameter name; `splits` calls share the images."""
    transformer = of.backbone.transformer
    transformer.zero_grad(set_to_none=True)
    chosen = estimator_of(estimator) if isinstance(estimator, str) else estimator
    method = Method(chosen, jagg_frac, of.clip_range, batch_size, max_residual)
    share = of.images // splits
    for part in range(splits):
        schedule_of("native").accumulate(
            Ledger(of.backbone),
            method,
            of.rollout,
            of.advantages / splits,
            slice(part * share, (part + 1) * share),
            lambda start: torch.Generator().manual_seed(start),
        )
    return {name: parameter.grad.clone() for name, parameter in transformer.named_parameters()}


def autograd_gradient(of: Problem) -> dict[str, Tensor]:
    """The gradient of the written-out loss: every transition in one graph, nothing in closed form."""
    plan, made = of.rollout.plan, of.rollout
    total = torch.zeros((), dtype=torch.float64)
    for j in plan.trained:
        levels = (plan.sigmas[j], plan.sigmas[j + 1], plan.diffusion[j])
        velocity = of.backbone.velocity(
            made.latents[j], torch.full((of.images,), plan.model_sigmas[j], dtype=torch.float64), made.text
        )
        mean = transition_mean(made.latents[j], velocity, *levels)
        ratio = torch.exp(log_prob(made.latents[j + 1], mean, transition_std(*levels)) - made.log_probs[j])
        total = total + clipped_objective(ratio, of.advantages, of.clip_range).mean() / len(plan.trained)
    named = dict(of.backbone.transformer.named_parameters())
    return dict(zip(named, torch.autograd.grad(total, list(named.values()))))


def permuted(of: Problem, order: Tensor) -> Problem:
    made = of.rollout
    moved = Rollout(
        made.plan, made.text[order], made.latents[:, order], made.velocities[:, order], made.log_probs[:, order]
    )
    return replace(of, rollout=moved, advantages=of.advantages[order])


def on_chord(of: Problem) -> Problem:
    """The same trajectories with each window's inner states moved onto the line between its end states."""
    made = of.rollout
    latents = made.latents.clone()
    for window in made.plan.windows:
        t = [made.plan.sigmas[j] for j in window]
        for j, at in zip(window, t):
            alpha = (t[0] - at) / (t[0] - t[-1]) if len(window) > 1 else 0.0
            latents[j] = (1 - alpha) * made.latents[window[0]] + alpha * made.latents[window[-1]]
    return replace(of, rollout=replace(made, latents=latents))
