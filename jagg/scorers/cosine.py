"""What the three scorers share: checked inputs, batches, and the cosine of two embeddings."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, UInt8
from torch import Tensor, nn
from torch.nn import functional

from jagg.errors import InputError

Images = UInt8[np.ndarray, "batch height width 3"]


class CosineScorer(ABC):
    """A pair of towers whose score is the raw signed cosine of an image's and a prompt's embedding.

    A family says how images become pixels, prompts become tokens, and both become embeddings of equal width.
    """

    unit = "cosine"
    model: Any
    """The torch module of both towers; families differ in its methods."""
    max_tokens: int
    """Tokens of a prompt that the model reads, start and end token among them."""

    def __init__(
        self, *, label: str, weight_sha256: str, image_size: int, model: nn.Module, batch_size: int, device: str
    ) -> None:
        self.name = f"{label}@{weight_sha256[:12]}"
        self.weight_sha256 = weight_sha256
        self.image_size = image_size
        """Height and width of the model's input, in pixels."""
        self.model = model.to(device).eval()
        self.batch_size = batch_size
        self.device = device

    @property
    def num_parameters(self) -> int:
        """Number of weights of both towers."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @abstractmethod
    def pixels(self, images: Images) -> Float[Tensor, "batch 3 size size"]:
        """Resized, cropped and normalised images, as the model was trained on."""

    @abstractmethod
    def tokens(self, prompts: list[str]) -> dict[str, Tensor]:
        """Token ids of prompts; a prompt beyond the model's length is cut and keeps its end token."""

    @abstractmethod
    def truncated(self, prompts: list[str]) -> list[bool]:
        """Which prompts are longer than the model reads."""

    @abstractmethod
    def embed_images(self, pixels: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch width"]:
        """Embeddings of images, not normalised; differentiable."""

    @abstractmethod
    def embed_prompts(self, tokens: dict[str, Tensor]) -> Float[Tensor, "batch width"]:
        """Embeddings of prompts, not normalised; differentiable."""

    def score(self, *, images: Images, prompts: list[str]) -> Float64[np.ndarray, "batch"]:
        """One cosine an image; image i is scored against prompt i, and each distinct prompt is encoded once.

        Raises:
            TypeError: images are not an array, or prompts are not strings.
            ValueError: images are not uint8 RGB or look rescaled to 0-1, or the two lengths differ.
        """
        check_pairs(images, prompts)
        if images.size and images.max() <= 1:
            raise ValueError("images: expected values from 0 to 255, got none above 1; were they rescaled to 0-1?")
        return self.score_bytes(images=images, prompts=prompts)

    def score_bytes(self, *, images: Images, prompts: list[str]) -> Float64[np.ndarray, "batch"]:
        """`score` of images that are known to hold values from 0 to 255; all of them may be black."""
        check_pairs(images, prompts)
        distinct = list(dict.fromkeys(prompts))
        with torch.inference_mode():
            of_prompt: dict[str, Tensor] = {}
            for part in _parts(distinct, self.batch_size):
                of_prompt.update(zip(part, self.prompt_directions(part)))
            values = [
                (self.image_directions(images[rows]) * torch.stack([of_prompt[prompts[i]] for i in rows])).sum(1)
                for rows in _parts(list(range(len(prompts))), self.batch_size)
            ]
            return torch.cat(values).cpu().numpy() if values else np.empty(0)

    def image_directions(self, images: Images) -> Float[Tensor, "batch width"]:
        """Image embeddings of length 1, in float64."""
        embeddings = self.embed_images(self.pixels(images).to(self.device))
        return functional.normalize(embeddings.double(), dim=1)

    def prompt_directions(self, prompts: list[str]) -> Float[Tensor, "batch width"]:
        """Prompt embeddings of length 1, in float64."""
        tokens = {name: tensor.to(self.device) for name, tensor in self.tokens(prompts).items()}
        return functional.normalize(self.embed_prompts(tokens).double(), dim=1)


def check_pairs(images: object, prompts: object) -> None:
    """Check that images are one uint8 RGB array and prompts as many strings.

    Raises:
        TypeError: images are not an array, or prompts are not strings.
        ValueError: images are not uint8 RGB, or the two lengths differ.
    """
    if not isinstance(images, np.ndarray):
        raise TypeError(f"images: expected a uint8 array (batch, height, width, 3), got {type(images).__name__}")
    if not isinstance(prompts, list) or not all(isinstance(prompt, str) for prompt in prompts):
        raise TypeError(f"prompts: expected a list of strings, got {type(prompts).__name__}")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
        raise ValueError(
            f"images: expected uint8 of shape (batch, height, width, 3), got {images.dtype} of shape {images.shape}"
        )
    if len(images) != len(prompts):
        raise ValueError(f"expected one prompt an image, got {len(images)} images and {len(prompts)} prompts")


@contextmanager
def warnings_are_errors(what: str) -> Iterator[None]:
    """Inside the block a user warning is an error: a model loaded with a warning gives plausible but wrong scores.

    The process-wide filters are as before when the block ends.

    Raises:
        InputError: something in the block warned.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            yield
        except UserWarning as warning:
            raise InputError(
                "a scorer's model loads with a warning",
                where=what,
                got=str(warning),
                fix="use weights and a configuration that belong together",
            ) from warning


def _parts(items: list[Any], size: int) -> list[list[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
