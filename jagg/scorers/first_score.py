"""A first score before any work depends on it: scorer packages fail at first use, not when they are installed."""

from importlib import resources

import numpy as np
from PIL import Image

from jagg.errors import InputError
from jagg.scorers.protocol import Scorer

IMAGE = "preflight.png"
CAPTION = "a red circle on a white background"


def preflight_value(metric: str, scorer: Scorer) -> float:
    """The scorer's value of the bundled image and caption.

    Raises:
        InputError: the value is not one finite number between -1 and 1.
    """
    with resources.files("jagg.scorers").joinpath(IMAGE).open("rb") as file:
        image = np.asarray(Image.open(file).convert("RGB"))
    values = scorer.score(images=image[None], prompts=[CAPTION])
    if values.shape != (1,) or not np.isfinite(values).all() or abs(values[0]) > 1 + 1e-9:
        raise InputError(
            "a scorer fails its first score",
            where=f"{metric}: {scorer.name}",
            expected="one finite cosine between -1 and 1",
            got=values.tolist(),
        )
    return float(values[0])
