"""What is trained: adapters or all parameters of the transformer, their optimizer and their moving average."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from jagg.backbones.lora import attach_adapters, initialise_adapters, lora_config
from jagg.backbones.protocol import Backbone
from jagg.config import Training


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
