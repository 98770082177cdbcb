"""Records of models that exist: checked to be there, never copied."""

from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline, FluxPipeline, QwenImagePipeline

from jagg import config as configuration
from jagg.backbones import load_backbone
from jagg.backbones.source import RECORD, pipeline_folder, weights_sha256
from jagg.cost.full_size import meta_transformer
from jagg.records import read_json, write_json

_PIPELINES: dict[str, type[DiffusionPipeline]] = {"flux": FluxPipeline, "qwen_image": QwenImagePipeline}


def pointer_record(config: configuration.Backbone, folder: Path) -> dict[str, Any]:
    """The record of a hub or folder model; the files of a hub model are fetched into the local cache.

    Raises:
        InputError: the files are missing, damaged, of another family, or unreachable.
    """
    assert not isinstance(config.source, configuration.EmbeddedBackbone)
    record: dict[str, Any] = {
        "family": config.family,
        "source": config.source.model_dump(mode="json"),
        "label": _label(config.source),
    }
    if config.family not in _PIPELINES:
        write_json(folder / RECORD, record)
        transformer = load_backbone(config, folder).transformer
        return record | {"num_parameters": sum(parameter.numel() for parameter in transformer.parameters())}
    location = pipeline_folder(config.source, folder, _PIPELINES[config.family])
    transformer = meta_transformer(config.family, read_json(location / "transformer" / "config.json"))
    return record | {"num_parameters": transformer.num_parameters(), "weights_sha256": weights_sha256(location)}


def _label(source: configuration.HubModel | configuration.FolderModel) -> str:
    return f"{source.repo}@{source.revision[:12]}" if isinstance(source, configuration.HubModel) else source.path
