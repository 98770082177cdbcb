"""Noise from named streams: one generator an image and draw, so a draw depends on its names alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jagg.streams import stream_seed


def seeded_normal(seed: int, shape: tuple[int, ...]) -> Float[Tensor, "..."]:
    """Standard normal float32 numbers of one seed, drawn on the CPU so that every device sees the same."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class StepNoise:
    """The noise of one training step's images, equal for every arm of a run seed."""

    study_seed: int
    run_seed: int | str
    step: int
    prompt_ids: Sequence[str]
    """Prompt of each image."""
    image_indices: Sequence[int]
    """Place of each image in its group."""
    latent_shape: tuple[int, int]

    def initial(self, shared: bool) -> Float[Tensor, "batch tokens channels"]:
        """Initial latents; `shared`: one for all images of a prompt."""
        places = ["shared"] * len(self.prompt_ids) if shared else [str(index) for index in self.image_indices]
        return self._draw("initial_noise", list(zip(self.prompt_ids, places)))

    def transition(self, denoising_step: int) -> Float[Tensor, "batch tokens channels"]:
        """Noise of one denoising step; images of a prompt never share it."""
        names = [(prompt, image, denoising_step) for prompt, image in zip(self.prompt_ids, self.image_indices)]
        return self._draw("transition_noise", names)

    def _draw(self, stream: str, names: Sequence[tuple[int | str, ...]]) -> Tensor:
        seeds = [stream_seed(stream, self.study_seed, self.run_seed, self.step, *name) for name in names]
        return torch.stack([seeded_normal(seed, self.latent_shape) for seed in seeds])


def evaluation_noise(
    noise_seed: int, prompt_id: str, image_index: int, latent_shape: tuple[int, int]
) -> Float[Tensor, "tokens channels"]:
    """Initial latent of one evaluation image: the same for every arm, seed, checkpoint and batch size."""
    return seeded_normal(stream_seed("evaluation_noise", noise_seed, prompt_id, image_index), latent_shape)
