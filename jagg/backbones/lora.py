"""Low-rank adapters on a transformer, through peft."""

import math
from typing import Any

import torch
from torch import nn

from jagg.config import LoRA
from jagg.streams import stream_seed

ADAPTER = "default"


def lora_config(lora: LoRA, targets: tuple[str, ...]) -> Any:
    """peft's configuration of the adapters."""
    from peft import LoraConfig

    return LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=list(targets), lora_dropout=0.0, bias="none")


def attach_adapters(transformer: nn.Module, config: Any) -> dict[str, nn.Parameter]:
    """Put adapters into a transformer, in float32, and freeze the rest; returns them by peft's saved names."""
    from peft import inject_adapter_in_model

    transformer.requires_grad_(False)
    # peft draws initial weights from the global generator, which other code may use.
    with torch.random.fork_rng():
        inject_adapter_in_model(config, transformer, ADAPTER)
    adapters = adapter_parameters(transformer)
    for parameter in adapters.values():
        parameter.data = parameter.data.float()
        parameter.requires_grad_(True)
    return adapters


def adapter_parameters(transformer: nn.Module) -> dict[str, nn.Parameter]:
    """The adapters of a transformer, by the names under which peft saves them; empty without adapters."""
    return {
        name.replace(f".{ADAPTER}.", "."): parameter
        for name, parameter in transformer.named_parameters()
        if ".lora_A." in name or ".lora_B." in name
    }


def initialise_adapters(adapters: dict[str, nn.Parameter], *stream: int | str) -> None:
    """A uniform from the named stream, B zero: the start is the untouched model, and equal for every arm."""
    for name, parameter in adapters.items():
        if ".lora_B." in name:
            nn.init.zeros_(parameter)
        else:
            generator = torch.Generator().manual_seed(stream_seed("adapters", *stream, name))
            drawn = torch.empty(parameter.shape, dtype=parameter.dtype)
            parameter.data.copy_(nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator))
