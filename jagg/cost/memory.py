"""What one image's pass through a transformer costs in training, on torch's meta device: no weights, no accelerator."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from jagg.backbones import flux, qwen_image
from jagg.backbones.lora import attach_adapters, lora_config
from jagg.config import LoRA
from jagg.cost.activations import SavedActivations
from jagg.cost.full_size import meta_inputs, meta_transformer
from jagg.cost.operations import operation_counter
from jagg.cost.passes_table import ModelCost

_LORA_TARGETS = {"flux": flux.LORA_TARGETS, "qwen_image": qwen_image.LORA_TARGETS}
_DEPTHS = {"flux": ("num_layers", "num_single_layers"), "qwen_image": ("num_layers",)}
"""What a family calls its numbers of blocks."""
_DISTINCT = 2
"""Blocks of one kind that may differ: the first may have inputs without gradients, the last may have unused outputs."""


@dataclass(frozen=True)
class _Sample:
    """What training one sample by one transformer takes."""

    grid: int
    text_tokens: int
    lora: LoRA | None
    gradient_checkpointing: bool
    dtype: torch.dtype


def model_cost(
    family: str,
    transformer_config: dict[str, Any],
    grid: int,
    text_tokens: int,
    *,
    lora: LoRA | None,
    gradient_checkpointing: bool,
    dtype: torch.dtype,
) -> ModelCost:
    """Operations and memory of one sample; `grid`: image tokens along one side.

    Blocks between the first and the last of a kind cost all the same, so that the cost is measured on few blocks and
    is exactly linear in those left out.

    Raises:
        InputError: the family is not one of this package's.
    """
    sample = _Sample(grid, text_tokens, lora, gradient_checkpointing, dtype)
    depths = {name: transformer_config[name] for name in _DEPTHS.get(family, ()) if name in transformer_config}
    shallow = transformer_config | {name: min(depth, _DISTINCT) for name, depth in depths.items()}
    cost = fewest = _measured(family, shallow, sample)
    for name, depth in depths.items():
        if depth > _DISTINCT:
            one_more = _measured(family, shallow | {name: _DISTINCT + 1}, sample)
            cost = _plus(cost, one_more, fewest, times=depth - _DISTINCT)
    return cost


def _plus(cost: ModelCost, one_more: ModelCost, fewest: ModelCost, times: int) -> ModelCost:
    values = {
        field.name: getattr(cost, field.name) + times * (getattr(one_more, field.name) - getattr(fewest, field.name))
        for field in fields(ModelCost)
    }
    return ModelCost(**values)


def _measured(family: str, transformer_config: dict[str, Any], sample: _Sample) -> ModelCost:
    # Past the class's own `to`, which warns of layers that from_pretrained would keep in float32.
    transformer = nn.Module.to(meta_transformer(family, transformer_config), sample.dtype)
    inputs = meta_inputs(family, transformer_config, sample.grid, sample.text_tokens)
    dtype = sample.dtype if sample.lora else torch.float32  # as training does: what is trained is float32
    with torch.device("meta"):
        with operation_counter() as untrained, torch.no_grad():
            transformer(**inputs(sample.dtype), return_dict=False)
        if sample.lora:
            trained = list(attach_adapters(transformer, lora_config(sample.lora, _LORA_TARGETS[family])).values())
        else:
            trained = list(nn.Module.to(transformer, dtype).requires_grad_(True).parameters())
        if sample.gradient_checkpointing:
            transformer.enable_gradient_checkpointing()
        with SavedActivations(transformer.parameters()) as saved, _FusedAttention():
            kept = transformer(**inputs(dtype), return_dict=False)[0]
        with operation_counter() as forward:
            velocity = transformer(**inputs(dtype), return_dict=False)[0]
        with operation_counter() as backward:
            torch.autograd.backward(velocity, torch.empty_like(velocity))
    del kept
    return ModelCost(
        untrained_forward_flops=untrained.get_total_flops(),
        forward_flops=forward.get_total_flops(),
        backward_flops=backward.get_total_flops(),
        activation_bytes=saved.peak_bytes,
        gradient_bytes=sum(4 * parameter.numel() for parameter in trained),
    )


class _FusedAttention(TorchFunctionMode):
    """What a fused kernel keeps: the meta device runs attention in parts and would keep its weights."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            named = dict(zip(("query", "key", "value"), args)) | (kwargs or {})
            return _Fused.apply(named["query"], named["key"], named["value"])
        return func(*args, **(kwargs or {}))


class _Fused(torch.autograd.Function):
    """Saves its inputs, its output and a number for each query and head; computes nothing."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = torch.empty_like(query)
        ctx.save_for_backward(query, key, value, output, query.new_empty(query.shape[:-1], dtype=torch.float32))
        return output
