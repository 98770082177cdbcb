"""What the rest of the harness asks of a scorer."""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, UInt8

Images = UInt8[np.ndarray, "batch height width 3"]
Values = Float64[np.ndarray, "batch"]


@runtime_checkable
class ReadsBytes(Protocol):
    """A scorer whose `score` takes dark arrays for rescaled ones, and that can be told that they are not."""

    def score_bytes(self, *, images: Images, prompts: list[str]) -> Values:
        """`score` of images that are known to hold values from 0 to 255."""
        ...


@runtime_checkable
class Truncates(Protocol):
    """A scorer that knows which prompts are longer than it reads."""

    def truncated(self, prompts: list[str]) -> list[bool]:
        """Whether each prompt is cut."""
        ...


@runtime_checkable
class Scorer(Protocol):
    """An image-text scorer whose value is the raw signed cosine of the two embeddings."""

    name: str
    """name@hash: which model, its input resolution, and the first 12 digits of the SHA-256 of its weights."""
    unit: str
    """Always "cosine"."""

    def score(self, *, images: Images, prompts: list[str]) -> Values:
        """One value an image; image i is scored against prompt i.

        Raises:
            TypeError: images are not an array, or prompts are not strings.
            ValueError: images are not uint8 RGB, or the two lengths differ.
        """
        ...


def score_bytes(scorer: Scorer, *, images: Images, prompts: list[str]) -> Values:
    """Scores of images that were decoded from a model or a file: a black one is black, and has a score."""
    if isinstance(scorer, ReadsBytes):
        return scorer.score_bytes(images=images, prompts=prompts)
    return scorer.score(images=images, prompts=prompts)
