"""The reweight schedule: back-propagate in the rollout with advantage 1, weigh each sample afterwards (math.md 4)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from jagg.backbones.protocol import TextFeatures
from jagg.flow.rollout import Rollout, batched_velocity, told_sigma, transitions
from jagg.flow.schedule import TransitionPlan
from jagg.gradients.schedules.protocol import Forwards, Held, Method, Network, SampleNetwork, UpdateStatistics
from jagg.gradients.schedules.retain import ALL, most_graphs, settle, with_graphs
from jagg.gradients.schedules.windows import Generators, nodes_ahead, parts, trained_rows, undecided, window_signals
from jagg.gradients.window import WindowNodes


@dataclass(frozen=True)
class Weighable(Rollout):
    """Trajectories with the gradient that each sample would have with advantage 1."""

    gradients: list[SampleNetwork]
    """Of `batch_size` samples at a time."""
    windows: tuple[WindowNodes, ...]


@dataclass(frozen=True)
class Reweight:
    """See `jagg.gradients.schedules.protocol.Schedule`; valid while the ratio is exactly 1."""

    before_nodes_are_known = True

    def rollout(
        self,
        network: Network,
        method: Method,
        plan: TransitionPlan,
        text: TextFeatures,
        initial: Float[Tensor, "batch tokens channels"],
        noise: Callable[[int], Float[Tensor, "batch tokens channels"]],
        generator: Generators,
    ) -> Weighable:
        # Each batch goes through its whole trajectory alone, so no more graphs live than one window's of one batch;
        # only where the states of all samples decide on the nodes must they go side by side.
        together = any(undecided(method, plan, window) for window in plan.windows)
        size = len(initial) if together else method.batch_size
        drawn = cache(noise)

        def rolled(part: slice) -> Weighable:
            return _roll(network, method, plan, text[part], initial[part], lambda j: drawn(j)[part], generator)

        made = [rolled(part) for part in parts(len(initial), size)]
        return Weighable(
            plan,
            text,
            latents=torch.cat([part.latents for part in made], dim=1),
            velocities=torch.cat([part.velocities for part in made], dim=1),
            log_probs=torch.cat([part.log_probs for part in made], dim=1),
            gradients=[gradients for part in made for gradients in part.gradients],
            windows=made[0].windows,
        )

    def accumulate(
        self,
        network: Network,
        method: Method,
        rollout: Rollout,
        advantages: Float[Tensor, "all"],
        samples: slice,
        generator: Generators,
    ) -> UpdateStatistics:
        assert isinstance(rollout, Weighable)
        count = len(advantages)
        assert samples.indices(count) == (0, count, 1), "gradients are kept for one update of all images"
        plan = rollout.plan
        ratio, loss = rollout.log_probs.new_empty(2, len(plan.trained), count)
        for window in plan.windows:
            made = window_signals(rollout, window, ALL, advantages, method.clip_range)
            rows = trained_rows(plan, window)
            ratio[rows], loss[rows] = made.ratio, made.loss
        for part in parts(count, method.batch_size):
            rollout.gradients.pop(0).add(advantages[part] / (count * len(plan.trained)))
        return UpdateStatistics(ratio, loss, rollout.windows)

    def window_forwards(self, graphs: float, length: int) -> Forwards:
        return Forwards(with_grad=graphs, without_grad=length - graphs)

    def held(self, windows: list[WindowNodes], batch_size: int, images: int) -> Held:
        together = any(window.graphs is not None for window in windows)
        samples = images if together else min(batch_size, images)
        return Held(samples * max(map(most_graphs, windows)), 1 + images)


def _roll(
    network: Network,
    method: Method,
    plan: TransitionPlan,
    text: TextFeatures,
    initial: Float[Tensor, "batch tokens channels"],
    noise: Callable[[int], Float[Tensor, "batch tokens channels"]],
    generator: Generators,
) -> Weighable:
    graphs: dict[int, list[Tensor]] = {}
    windows = []
    batches = list(parts(len(initial), method.batch_size))
    apart = [network.apart() for _ in batches]
    ahead = {j for w in plan.windows for j in nodes_ahead(method, plan, w, initial, generator(w[0]))}
    ends = {w[-1]: w for w in plan.windows}

    def velocity(j: int, latents: Tensor) -> Tensor:
        sigma = told_sigma(plan, j, latents)
        if j not in ahead:
            return batched_velocity(network, latents, sigma, text, method.batch_size)
        graphs[j] = with_graphs(apart, latents, sigma, text, method.batch_size)
        return torch.cat([part.detach() for part in graphs[j]])

    for j, made in transitions(velocity, plan, text, initial, noise):
        if j in ends:
            window = ends[j]
            drawn = settle(method, made, window, generator, graphs)
            windows.append(drawn.nodes)
            unit = window_signals(made, window, ALL, initial.new_ones(len(initial)), method.clip_range).signals
            for node, signals in zip(drawn.estimate.nodes, drawn.estimate.node_signals(unit, ALL)):
                for of, part, velocities in zip(apart, batches, graphs.pop(window[node])):
                    of.backward(velocities, signals[part])
    return Weighable(**vars(made), gradients=apart, windows=tuple(windows))
