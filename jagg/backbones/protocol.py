"""What the rest of the harness asks of a backbone."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, UInt8
from torch import Tensor, nn


@dataclass(frozen=True)
class TextFeatures:
    """Encoded prompts: named tensors whose first dimension is the prompt."""

    tensors: dict[str, Tensor]

    def __getitem__(self, index: Tensor | slice | list[int]) -> "TextFeatures":
        """The prompts at `index`, in its order; repeats are allowed."""
        return TextFeatures({name: tensor[index] for name, tensor in self.tensors.items()})

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))


@runtime_checkable
class Backbone(Protocol):
    """A flow-matching transformer with its text encoders and autoencoder.

    Latents are packed tokens, `(batch, tokens, channels)`, in the transformer's own scale; sigma runs from 1 (noise)
    to 0 (image) and the velocity is eps - x0 (math.md 1).
    """

    transformer: nn.Module
    label: str
    """Which model this is, as reports print it."""
    latent_shape: tuple[int, int]
    """(tokens, channels) of one image."""
    evaluations_per_velocity: int
    """Transformer passes of one velocity: 2 under two-branch guidance, else 1."""
    lora_targets: tuple[str, ...]
    """Module names that take adapters by default."""

    def encode_prompts(self, prompts: list[str]) -> TextFeatures:
        """Encode prompts without gradients; a prompt's features do not depend on its neighbours."""
        ...

    def velocity(
        self, latents: Float[Tensor, "batch tokens channels"], sigma: Float[Tensor, "batch"], text: TextFeatures
    ) -> Float[Tensor, "batch tokens channels"]:
        """The predicted velocity; differentiable in the transformer's parameters."""
        ...

    def decode(self, latents: Float[Tensor, "batch tokens channels"]) -> UInt8[Tensor, "batch height width 3"]:
        """Images of clean latents, without gradients."""
        ...
