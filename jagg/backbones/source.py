"""Where a pipeline's files lie: the model record, and one way to load for embedded, folder and hub alike."""

from pathlib import Path
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.utils import logging as diffusers_logging
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled
from jaxtyping import Float, UInt8
from safetensors import SafetensorError
from torch import Tensor
from transformers.utils import logging as transformers_logging

from jagg import config as configuration
from jagg.errors import InputError
from jagg.records import folder_sha256, read_json

RECORD = "model.json"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def silence_libraries() -> None:
    """No progress bars of loading and saving."""
    diffusers_logging.disable_progress_bar()
    transformers_logging.disable_progress_bar()


def read_record(config: configuration.Backbone, folder: Path) -> dict[str, Any]:
    """The record model.json of a model's folder.

    Raises:
        InputError: it is missing, damaged, or the model was built from another configuration.
    """
    path = folder / RECORD
    record = read_json(path)
    wanted = {"family": config.family, "source": config.source.model_dump(mode="json")}
    found = {key: record.get(key) for key in wanted} if isinstance(record, dict) else record
    if found != wanted or not isinstance(record.get("label"), str):
        raise InputError(
            "the model was built from another configuration, or its record is damaged",
            where=path,
            expected=wanted,
            got=found,
            fix="remove the folder and run jagg pretrain again",
        )
    return record


def pipeline_folder(
    source: configuration.EmbeddedBackbone | configuration.HubModel | configuration.FolderModel,
    folder: Path,
    pipeline_class: type[DiffusionPipeline],
) -> Path:
    """The diffusers pipeline folder of a source; a hub model is fetched into the local cache unless it is there.

    Raises:
        InputError: the folder does not exist, or the hub's revision is neither cached nor reachable.
    """
    if isinstance(source, configuration.HubModel):
        return _hub_folder(source, pipeline_class)
    location = Path(source.path) if isinstance(source, configuration.FolderModel) else folder
    index = location / "model_index.json"
    found = read_json(index).get("_class_name") if index.is_file() else None
    if found != pipeline_class.__name__:
        raise InputError(
            "not a diffusers pipeline of this backbone",
            where=location,
            expected=f"a folder whose model_index.json names {pipeline_class.__name__}",
            got=found or ("a folder without model_index.json" if location.is_dir() else "no such folder"),
            fix="run jagg pretrain, or correct source.path",
        )
    return location


def _hub_folder(source: configuration.HubModel, pipeline_class: type[DiffusionPipeline]) -> Path:
    verbosity = diffusers_logging.get_verbosity()
    diffusers_logging.set_verbosity_error()  # an unreachable hub is no warning when the cache has the model
    try:
        return Path(pipeline_class.download(source.repo, revision=source.revision, use_safetensors=True))
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, HfHubHTTPError, OSError) as error:
        raise InputError(
            "a model of the hub is neither in the local cache nor reachable",
            where=f"{source.repo} at revision {source.revision}",
            got=_reason(error.__cause__ or error),
            fix="connect this machine (and log in if the model is gated), or fill the cache elsewhere with "
            f"`hf download {source.repo} --revision {source.revision}` and copy it here",
        ) from error
    finally:
        diffusers_logging.set_verbosity(verbosity)


def _reason(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def load_pipeline(
    config: configuration.Backbone, folder: Path, pipeline_class: type[DiffusionPipeline], device: str
) -> DiffusionPipeline:
    """The pipeline in evaluation mode on `device`; only its transformer can be trained.

    Raises:
        InputError: the model is missing or damaged.
    """
    location = pipeline_folder(config.source, folder, pipeline_class)
    silence_libraries()
    try:
        pipeline = pipeline_class.from_pretrained(
            location, dtype=DTYPES[config.precision], use_safetensors=True, local_files_only=True
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(
            "cannot load a diffusers pipeline",
            where=location,
            expected=f"a complete folder of {pipeline_class.__name__}",
            got=_reason(error),
            fix="remove the folder and run jagg pretrain again",
        ) from error
    for name, component in pipeline.components.items():
        if isinstance(component, torch.nn.Module):
            component.eval().requires_grad_(name == "transformer")
    return pipeline.to(device)


def weights_sha256(pipeline_folder: Path) -> str:
    """Hash of a pipeline's transformer weights."""
    return folder_sha256(pipeline_folder / "transformer", lambda path: path.suffix == ".safetensors")


def checked_grid(image_size: int, vae_downscale: int) -> int:
    """Image tokens along one side: the autoencoder's downscale, then 2x2 packing.

    Raises:
        InputError: the image size does not divide.
    """
    unit = 2 * vae_downscale
    if image_size % unit:
        below, above = image_size // unit * unit, (image_size // unit + 1) * unit
        raise InputError(
            "image_size does not divide into latent patches",
            where="image_size",
            expected=f"a multiple of {unit}; nearest: {below or above} or {above}",
            got=image_size,
        )
    return image_size // unit


def to_uint8(images: Float[Tensor, "batch 3 height width"]) -> UInt8[Tensor, "batch height width 3"]:
    """Images in [-1, 1] as bytes, rounded and clamped as diffusers' image processor does."""
    unit = (images.float() / 2 + 0.5).clamp(0, 1)
    return (unit * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
