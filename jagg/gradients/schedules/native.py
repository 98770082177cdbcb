"""Schedules that make graphs in the update: `native` recomputes every transition, `reuse` the nodes (math.md 4)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jagg.algorithms.objective import Signals
from jagg.backbones.protocol import TextFeatures
from jagg.flow.rollout import Rollout, batched_velocity, rollout
from jagg.flow.schedule import TransitionPlan
from jagg.gradients.schedules.protocol import Forwards, Held, Method, Network, UpdateStatistics
from jagg.gradients.schedules.windows import (
    Generators,
    draw_estimate,
    parts,
    trained_rows,
    window_signals,
)
from jagg.gradients.window import Estimate, WindowNodes


@dataclass(frozen=True)
class Recompute:
    """See `jagg.gradients.schedules.protocol.Schedule`."""

    on_policy: bool
    """Signals come from the velocities of the rollout, which are the policy's own as long as it is unchanged."""
    before_nodes_are_known = False

    def rollout(
        self,
        network: Network,
        method: Method,
        plan: TransitionPlan,
        text: TextFeatures,
        initial: Float[Tensor, "batch tokens channels"],
        noise: Callable[[int], Float[Tensor, "batch tokens channels"]],
        generator: Generators,
    ) -> Rollout:
        return rollout(network, plan, text, initial, noise, method.batch_size)

    def accumulate(
        self,
        network: Network,
        method: Method,
        rollout: Rollout,
        advantages: Float[Tensor, "all"],
        samples: slice,
        generator: Generators,
    ) -> UpdateStatistics:
        plan = rollout.plan
        first, last, _ = samples.indices(len(advantages))
        scale = 1 / ((last - first) * len(plan.trained))
        ratio, loss = rollout.log_probs.new_empty(2, len(plan.trained), last - first)
        windows = []
        for transitions in plan.windows:
            rows = trained_rows(plan, transitions)
            drawn = draw_estimate(method, rollout, transitions, samples, generator(transitions[0]))
            windows.append(drawn.nodes)
            # A window's nodes go through together, so fewer samples at a time keep the passes at a time.
            size = max(1, method.batch_size // len(drawn.estimate.nodes))
            for part in parts(last - first, size, first):
                within = slice(part.start - first, part.stop - first)
                made = self._window_gradient(
                    network, method, rollout, transitions, part, advantages[part] * scale, drawn.estimate, within
                )
                ratio[rows, within], loss[rows, within] = made.ratio, made.loss / scale
        return UpdateStatistics(ratio, loss, tuple(windows))

    def window_forwards(self, graphs: float, length: int) -> Forwards:
        return Forwards(with_grad=graphs, without_grad=length if self.on_policy else 2 * length - graphs)

    def held(self, windows: list[WindowNodes], batch_size: int, images: int) -> Held:
        counts = [math.ceil(window.nodes) for window in windows]
        return Held(max(max(1, batch_size // count) * count for count in counts), 1)

    def _window_gradient(
        self,
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
        with torch.enable_grad():
            of_nodes = network.velocity(*_joined(latents, told, text, nodes))
        velocities = None
        if not self.on_policy:
            velocities = torch.empty_like(latents)
            velocities[nodes] = of_nodes.detach().unflatten(0, (len(nodes), -1))
            others = [place for place in range(len(transitions)) if place not in estimate.nodes]
            if others:
                of_others = batched_velocity(network, *_joined(latents, told, text, others), method.batch_size)
                velocities[others] = of_others.unflatten(0, (len(others), -1))
        made = window_signals(rollout, transitions, samples, advantages, method.clip_range, velocities)
        network.backward(of_nodes, estimate.node_signals(made.signals, within).flatten(0, 1))
        return made


def _joined(
    latents: Tensor, told: Tensor, text: TextFeatures, places: list[int]
) -> tuple[Float[Tensor, "joined tokens channels"], Float[Tensor, "joined"], TextFeatures]:
    """Samples of several places of a window as one batch, place by place."""
    batch = latents.shape[1]
    repeated = text if len(places) == 1 else text[list(range(batch)) * len(places)]
    return latents[places].flatten(0, 1), told[places].repeat_interleave(batch), repeated


NATIVE = Recompute(on_policy=False)
REUSE = Recompute(on_policy=True)
