"""Does an image show the colours of its caption? Judged from pixels alone."""

import numpy as np
from jaxtyping import Float, Int, UInt8

from jagg.pretrain.captions import COLOURS, Caption

_NAMES = tuple(COLOURS)
_PALETTE = np.array(list(COLOURS.values()), dtype=np.float64)
_BORDER = 2
"""Width of the border that counts as background, in pixels."""


def nearest_colours(pixels: UInt8[np.ndarray, "*shape 3"]) -> Int[np.ndarray, "*shape"]:
    """Index of the palette's nearest colour."""
    return np.square(pixels[..., None, :].astype(np.float64) - _PALETTE).sum(-1).argmin(-1)


def shown_colours(image: UInt8[np.ndarray, "height width 3"]) -> tuple[str, str | None]:
    """The background's colour (commonest on the border) and the shape's (commonest of the others), None if no other."""
    names = nearest_colours(image)
    inner = (slice(_BORDER, -_BORDER),) * 2
    border = np.ones(names.shape, dtype=bool)
    border[inner] = False
    background = np.bincount(names[border], minlength=len(_NAMES)).argmax()
    others = np.bincount(names[inner].ravel(), minlength=len(_NAMES))
    others[background] = 0
    return _NAMES[background], _NAMES[others.argmax()] if others.any() else None


def colour_accuracy(captions: list[Caption], images: UInt8[np.ndarray, "count height width 3"]) -> dict[str, float]:
    """Shares of images whose background, and whose shape, have the colour that the caption names."""
    shown = [shown_colours(image) for image in images]
    matches: Float[np.ndarray, "count 2"] = np.array(
        [(seen[0] == caption.background, seen[1] == caption.colour) for caption, seen in zip(captions, shown)], float
    )
    background, shape = matches.mean(0).tolist()
    return {"background": background, "shape": shape}
