"""The native schedule: roll out without gradients, recompute every transition in the update (math.md 4)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from jagg.algorithms.objective import Signals, clipped_signals
from jagg.backbones.protocol import TextFeatures
from jagg.flow.rollout import Rollout, batched_velocity, rollout
from jagg.flow.schedule import TransitionPlan
from jagg.gradients.routing import route
from jagg.gradients.schedules.protocol import Forwards, Method, Network, UpdateStatistics
from jagg.gradients.window import Estimate, Window


@dataclass(frozen=True)
class Native:
    """See `jagg.gradients.schedules.protocol.Schedule`."""

    def rollout(
        self,
        network: Network,
        method: Method,
        plan: TransitionPlan,
        text: TextFeatures,
        initial: Float[Tensor, "batch tokens channels"],
        noise: Callable[[int], Float[Tensor, "batch tokens channels"]],
        generator: Callable[[int], torch.Generator],
    ) -> Rollout:
        return rollout(network, plan, text, initial, noise, method.batch_size)

    def accumulate(
        self,
        network: Network,
        method: Method,
        rollout: Rollout,
        advantages: Float[Tensor, "all"],
        samples: slice,
        generator: Callable[[int], torch.Generator],
    ) -> UpdateStatistics:
        plan = rollout.plan
        first, last, _ = samples.indices(len(advantages))
        scale = 1 / ((last - first) * len(plan.trained))
        ratio, loss = rollout.log_probs.new_empty(2, len(plan.trained), last - first)
        for transitions in plan.windows:
            start, length = transitions[0], len(transitions)
            rows = slice(start - plan.trained[0], start - plan.trained[0] + length)
            estimator = route(method.estimator, start, length, plan.sampling_steps, method.jagg_frac)
            estimate = estimator.estimate(window_of(rollout, transitions, samples), generator(start))
            # A window's nodes go through together, so fewer samples at a time keep the passes at a time.
            size = max(1, method.batch_size // len(estimate.nodes))
            for at in range(first, last, size):
                part = slice(at, min(at + size, last))
                within = slice(part.start - first, part.stop - first)
                made = window_gradient(
                    network, method, rollout, transitions, part, advantages[part] * scale, estimate, within
                )
                ratio[rows, within], loss[rows, within] = made.ratio, made.loss / scale
        return UpdateStatistics(ratio, loss)

    def window_forwards(self, nodes: float, length: int) -> Forwards:
        return Forwards(with_grad=nodes, without_grad=length - nodes)


def window_of(rollout: Rollout, transitions: tuple[int, ...], samples: slice) -> Window:
    """The states and velocities of a window at rollout."""
    rows = slice(transitions[0], transitions[-1] + 1)
    return Window(
        tuple(rollout.plan.sigmas[j] for j in transitions),
        rollout.latents[rows, samples],
        rollout.velocities[rows, samples],
    )


def window_gradient(
    network: Network,
    method: Method,
    rollout: Rollout,
    transitions: tuple[int, ...],
    samples: slice,
    advantages: Float[Tensor, "batch"],
    estimate: Estimate,
    within: slice,
) -> Signals:
    """Back-propagate an estimate of one window's gradient for some samples, all nodes at once (math.md 3).

    `advantages` carry the weight of each sample in the loss; `within` says where the samples lie in the batch that
    the estimate was made for.
    """
    rows = slice(transitions[0], transitions[-1] + 1)
    latents = rollout.latents[rows, samples]
    text = rollout.text[samples]
    told = latents.new_tensor([rollout.plan.model_sigmas[j] for j in transitions])
    nodes = list(estimate.nodes)
    others = [place for place in range(len(transitions)) if place not in estimate.nodes]

    with torch.enable_grad():
        of_nodes = network.velocity(*_joined(latents, told, text, nodes))
    velocities = torch.empty_like(latents)
    velocities[nodes] = of_nodes.detach().unflatten(0, (len(nodes), -1))
    if others:
        of_others = batched_velocity(network, *_joined(latents, told, text, others), method.batch_size)
        velocities[others] = of_others.unflatten(0, (len(others), -1))

    made = clipped_signals(
        latents,
        rollout.latents[rows.start + 1 : rows.stop + 1, samples],
        velocities,
        rollout.log_probs[rows, samples],
        advantages,
        **coefficients(rollout.plan, transitions, latents.device),
        clip_range=method.clip_range,
    )
    network.backward(of_nodes, estimate.node_signals(made.signals, within).flatten(0, 1))
    return made


def coefficients(
    plan: TransitionPlan, transitions: tuple[int, ...], device: torch.device
) -> dict[str, Float64[Tensor, "transitions 1 1 1"]]:
    """sigma, sigma_next and g of transitions, to broadcast over (transitions, batch, tokens, channels)."""
    columns = {
        "sigma": [plan.sigmas[j] for j in transitions],
        "sigma_next": [plan.sigmas[j + 1] for j in transitions],
        "g": [plan.diffusion[j] for j in transitions],
    }
    return {
        name: torch.tensor(values, dtype=torch.float64, device=device)[:, None, None, None]
        for name, values in columns.items()
    }


def _joined(
    latents: Tensor, told: Tensor, text: TextFeatures, places: list[int]
) -> tuple[Float[Tensor, "joined tokens channels"], Float[Tensor, "joined"], TextFeatures]:
    """Samples of several places of a window as one batch, place by place."""
    batch = latents.shape[1]
    repeated = text if len(places) == 1 else text[list(range(batch)) * len(places)]
    return latents[places].flatten(0, 1), told[places].repeat_interleave(batch), repeated
