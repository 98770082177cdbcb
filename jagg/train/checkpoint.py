"""Checkpoints in safetensors, and proof that loading one changed the model."""

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from jagg.backbones.lora import adapter_parameters, attach_adapters
from jagg.backbones.protocol import Backbone
from jagg.errors import InputError
from jagg.records import file_sha256, read_json, write_json
from jagg.train.parameters import Trained

RECORD = "checkpoint.json"
_WEIGHTS = {"lora": "adapter_model.safetensors", "full": "diffusion_pytorch_model.safetensors"}
_UNTOUCHED = "base"


def write_checkpoint(folder: Path, transformer: nn.Module, trained: Trained, step: int, run: str) -> None:
    """Write one checkpoint whole or not at all; `run` says whose it is.

    `lora`: peft's adapter format. `full`: the transformer's own format. Step 0 is `base`: a record without weights,
    since the untouched model lies in its own folder.
    """
    from safetensors.torch import save_file

    building = folder.with_name(f".{folder.name}.building")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    kind = _UNTOUCHED if step == 0 else "lora" if trained.adapters else "full"
    record: dict[str, Any] = {"kind": kind, "step": step, "run": run}
    if step > 0:
        weights = {name: tensor.cpu().contiguous() for name, tensor in trained.weights().items()}
        if trained.adapters:
            trained.adapters.save_pretrained(building)
        else:
            buffers = {name: tensor for name, tensor in transformer.state_dict().items() if name not in weights}
            weights |= {name: tensor.cpu().contiguous() for name, tensor in buffers.items()}
            if hasattr(transformer, "save_config"):
                transformer.save_config(building)  # type: ignore[operator]
        path = building / _WEIGHTS[kind]
        save_file(weights, path, metadata={"format": "pt"})
        record |= {"tensors": len(weights), "sha256": file_sha256(path)}
    write_json(building / RECORD, record)
    shutil.rmtree(folder, ignore_errors=True)
    building.rename(folder)


def load_checkpoint(backbone: Backbone, folder: Path) -> int:
    """Load a checkpoint into a backbone, replacing one loaded before; returns the number of tensors applied.

    Raises:
        InputError: missing or damaged files, tensors that do not fit, or a checkpoint that changes nothing.
    """
    record = read_json(folder / RECORD)
    transformer = backbone.transformer
    if record["kind"] == _UNTOUCHED:
        return _restore_untouched(transformer, folder)
    weights = _read_weights(folder, record)
    if record["kind"] == "lora":
        parameters: dict[str, Tensor] = dict(_adapters(transformer, folder))
    else:
        parameters = transformer.state_dict()
    _check_names(weights, parameters, folder)
    with torch.no_grad():
        for name, tensor in weights.items():
            parameters[name].copy_(tensor)
    if record["kind"] == "lora" and not any(tensor.any() for name, tensor in weights.items() if ".lora_B." in name):
        raise InputError("a checkpoint leaves the model as it was", where=folder, got="adapters that are all zero")
    transformer.jagg_checkpoint = record["kind"]
    return len(weights)


def _restore_untouched(transformer: nn.Module, folder: Path) -> int:
    """Adapters are put to zero; where all parameters were overwritten, only loading the backbone again helps."""
    if getattr(transformer, "jagg_checkpoint", None) == "full":
        raise InputError(
            "the untouched model was asked for after a checkpoint overwrote it",
            where=folder,
            fix="load step 0 first, or load the backbone again",
        )
    with torch.no_grad():
        for name, parameter in adapter_parameters(transformer).items():
            if ".lora_B." in name:
                parameter.zero_()
    return 0


def _read_weights(folder: Path, record: dict[str, Any]) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    path = folder / _WEIGHTS[record["kind"]]
    if not path.is_file():
        raise InputError("a checkpoint lacks its weights", where=path, expected="a safetensors file", got="no file")
    found = file_sha256(path)
    if found != record["sha256"]:
        raise InputError(
            "the weights of a checkpoint are damaged",
            where=path,
            expected=record["sha256"],
            got=found,
            fix="train the run again",
        )
    return load_file(path)


def _adapters(transformer: nn.Module, folder: Path) -> dict[str, nn.Parameter]:
    from peft import LoraConfig

    config = LoraConfig(**read_json(folder / "adapter_config.json"))
    return adapter_parameters(transformer) or attach_adapters(transformer, config)


def _check_names(weights: dict[str, Tensor], parameters: dict[str, Tensor], folder: Path) -> None:
    fitting = {
        name for name, tensor in weights.items() if name in parameters and parameters[name].shape == tensor.shape
    }
    lacking = sorted(set(parameters) - fitting)
    if len(fitting) < len(weights) or lacking:
        raise InputError(
            f"{len(fitting)} of {len(weights)} tensors applied",
            where=folder,
            expected=f"one tensor for each of the model's {len(parameters)}"
            + (f", such as {lacking[0]}" if lacking else ""),
            got=", ".join(sorted(set(weights) - fitting)[:3]) or "no tensor for them",
            fix="use the backbone that the run was trained on",
        )
