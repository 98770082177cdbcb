"""FLUX: a pipeline of diffusers' FluxPipeline format behind the backbone protocol."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import FluxPipeline
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from jagg import config as configuration
from jagg.backbones.protocol import TextFeatures
from jagg.backbones.source import checked_grid, load_pipeline, read_record, to_uint8
from jagg.errors import InputError

LORA_TARGETS = ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")


def load_flux(config: configuration.Backbone, folder: Path, device: str = "cpu") -> "FluxBackbone":
    """The FLUX backbone of a model's folder.

    Raises:
        InputError: missing or damaged model, image size that does not divide, guidance that the model cannot follow.
    """
    record = read_record(config, folder)
    pipeline = load_pipeline(config, folder, FluxPipeline, device)
    check_guidance(config.guidance, pipeline.transformer.config.guidance_embeds, folder)
    grid = checked_grid(config.image_size, pipeline.vae_scale_factor)
    return FluxBackbone(
        pipeline=pipeline,
        transformer=pipeline.transformer,
        label=record["label"],
        grid=grid,
        latent_shape=(grid**2, pipeline.transformer.config.in_channels),
        max_text_tokens=config.max_text_tokens,
        guidance_scale=config.guidance.scale if config.guidance.kind == "distilled" else None,
    )


def check_guidance(guidance: configuration.Guidance, has_input: bool, where: object) -> None:
    """Refuse guidance that is not the model's: FLUX.1-dev has a guidance input and must be given a scale.

    Raises:
        InputError: two_branch, distilled without the input, or none with it.
    """
    expected = "distilled" if has_input else "none"
    if guidance.kind != expected:
        raise InputError(
            "guidance does not fit the FLUX transformer",
            where=f"guidance.kind, model {where}",
            expected=f"{expected}: the transformer {'has a' if has_input else 'has no'} guidance input",
            got=guidance.kind,
            fix=f"set guidance.kind: {expected}" + (" and guidance.scale, 3.5 as a rule" if has_input else ""),
        )


@dataclass
class FluxBackbone:
    """The backbone protocol on a FluxPipeline; see `jagg.backbones.protocol.Backbone`."""

    pipeline: FluxPipeline
    transformer: nn.Module
    label: str
    grid: int
    """Image tokens along one side."""
    latent_shape: tuple[int, int]
    max_text_tokens: int
    guidance_scale: float | None
    """Input of a guidance-distilled transformer; None: the transformer has no such input."""
    evaluations_per_velocity: int = 1
    lora_targets: tuple[str, ...] = LORA_TARGETS

    @torch.no_grad()
    def encode_prompts(self, prompts: list[str]) -> TextFeatures:
        # One prompt at a time: another batch size may round differently.
        settings = {"max_sequence_length": self.max_text_tokens, "device": self.pipeline.device}
        encoded = [self.pipeline.encode_prompt(prompt, **settings) for prompt in prompts]
        return TextFeatures(
            {
                "prompt_embeds": torch.cat([embeds for embeds, _, _ in encoded]),
                "pooled_prompt_embeds": torch.cat([pooled for _, pooled, _ in encoded]),
            }
        )

    def velocity(
        self, latents: Float[Tensor, "batch tokens channels"], sigma: Float[Tensor, "batch"], text: TextFeatures
    ) -> Float[Tensor, "batch tokens channels"]:
        dtype = next(self.transformer.parameters()).dtype
        inputs = transformer_inputs(latents.to(dtype), sigma, text, self.grid, self.guidance_scale)
        return self.transformer(**inputs, return_dict=False)[0].to(latents.dtype)

    @torch.no_grad()
    def decode(self, latents: Float[Tensor, "batch tokens channels"]) -> UInt8[Tensor, "batch height width 3"]:
        vae, factor = self.pipeline.vae, self.pipeline.vae_scale_factor
        size = self.grid * 2 * factor
        unpacked = self.pipeline._unpack_latents(latents.to(vae.dtype), size, size, factor)
        images = vae.decode(unpacked / vae.config.scaling_factor + vae.config.shift_factor, return_dict=False)[0]
        return to_uint8(images)


def transformer_inputs(
    latents: Float[Tensor, "batch tokens channels"],
    sigma: Float[Tensor, "batch"],
    text: TextFeatures,
    grid: int,
    guidance_scale: float | None,
) -> dict[str, Any]:
    """Keyword arguments of FluxTransformer2DModel; the timestep is sigma itself, in [0, 1]."""
    embeds = text.tensors["prompt_embeds"].to(latents.dtype)
    device = latents.device
    return {
        "hidden_states": latents,
        "timestep": sigma,
        "guidance": None if guidance_scale is None else torch.full_like(sigma, guidance_scale),
        "pooled_projections": text.tensors["pooled_prompt_embeds"].to(latents.dtype),
        "encoder_hidden_states": embeds,
        "txt_ids": torch.zeros(embeds.shape[1], 3, device=device),
        "img_ids": FluxPipeline._prepare_latent_image_ids(1, grid, grid, device, torch.float32),
    }
