"""What the schedules share: the estimate of a window, its signals, and the coefficients of its transitions."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from jagg.algorithms.objective import Signals, clipped_signals
from jagg.flow.rollout import Rollout
from jagg.flow.schedule import TransitionPlan
from jagg.gradients.routing import is_exact, route, route_by_confidence, states_decide
from jagg.gradients.schedules.protocol import Method
from jagg.gradients.window import Estimate, Window, WindowNodes


class DrawnEstimate(NamedTuple):
    """The estimate of one window, and what the ledger is told of it."""

    estimate: Estimate
    nodes: WindowNodes


def draw_estimate(
    method: Method, rollout: Rollout, transitions: tuple[int, ...], samples: slice, generator: torch.Generator
) -> DrawnEstimate:
    """Route a window, by place and then by confidence, and draw its estimate for some samples (math.md 3)."""
    window = window_of(rollout, transitions, samples)
    by_place = route(method.estimator, transitions[0], len(transitions), rollout.plan.sampling_steps, method.jagg_frac)
    estimator = route_by_confidence(by_place, window, method.max_residual)
    estimate = estimator.estimate(window, generator)
    exact = is_exact(estimator)
    return DrawnEstimate(
        estimate, WindowNodes(len(estimate.nodes), len(transitions), exact, estimator.mean_nodes(window))
    )


def undecided(method: Method, plan: TransitionPlan, transitions: tuple[int, ...]) -> bool:
    """Whether the nodes of a window are not known before its states are."""
    chosen = route(method.estimator, transitions[0], len(transitions), plan.sampling_steps, method.jagg_frac)
    return states_decide(chosen, method.max_residual is not None)


def nodes_ahead(
    method: Method,
    plan: TransitionPlan,
    transitions: tuple[int, ...],
    initial: Float[Tensor, "batch tokens channels"],
    generator: torch.Generator,
) -> tuple[int, ...]:
    """Transitions of a window that may become nodes, before the window is rolled out.

    Just the nodes where place and chance decide, drawn with the generator that the estimate is drawn with; all of the
    window's where its states have a say.
    """
    if undecided(method, plan, transitions):
        return transitions
    chosen = route(method.estimator, transitions[0], len(transitions), plan.sampling_steps, method.jagg_frac)
    blank = initial.new_zeros(len(transitions), 1, 1, 1)
    estimate = chosen.estimate(Window(tuple(plan.sigmas[j] for j in transitions), blank, blank), generator)
    return tuple(transitions[node] for node in estimate.nodes)


def window_of(rollout: Rollout, transitions: tuple[int, ...], samples: slice) -> Window:
    """The states and velocities of a window at rollout."""
    rows = slice(transitions[0], transitions[-1] + 1)
    return Window(
        tuple(rollout.plan.sigmas[j] for j in transitions),
        rollout.latents[rows, samples],
        rollout.velocities[rows, samples],
    )


def window_signals(
    rollout: Rollout,
    transitions: tuple[int, ...],
    samples: slice,
    advantages: Float[Tensor, "batch"],
    clip_range: float,
    velocities: Float[Tensor, "window batch tokens channels"] | None = None,
) -> Signals:
    """Upstream signals of a window's transitions; `velocities` of the present policy, None: those of the rollout.

    With the rollout's own velocities the ratio is 1 but for float64 rounding, so that clipping never acts and signals
    are linear in the advantages (math.md 2 and 4).
    """
    rows = slice(transitions[0], transitions[-1] + 1)
    return clipped_signals(
        rollout.latents[rows, samples],
        rollout.latents[rows.start + 1 : rows.stop + 1, samples],
        rollout.velocities[rows, samples] if velocities is None else velocities,
        rollout.log_probs[rows, samples],
        advantages,
        **coefficients(rollout.plan, transitions, rollout.latents.device),
        clip_range=clip_range,
    )


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


def parts(count: int, size: int, first: int = 0) -> Iterator[slice]:
    """Samples first..first+count-1, at most `size` at a time."""
    return (slice(at, min(at + size, first + count)) for at in range(first, first + count, size))


def trained_rows(plan: TransitionPlan, transitions: tuple[int, ...]) -> slice:
    """Where a window's transitions stand among the trained ones."""
    return slice(transitions[0] - plan.trained[0], transitions[-1] + 1 - plan.trained[0])


Generators = Callable[[int], torch.Generator]
"""First transition of a window -> the estimator's own generator for it, in the same state at every call."""
