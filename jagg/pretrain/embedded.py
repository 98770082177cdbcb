"""What the training of an embedded backbone asks of a family."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from diffusers import DiffusionPipeline
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from jagg.pretrain.captions import Caption, draw, random_caption


class EmbeddedFamily(Protocol):
    """An untrained pipeline in diffusers' classes and the three computations that train it."""

    pipeline: DiffusionPipeline

    @property
    def empty_prompt(self) -> str | None:
        """The prompt of the unconditional branch, where the family has one to learn."""
        ...

    def reconstruct(self, images: Float[Tensor, "batch 3 size size"]) -> tuple[Tensor, Tensor]:
        """The autoencoder's images of one latent sample each, and the mean KL divergence from a unit normal."""
        ...

    def normalise(self, images: Float[Tensor, "batch 3 size size"]) -> None:
        """Set the latents' shift and scale in the autoencoder's configuration, from these images."""
        ...

    def latents(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch tokens channels"]:
        """Packed latents of images, in the transformer's own scale."""
        ...

    def tokenise(self, prompts: list[str]) -> dict[str, Tensor]:
        """Token ids of prompts, all of one length; what `velocity` takes, first dimension the prompt."""
        ...

    def velocity(self, latents: Tensor, sigma: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        """The predicted velocity, differentiable in the transformer and the text encoders."""
        ...


@dataclass(frozen=True)
class Images:
    """Drawn images with their captions."""

    captions: list[Caption]
    pixels: UInt8[np.ndarray, "count size size 3"]

    def tensor(self, device: str = "cpu") -> Float[Tensor, "count 3 size size"]:
        """The images in [-1, 1]."""
        return torch.from_numpy(self.pixels).to(device).permute(0, 3, 1, 2).float() / 127.5 - 1


def draw_images(count: int, image_size: int, seed: int, left_out: frozenset[str] = frozenset()) -> Images:
    """Images of random captions, none of whose texts is in `left_out`."""
    rng = np.random.default_rng(seed)
    captions: list[Caption] = []
    while len(captions) < count:
        caption = random_caption(rng)
        if caption.text not in left_out:
            captions.append(caption)
    return Images(captions, np.stack([draw(caption, rng, image_size) for caption in captions]))


def cosine_schedule(optimizer: torch.optim.Optimizer, num_steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """A warm-up over the first twentieth of the steps, then half a cosine down to zero."""
    warm_up = max(1, num_steps // 20)

    def factor(step: int) -> float:
        rest = (step - warm_up) / max(1, num_steps - warm_up)
        return min((step + 1) / warm_up, 0.5 + 0.5 * float(np.cos(np.pi * min(max(rest, 0.0), 1.0))))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def zero_(*modules: nn.Module) -> None:
    """Set weights and biases to zero: blocks start as the identity, the output as zero."""
    with torch.no_grad():
        for module in modules:
            for parameter in module.parameters():
                parameter.zero_()


def quiet_(convolution: nn.Conv2d | nn.Conv3d) -> None:
    """Make the second half of an encoder's last outputs, the latents' log variance, small and nearly constant."""
    assert convolution.bias is not None
    half = len(convolution.bias) // 2
    with torch.no_grad():
        convolution.weight[half:] *= 0.1
        convolution.bias[half:] = -8.0


def parameter_counts(pipeline: DiffusionPipeline) -> dict[str, int]:
    """Parameters of each network of a pipeline."""
    components: dict[str, Any] = pipeline.components
    return {
        name: sum(parameter.numel() for parameter in component.parameters())
        for name, component in components.items()
        if isinstance(component, nn.Module)
    }
