"""Captions of simple scenes and the images that show them: the data of every embedded model."""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

COLOURS = {
    "red": (214, 39, 40),
    "green": (44, 160, 44),
    "blue": (31, 90, 200),
    "yellow": (240, 210, 40),
    "white": (240, 240, 240),
    "black": (25, 25, 25),
}
SHAPES = ("circle", "square", "triangle", "cross")
SIZES = ("small", "large")
POSITIONS = ("left", "right")
_OVERSAMPLING = 4


@dataclass(frozen=True)
class Caption:
    """One scene: a coloured shape on a background; size and position may be left open."""

    shape: str
    colour: str
    background: str
    size: str | None = None
    position: str | None = None

    @property
    def text(self) -> str:
        size = f"{self.size} " if self.size else ""
        position = f", on the {self.position}" if self.position else ""
        return f"a {size}{self.colour} {self.shape} on a {self.background} background{position}"


def base_captions() -> list[Caption]:
    """The 120 captions of shape, colour and another background colour, size and position left open."""
    return [Caption(s, c, b) for s, c, b in product(SHAPES, COLOURS, COLOURS) if c != b]


def all_captions() -> list[Caption]:
    """The 1,080 captions, base captions first."""
    base = base_captions()
    further = [
        replace(caption, size=size, position=position)
        for size, position in product((None, *SIZES), (None, *POSITIONS))
        if size or position
        for caption in base
    ]
    return base + further


def vocabulary() -> list[str]:
    """Every word of every caption, sorted."""
    return sorted({word for caption in all_captions() for word in caption.text.replace(",", " ,").split()})


def random_caption(rng: np.random.Generator) -> Caption:
    """A caption drawn at random: size and position are named in half of the captions each."""
    colour, background = rng.choice(list(COLOURS), size=2, replace=False)
    size = str(rng.choice(SIZES)) if rng.random() < 0.5 else None
    position = str(rng.choice(POSITIONS)) if rng.random() < 0.5 else None
    return Caption(str(rng.choice(SHAPES)), str(colour), str(background), size, position)


def draw(caption: Caption, rng: np.random.Generator, image_size: int) -> UInt8[np.ndarray, "height width 3"]:
    """An image of the caption; what the caption leaves open (size, position) and small shifts are random."""
    side = image_size * _OVERSAMPLING
    size = caption.size or str(rng.choice(SIZES))
    position = caption.position or str(rng.choice(("centre", *POSITIONS)))
    radius = side * (rng.uniform(0.15, 0.2) if size == "small" else rng.uniform(0.26, 0.32))
    x = side * {"left": 0.33, "centre": 0.5, "right": 0.67}[position] + side * rng.uniform(-0.03, 0.03)
    y = side * (0.5 + rng.uniform(-0.08, 0.08))
    image = Image.new("RGB", (side, side), _jittered(COLOURS[caption.background], rng))
    _draw_shape(ImageDraw.Draw(image), caption.shape, x, y, radius, _jittered(COLOURS[caption.colour], rng))
    return np.asarray(image.resize((image_size, image_size), Image.Resampling.BOX))


def _jittered(colour: tuple[int, int, int], rng: np.random.Generator) -> tuple[int, int, int]:
    red, green, blue = (int(np.clip(channel + rng.integers(-12, 13), 0, 255)) for channel in colour)
    return red, green, blue


def _draw_shape(
    pen: ImageDraw.ImageDraw, shape: str, x: float, y: float, radius: float, fill: tuple[int, int, int]
) -> None:
    if shape == "circle":
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)
    elif shape == "square":
        half = radius * 0.88
        pen.rectangle((x - half, y - half, x + half, y + half), fill=fill)
    elif shape == "triangle":
        pen.polygon([(x, y - radius), (x - radius, y + radius * 0.8), (x + radius, y + radius * 0.8)], fill=fill)
    else:
        arm = radius * 0.35
        pen.rectangle((x - radius, y - arm, x + radius, y + arm), fill=fill)
        pen.rectangle((x - arm, y - radius, x + arm, y + radius), fill=fill)
