"""Backbones by family name; a family's libraries are imported only when it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from jagg import config as configuration
from jagg.errors import unknown_name
from jagg.startup import uncollected

if TYPE_CHECKING:
    from jagg.backbones.protocol import Backbone

ENTRY_POINT_GROUP = "jagg.backbones"
"""Packages offer further families as entry points: family name -> loader with the signature of `Loader`."""

Loader = Callable[[configuration.Backbone, Path, str], "Backbone"]


def _flux(config: configuration.Backbone, folder: Path, device: str) -> Backbone:
    from jagg.backbones.flux import load_flux

    return load_flux(config, folder, device)


def _qwen_image(config: configuration.Backbone, folder: Path, device: str) -> Backbone:
    from jagg.backbones.qwen_image import load_qwen_image

    return load_qwen_image(config, folder, device)


BACKBONES: dict[str, Loader] = {"flux": _flux, "qwen_image": _qwen_image}


def load_backbone(config: configuration.Backbone, folder: Path, device: str = "cpu") -> Backbone:
    """The backbone of `folder` (results/<study>/models/<backbone>/), on `device` and in evaluation mode.

    Raises:
        InputError: unknown family, missing or damaged model, or a setting that the model cannot follow.
    """
    if config.family in BACKBONES:
        with uncollected():
            return BACKBONES[config.family](config, folder, device)
    plugins = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if config.family not in plugins:
        raise unknown_name("backbone family", config.family, [*BACKBONES, *plugins], where=folder)
    return plugins[config.family].load()(config, folder, device)
