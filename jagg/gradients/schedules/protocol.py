"""What training asks of a schedule, and of the network that it back-propagates through."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from jagg.backbones.protocol import TextFeatures
from jagg.flow.rollout import Rollout, VelocityField
from jagg.flow.schedule import TransitionPlan
from jagg.gradients.window import Estimator


@runtime_checkable
class Network(VelocityField, Protocol):
    """The velocity and the only way to back-propagate through it, so that passes are counted in one place."""

    def backward(
        self, velocity: Float[Tensor, "batch tokens channels"], signal: Float[Tensor, "batch tokens channels"]
    ) -> None:
        """Add J^T signal to the parameters' gradients; `velocity` was made with gradients on."""
        ...


@dataclass(frozen=True)
class Method:
    """An arm, resolved for its algorithm: how a step's gradient is made."""

    estimator: Estimator
    jagg_frac: float
    clip_range: float
    batch_size: int
    """Samples that go through the transformer at a time."""


class UpdateStatistics(NamedTuple):
    """Of the trained transitions of some trajectories, in the plan's order."""

    ratio: Float[Tensor, "trained batch"]
    loss: Float[Tensor, "trained batch"]


class Forwards(NamedTuple):
    """Forward passes of one window of one trajectory in the update."""

    with_grad: float
    without_grad: float


@runtime_checkable
class Schedule(Protocol):
    """Both halves of a training step that touch the graphs: the rollout and the update."""

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
        """Draw the trajectories; `generator` gives the estimator's own for the window that starts at a step."""
        ...

    def accumulate(
        self,
        network: Network,
        method: Method,
        rollout: Rollout,
        advantages: Float[Tensor, "all"],
        samples: slice,
        generator: Callable[[int], torch.Generator],
    ) -> UpdateStatistics:
        """Add the gradient of the mean loss over `samples` and trained transitions to the parameters' gradients."""
        ...

    def window_forwards(self, nodes: float, length: int) -> Forwards:
        """Closed form of the update's forward passes in one window with `nodes` nodes."""
        ...
