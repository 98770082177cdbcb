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
from jagg.gradients.window import Estimator, WindowNodes


class SampleNetwork(VelocityField, Protocol):
    """The velocity of one batch of samples, and their gradients kept apart."""

    def backward(
        self, velocity: Float[Tensor, "batch tokens channels"], signal: Float[Tensor, "batch tokens channels"]
    ) -> None:
        """Add J_i^T signal_i to the gradient of each sample i; `velocity` was made by this very network."""
        ...

    def add(self, weights: Float[Tensor, "batch"]) -> None:
        """Add the weighted sum of the samples' gradients to the parameters' gradients, and forget them."""
        ...


@runtime_checkable
class Network(VelocityField, Protocol):
    """The velocity and the only way to back-propagate through it, so that passes are counted in one place."""

    def backward(
        self, velocity: Float[Tensor, "batch tokens channels"], signal: Float[Tensor, "batch tokens channels"]
    ) -> None:
        """Add J^T signal to the parameters' gradients; `velocity` was made with gradients on."""
        ...

    def apart(self) -> SampleNetwork:
        """The same network for one batch whose samples' gradients are to be kept apart."""
        ...


@dataclass(frozen=True)
class Method:
    """An arm, resolved for its algorithm: how a step's gradient is made."""

    estimator: Estimator
    jagg_frac: float
    clip_range: float
    batch_size: int
    """Samples that go through the transformer at a time."""
    max_residual: float | None = None
    """Velocity residual up to which a window is trusted to the estimator; None: its place alone decides."""


class UpdateStatistics(NamedTuple):
    """Of the trained transitions of some trajectories, in the plan's order."""

    ratio: Float[Tensor, "trained batch"]
    loss: Float[Tensor, "trained batch"]
    windows: tuple[WindowNodes, ...]
    """What was really drawn in each window; the ledger is held against it."""


class Forwards(NamedTuple):
    """Forward passes of one window of one trajectory, in rollout and update together."""

    with_grad: float
    without_grad: float


class Held(NamedTuple):
    """The most that lives at a time."""

    graphs: float
    """Graphs of one transition of one sample."""
    gradients: float
    """Gradients of all trained parameters."""


@runtime_checkable
class Schedule(Protocol):
    """Both halves of a training step that touch the graphs: the rollout and the update."""

    @property
    def before_nodes_are_known(self) -> bool:
        """Whether graphs are made in the rollout: those of whole windows where their states decide on the nodes."""
        ...

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

    def window_forwards(self, graphs: float, length: int) -> Forwards:
        """Closed form of the forward passes in one window, of whose transitions `graphs` are run with a graph."""
        ...

    def held(self, windows: list[WindowNodes], batch_size: int, images: int) -> Held:
        """Closed form of the memory of a step of `images` trajectories whose windows, in turn, take these nodes."""
        ...
