"""Ways in which generated images fall short of drawn ones, each with a strength from 0 (none) to 1."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, UInt8

Images = UInt8[np.ndarray, "batch height width 3"]
Strengths = Float[np.ndarray, "batch"]


def noise(images: Images, strengths: Strengths, rng: np.random.Generator) -> Float[np.ndarray, "batch height width 3"]:
    """Independent Gaussian noise on every channel, up to 64 grey levels."""
    return images + 64 * _column(strengths) * rng.standard_normal(images.shape, dtype=np.float32)


def blur(images: Images, strengths: Strengths, rng: np.random.Generator) -> Float[np.ndarray, "batch height width 3"]:
    """Gaussian blur of width up to a tenth of the image."""
    size = images.shape[1]
    offsets = np.arange(size)[:, None] - np.arange(size)
    kernels = np.exp(-0.5 * (offsets / np.maximum(0.1 * size * strengths, 1e-3)[:, None, None]) ** 2)
    kernels = (kernels / kernels.sum(2, keepdims=True)).astype(np.float32)
    rows = (kernels @ images.reshape(len(images), size, -1).astype(np.float32)).reshape(images.shape)
    return np.swapaxes((kernels @ np.swapaxes(rows, 1, 2).reshape(len(images), size, -1)).reshape(rows.shape), 1, 2)


def ragged(images: Images, strengths: Strengths, rng: np.random.Generator) -> Float[np.ndarray, "batch height width 3"]:
    """Each pixel is taken from a random place nearby, so that outlines fray."""
    size = images.shape[1]
    shifts = rng.standard_normal((2, *images.shape[:3])) * 0.06 * size * strengths[:, None, None]
    rows, columns = (np.clip(np.indices((size, size))[:, None] + np.rint(shifts), 0, size - 1)).astype(int)
    return images[np.arange(len(images))[:, None, None], rows, columns].astype(np.float32)


def ghost(images: Images, strengths: Strengths, rng: np.random.Generator) -> Float[np.ndarray, "batch height width 3"]:
    """Another image of the batch shines through, up to six tenths of it."""
    share = 0.6 * _column(strengths)
    return (1 - share) * images + share * np.roll(images, 1, axis=0)


def fade(images: Images, strengths: Strengths) -> Images:
    """Contrast lost towards mid-grey: strength 1 leaves grey alone."""
    return np.rint(128 + (1 - _column(strengths)) * (images - np.float32(128))).astype(np.uint8)


DEGRADATIONS: dict[str, Callable[[Images, Strengths, np.random.Generator], np.ndarray]] = {
    "noise": noise,
    "blur": blur,
    "ragged": ragged,
    "ghost": ghost,
}


def degrade(images: Images, kind: str, strengths: Strengths, rng: np.random.Generator) -> Images:
    """Images degraded in one way; strength 0 leaves an image as it is."""
    return np.clip(np.rint(DEGRADATIONS[kind](images, strengths, rng)), 0, 255).astype(np.uint8)


def augment(images: Images, rng: np.random.Generator) -> Images:
    """Half of the images degraded in a way and with a strength up to 0.7 drawn for each."""
    kinds = rng.choice(
        ["none", *DEGRADATIONS], size=len(images), p=[0.5, *[0.5 / len(DEGRADATIONS)] * len(DEGRADATIONS)]
    )
    result = images.copy()
    for kind in DEGRADATIONS:
        rows = np.flatnonzero(kinds == kind)
        if len(rows):
            result[rows] = degrade(images[rows], kind, rng.uniform(0.1, 0.7, len(rows)), rng)
    return result


def _column(strengths: Strengths) -> Float[np.ndarray, "batch 1 1 1"]:
    return strengths.astype(np.float32)[:, None, None, None]
