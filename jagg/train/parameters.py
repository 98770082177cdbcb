"""What is trained: adapters or all parameters of the transformer, their optimizer and their moving average."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from jagg.backbones.protocol import Backbone
from jagg.config import LoRA, Training
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


def trainable(
    backbone: Backbone, training: Training, *stream: int | str, dtype: torch.dtype = torch.float32
) -> tuple[dict[str, nn.Parameter], Any]:
    """Make a backbone ready: adapters or, in `dtype`, all parameters; everything else is frozen.

    Returns the parameters by name, and peft's configuration or None where all parameters are trained.
    """
    transformer = backbone.transformer
    adapters = lora_config(training.lora, backbone.lora_targets) if training.lora else None
    if adapters:
        parameters = attach_adapters(transformer, adapters)
        initialise_adapters(parameters, *stream)
    else:
        parameters = dict(nn.Module.to(transformer, dtype).requires_grad_(True).named_parameters())
    if training.gradient_checkpointing:
        transformer.enable_gradient_checkpointing()  # type: ignore[operator]
    return parameters, adapters


@dataclass
class Trained:
    """The trained parameters of a run and what moves them."""

    parameters: dict[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    average: dict[str, Tensor] | None
    ema_decay: float
    max_grad_norm: float
    adapters: Any
    """peft's configuration, or None where all parameters are trained."""

    @classmethod
    def of(cls, backbone: Backbone, training: Training, max_grad_norm: float, *stream: int | str) -> "Trained":
        """A backbone ready to be trained in float32."""
        parameters, adapters = trainable(backbone, training, *stream)
        optimizer = torch.optim.AdamW(
            parameters.values(), lr=training.learning_rate, weight_decay=training.weight_decay, fused=True
        )
        average = {name: p.detach().clone() for name, p in parameters.items()} if training.ema_decay else None
        return cls(parameters, optimizer, average, training.ema_decay or 0.0, max_grad_norm, adapters)

    def clip(self) -> Tensor:
        """Clip the gradients' norm; returns the norm before."""
        return nn.utils.clip_grad_norm_(self.parameters.values(), self.max_grad_norm)

    @torch.no_grad()
    def step(self) -> None:
        """One optimizer step, and the moving average after it."""
        self.optimizer.step()
        if self.average is not None:
            for name, parameter in self.parameters.items():
                self.average[name].lerp_(parameter, 1 - self.ema_decay)

    def weights(self) -> dict[str, Tensor]:
        """What checkpoints hold: the moving average where there is one, else the parameters."""
        return self.average or {name: parameter.detach() for name, parameter in self.parameters.items()}

    def state(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {
            "parameters": {name: parameter.detach() for name, parameter in self.parameters.items()},
            "optimizer": self.optimizer.state_dict(),
            "average": self.average,
        }

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        for name, parameter in self.parameters.items():
            parameter.copy_(state["parameters"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            for name, average in self.average.items():
                average.copy_(state["average"][name])
