"""The retain schedule: the nodes' graphs are made in the rollout and kept until advantages are known (math.md 4)."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jagg.backbones.protocol import TextFeatures
from jagg.flow.rollout import Rollout, VelocityField, batched_velocity, told_sigma, transitions
from jagg.flow.schedule import TransitionPlan
from jagg.gradients.schedules.protocol import Forwards, Held, Method, Network, UpdateStatistics
from jagg.gradients.schedules.windows import (
    DrawnEstimate,
    Generators,
    draw_estimate,
    nodes_ahead,
    parts,
    trained_rows,
    window_signals,
)
from jagg.gradients.window import WindowNodes

ALL = slice(None)


@dataclass(frozen=True)
class Retained(Rollout):
    """Trajectories with the graphs of their nodes."""

    graphs: dict[int, list[Tensor]]
    """Transition -> its velocities with their graphs, `batch_size` samples at a time."""
    drawn: dict[int, DrawnEstimate]
    """First transition of a window -> its estimate, drawn as soon as its states were known."""


@dataclass(frozen=True)
class Retain:
    """See `jagg.gradients.schedules.protocol.Schedule`; valid while the policy is the one of the rollout."""

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
    ) -> Retained:
        graphs, drawn = {}, {}
        ahead = {j for w in plan.windows for j in nodes_ahead(method, plan, w, initial, generator(w[0]))}
        ends = {w[-1]: w for w in plan.windows}

        def velocity(j: int, latents: Tensor) -> Tensor:
            sigma = told_sigma(plan, j, latents)
            if j not in ahead:
                return batched_velocity(network, latents, sigma, text, method.batch_size)
            graphs[j] = with_graphs([network] * len(latents), latents, sigma, text, method.batch_size)
            return torch.cat([part.detach() for part in graphs[j]])

        for j, made in transitions(velocity, plan, text, initial, noise):
            if j in ends:
                window = ends[j]
                drawn[window[0]] = settle(method, made, window, generator, graphs)
        return Retained(**vars(made), graphs=graphs, drawn=drawn)

    def accumulate(
        self,
        network: Network,
        method: Method,
        rollout: Rollout,
        advantages: Float[Tensor, "all"],
        samples: slice,
        generator: Generators,
    ) -> UpdateStatistics:
        assert isinstance(rollout, Retained)
        count = len(advantages)
        assert samples.indices(count) == (0, count, 1), "graphs are kept for one update of all images"
        plan = rollout.plan
        scale = 1 / (count * len(plan.trained))
        ratio, loss = rollout.log_probs.new_empty(2, len(plan.trained), count)
        for window in plan.windows:
            made = window_signals(rollout, window, ALL, advantages * scale, method.clip_range)
            rows = trained_rows(plan, window)
            ratio[rows], loss[rows] = made.ratio, made.loss / scale
            estimate = rollout.drawn[window[0]].estimate
            for node, signals in zip(estimate.nodes, estimate.node_signals(made.signals, ALL)):
                # Popped one by one, so that memory falls as the update goes on.
                graphs = rollout.graphs.pop(window[node])
                for part in parts(count, method.batch_size):
                    network.backward(graphs.pop(0), signals[part])
        return UpdateStatistics(ratio, loss, tuple(rollout.drawn[w[0]].nodes for w in plan.windows))

    def window_forwards(self, graphs: float, length: int) -> Forwards:
        return Forwards(with_grad=graphs, without_grad=length - graphs)

    def held(self, windows: list[WindowNodes], batch_size: int, images: int) -> Held:
        # A window's graphs stand beside the nodes of those before it, until it lets go of what it does not need.
        kept = list(itertools.accumulate((math.ceil(window.nodes) for window in windows), initial=0))
        alive = [before + most_graphs(window) for before, window in zip(kept, windows)]
        return Held(images * max(kept[-1], *alive), 1)


def with_graphs(
    fields: Sequence[VelocityField],
    latents: Float[Tensor, "batch tokens channels"],
    sigma: Float[Tensor, "batch"],
    text: TextFeatures,
    batch_size: int,
) -> list[Tensor]:
    """Velocities with their graphs, `batch_size` samples at a time, each part by its own field."""
    with torch.enable_grad():
        return [
            field.velocity(latents[part], sigma[part], text[part])
            for field, part in zip(fields, parts(len(latents), batch_size))
        ]


def most_graphs(window: WindowNodes) -> float:
    """Graphs of one sample's window at the end of its rollout, at most where nodes are drawn."""
    return math.ceil(window.nodes) if window.graphs is None else window.graphs


def settle(
    method: Method, made: Rollout, window: tuple[int, ...], generator: Generators, graphs: dict[int, list[Tensor]]
) -> DrawnEstimate:
    """Draw the estimate of a window that was just rolled out, and let go of the graphs that it does not need."""
    drawn = draw_estimate(method, made, window, ALL, generator(window[0]))
    kept = {window[node] for node in drawn.estimate.nodes}
    alive = [j for j in window if j in graphs]
    assert kept <= set(alive), f"nodes {sorted(kept)} of a window whose graphs are {alive}"
    for j in set(alive) - kept:
        del graphs[j]
    return DrawnEstimate(drawn.estimate, drawn.nodes._replace(graphs=len(alive)))
