"""What the rest of the harness asks of a scorer."""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, UInt8


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

    def score(
        self, *, images: UInt8[np.ndarray, "batch height width 3"], prompts: list[str]
    ) -> Float64[np.ndarray, "batch"]:
        """One value an image; image i is scored against prompt i.

        Raises:
            TypeError: images are not an array, or prompts are not strings.
            ValueError: images are not uint8 RGB, or the two lengths differ.
        """
        ...
