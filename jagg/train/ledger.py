"""The ledger of passes: counts where forward and backward happen, and is held against the closed form (math.md 3)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields

import torch
from jaxtyping import Float
from torch import Tensor

from jagg.backbones.protocol import Backbone, TextFeatures
from jagg.cost.activations import SavedActivations
from jagg.cost.operations import operation_counter
from jagg.cost.passes import Passes
from jagg.gradients.per_sample_gradients import SampleGradients


@dataclass
class PassCounts:
    """Sample-passes: one image through the transformer once."""

    backward_passes: int = 0
    forward_passes_grad: int = 0
    forward_passes_nograd: int = 0

    def check(self, drawn: Sequence[Passes], images: int) -> None:
        """Our own invariant: what was counted is the closed form of what was drawn, `images` trajectories an update."""
        for kind in fields(self):
            counted = getattr(self, kind.name)
            closed_form = images * sum(getattr(passes, kind.name) for passes in drawn)
            assert counted == closed_form, f"{kind.name}: counted {counted}, closed form {closed_form}"


@dataclass
class MeasuredCost:
    """What one training step cost the transformer, measured on the real run."""

    transformer_flops: int | None = None
    """Matrix products in forward and backward passes, 2 a multiply-add; None where the step was not measured."""
    saved_activation_bytes: int | None = None
    """Most bytes that graphs kept alive at a time, weights left out; None where the step was not measured."""


MadeFrom = tuple[Float[Tensor, "batch tokens channels"], Float[Tensor, "batch"], TextFeatures]
"""Latents, sigma and text of a velocity."""


class Ledger:
    """A backbone's velocity and the only place of training that calls backward; counts both."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._counts = PassCounts()
        self._flops: int | None = None
        self.apart_is_checked = False
        """Whether this backbone's gradients of samples have been held against autograd's."""

    def velocity(
        self, latents: Float[Tensor, "batch tokens channels"], sigma: Float[Tensor, "batch"], text: TextFeatures
    ) -> Float[Tensor, "batch tokens channels"]:
        """The backbone's velocity; each sample counts once for every branch of guidance."""
        with self._operations():
            velocity = self._backbone.velocity(latents, sigma, text)
        passes = len(latents) * self._backbone.evaluations_per_velocity
        if velocity.requires_grad:
            self._counts.forward_passes_grad += passes
        else:
            self._counts.forward_passes_nograd += passes
        return velocity

    def backward(
        self, velocity: Float[Tensor, "batch tokens channels"], signal: Float[Tensor, "batch tokens channels"]
    ) -> None:
        """Add J^T signal to the parameters' gradients: the vector-Jacobian product of sum <velocity, signal>."""
        with self._counted_backward(len(velocity)):
            torch.autograd.backward(velocity, signal)

    def apart(self) -> "SampleLedger":
        """The same network for one batch whose samples' gradients are kept apart; counted here all the same."""
        return SampleLedger(self, SampleGradients(self._backbone.transformer))

    def check_apart(
        self, gradients: SampleGradients, made_from: MadeFrom, signal: Float[Tensor, "batch tokens channels"]
    ) -> None:
        """Hold the first gradients of samples against autograd's: one forward and backward, not counted as passes.

        Raises:
            InputError: the backbone's modules are not run in the way that samples' gradients need.
        """
        with torch.enable_grad():
            velocity = self._backbone.velocity(*made_from)
        gradients.check(velocity, signal)
        self.apart_is_checked = True

    def take(self) -> PassCounts:
        """The counts since the last call."""
        counts, self._counts = self._counts, PassCounts()
        return counts

    @contextmanager
    def measuring(self, wanted: bool) -> Iterator[MeasuredCost]:
        """Measure what happens inside, which slows it; filled in when the block ends, and left empty if not wanted."""
        cost = MeasuredCost()
        if not wanted:
            yield cost
            return
        self._flops = 0
        with SavedActivations(self._backbone.transformer.parameters()) as saved:
            yield cost
        cost.transformer_flops, cost.saved_activation_bytes = self._flops, saved.peak_bytes
        self._flops = None

    @contextmanager
    def _counted_backward(self, samples: int) -> Iterator[None]:
        with self._operations():
            yield
        self._counts.backward_passes += samples * self._backbone.evaluations_per_velocity

    @contextmanager
    def _operations(self) -> Iterator[None]:
        if self._flops is None:
            yield
            return
        with operation_counter() as counter:
            yield
        self._flops += counter.get_total_flops()


@dataclass(frozen=True)
class SampleLedger:
    """See `jagg.gradients.schedules.protocol.SampleNetwork`."""

    ledger: Ledger
    gradients: SampleGradients
    made_from: dict[int, MadeFrom] = field(default_factory=dict)
    """Identity of a velocity -> its latents, sigma and text, as long as the backbone is to be checked."""

    def velocity(
        self, latents: Float[Tensor, "batch tokens channels"], sigma: Float[Tensor, "batch"], text: TextFeatures
    ) -> Float[Tensor, "batch tokens channels"]:
        """The backbone's velocity, recorded for the samples' gradients."""
        with self.gradients.recording(len(latents)):
            velocity = self.ledger.velocity(latents, sigma, text)
        if len(latents) > 1 and not self.ledger.apart_is_checked:
            self.made_from[id(velocity)] = latents, sigma, text
        return velocity

    def backward(
        self, velocity: Float[Tensor, "batch tokens channels"], signal: Float[Tensor, "batch tokens channels"]
    ) -> None:
        """Add J_i^T signal_i to the gradient of each sample i."""
        with self.ledger._counted_backward(len(velocity)):
            self.gradients.backward(velocity, signal)
        if id(velocity) in self.made_from:
            self.ledger.check_apart(self.gradients, self.made_from[id(velocity)], signal)
            self.made_from.clear()

    def add(self, weights: Float[Tensor, "batch"]) -> None:
        """Add the weighted sum of the samples' gradients to the parameters' gradients, and forget them."""
        self.gradients.add(weights)
