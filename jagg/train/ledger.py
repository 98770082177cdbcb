"""The ledger of passes: counts where forward and backward happen, and is held against the closed form (math.md 3)."""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from jagg.backbones.protocol import Backbone, TextFeatures
from jagg.gradients.passes import Passes


@dataclass
class PassCounts:
    """Sample-passes: one image through the transformer once."""

    backward_passes: int = 0
    forward_passes_grad: int = 0
    forward_passes_nograd: int = 0

    def check(self, expected: Passes, images: int) -> None:
        """Our own invariant: what was counted is what the configuration says, for `images` trajectories."""
        for field in fields(self):
            counted, closed_form = getattr(self, field.name), images * getattr(expected, field.name)
            assert counted == closed_form, f"{field.name}: counted {counted}, closed form {closed_form}"


class Ledger:
    """A backbone's velocity and the only place of training that calls backward; counts both."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._counts = PassCounts()

    def velocity(
        self, latents: Float[Tensor, "batch tokens channels"], sigma: Float[Tensor, "batch"], text: TextFeatures
    ) -> Float[Tensor, "batch tokens channels"]:
        """The backbone's velocity; each sample counts once for every branch of guidance."""
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
        torch.autograd.backward(velocity, signal)
        self._counts.backward_passes += len(velocity) * self._backbone.evaluations_per_velocity

    def take(self) -> PassCounts:
        """The counts since the last call."""
        counts, self._counts = self._counts, PassCounts()
        return counts
