"""Size and cost of a transformer, from its configuration alone: weights stay on torch's meta device."""

from collections.abc import Callable
from typing import Any

import torch
from diffusers import FluxTransformer2DModel, ModelMixin, QwenImageTransformer2DModel
from torch import Tensor

from jagg.backbones import flux, qwen_image
from jagg.backbones.protocol import TextFeatures
from jagg.cost.operations import operation_counter
from jagg.errors import unknown_name

FULL_SIZE: dict[str, dict[str, Any]] = {
    "flux": {
        "in_channels": 64,
        "num_layers": 19,
        "num_single_layers": 38,
        "num_attention_heads": 24,
        "attention_head_dim": 128,
        "joint_attention_dim": 4096,
        "pooled_projection_dim": 768,
        "axes_dims_rope": (16, 56, 56),
        "guidance_embeds": True,
    },
    "qwen_image": {
        "in_channels": 64,
        "out_channels": 16,
        "num_layers": 60,
        "num_attention_heads": 24,
        "attention_head_dim": 128,
        "joint_attention_dim": 3584,
        "axes_dims_rope": (16, 56, 56),
        "guidance_embeds": False,
    },
}
"""Transformer configurations of FLUX.1-dev and Qwen-Image."""

FULL_SIZE_VAE_DOWNSCALE = 8
_CLASSES: dict[str, type[ModelMixin]] = {"flux": FluxTransformer2DModel, "qwen_image": QwenImageTransformer2DModel}


def meta_transformer(family: str, transformer_config: dict[str, Any]) -> ModelMixin:
    """A family's transformer without memory for its weights; `num_parameters()` counts them.

    Raises:
        InputError: the family is not one of this package's.
    """
    if family not in _CLASSES:
        raise unknown_name("backbone family", family, _CLASSES)
    with torch.device("meta"):
        return _CLASSES[family].from_config(transformer_config)


def forward_flops(family: str, transformer_config: dict[str, Any], grid: int, text_tokens: int) -> int:
    """Floating point operations of one image's forward pass: matrix products only, 2 a multiply-add.

    Args:
        grid: image tokens along one side, image_size / (2 x autoencoder downscale).

    Raises:
        InputError: the family is not one of this package's.
    """
    transformer = meta_transformer(family, transformer_config)
    inputs = meta_inputs(family, transformer_config, grid, text_tokens)
    with torch.device("meta"), operation_counter() as counter, torch.no_grad():
        transformer(**inputs(torch.float32), return_dict=False)
    return counter.get_total_flops()


def meta_inputs(
    family: str, config: dict[str, Any], grid: int, text_tokens: int
) -> Callable[[torch.dtype], dict[str, Any]]:
    """One image's inputs of a transformer in a number format, to be made and used on the meta device."""

    def inputs(dtype: torch.dtype) -> dict[str, Any]:
        latents, sigma = torch.empty(1, grid**2, config["in_channels"], dtype=dtype), torch.empty(1)
        text: dict[str, Tensor] = {"prompt_embeds": torch.empty(1, text_tokens, config["joint_attention_dim"])}
        if family == "flux":
            text["pooled_prompt_embeds"] = torch.empty(1, config["pooled_projection_dim"])
            guidance_scale = 1.0 if config["guidance_embeds"] else None
            return flux.transformer_inputs(latents, sigma, TextFeatures(text), grid, guidance_scale)
        text["prompt_embeds_mask"] = torch.empty(1, text_tokens, dtype=torch.bool)
        return qwen_image.transformer_inputs(latents, sigma, TextFeatures(text), grid)

    return inputs
