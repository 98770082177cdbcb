"""QwenImage: a pipeline of diffusers' QwenImagePipeline format behind the backbone protocol."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import QwenImagePipeline
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.functional import pad

from jagg import config as configuration
from jagg.backbones.protocol import TextFeatures
from jagg.backbones.source import checked_grid, load_pipeline, read_record, to_uint8
from jagg.errors import InputError

LORA_TARGETS = ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out")
EMPTY_PROMPT = " "


def load_qwen_image(config: configuration.Backbone, folder: Path, device: str = "cpu") -> "QwenImageBackbone":
    """The QwenImage backbone of a model's folder.

    Raises:
        InputError: missing or damaged model, image size that does not divide, guidance that the model cannot follow.
    """
    record = read_record(config, folder)
    if config.guidance.kind == "distilled":
        raise InputError(
            "guidance does not fit QwenImage",
            where="guidance.kind",
            expected="none or two_branch: the transformer has no guidance input",
            got=config.guidance.kind,
        )
    pipeline = load_pipeline(config, folder, QwenImagePipeline, device)
    check_template(pipeline, folder)
    grid = checked_grid(config.image_size, pipeline.vae_scale_factor)
    backbone = QwenImageBackbone(
        pipeline=pipeline,
        transformer=pipeline.transformer,
        label=record["label"],
        grid=grid,
        latent_shape=(grid**2, pipeline.transformer.config.in_channels),
        max_text_tokens=config.max_text_tokens,
        evaluations_per_velocity=config.guidance.evaluations_per_velocity,
    )
    if config.guidance.evaluations_per_velocity == 2:
        backbone.guidance_scale = config.guidance.scale
        backbone.empty_prompt = backbone.encode_prompts([EMPTY_PROMPT])
    return backbone


def check_template(pipeline: QwenImagePipeline, where: object) -> None:
    """The pipeline drops a fixed number of template tokens; the tokenizer must make just as many.

    Raises:
        InputError: it makes another number, so that template words would stay or prompt words would go.
    """
    prefix = pipeline.prompt_template_encode.partition("{}")[0]
    count = len(pipeline.tokenizer(prefix).input_ids)
    if count != pipeline.prompt_template_encode_start_idx:
        raise InputError(
            "the tokenizer does not fit QwenImage's prompt template",
            where=f"tokenizer of {where}",
            expected=f"{pipeline.prompt_template_encode_start_idx} tokens before the prompt",
            got=f"{count} tokens",
        )


@dataclass
class QwenImageBackbone:
    """The backbone protocol on a QwenImagePipeline; see `jagg.backbones.protocol.Backbone`."""

    pipeline: QwenImagePipeline
    transformer: nn.Module
    label: str
    grid: int
    """Image tokens along one side."""
    latent_shape: tuple[int, int]
    max_text_tokens: int
    evaluations_per_velocity: int
    guidance_scale: float | None = None
    empty_prompt: TextFeatures | None = None
    """Features of the empty prompt, with two-branch guidance."""
    lora_targets: tuple[str, ...] = LORA_TARGETS

    @torch.no_grad()
    def encode_prompts(self, prompts: list[str]) -> TextFeatures:
        # One prompt at a time: another batch size or padding may round differently.
        settings = {"max_sequence_length": self.max_text_tokens, "device": self.pipeline.device}
        encoded = [self.pipeline.encode_prompt(prompt, **settings)[0] for prompt in prompts]
        padding = [self.max_text_tokens - embeds.shape[1] for embeds in encoded]
        embeds = torch.cat([pad(embeds, (0, 0, 0, missing)) for embeds, missing in zip(encoded, padding)])
        lengths = torch.tensor([embeds.shape[1] for embeds in encoded], device=embeds.device)
        mask = torch.arange(self.max_text_tokens, device=embeds.device) < lengths[:, None]
        return TextFeatures({"prompt_embeds": embeds, "prompt_embeds_mask": mask})

    def velocity(
        self, latents: Float[Tensor, "batch tokens channels"], sigma: Float[Tensor, "batch"], text: TextFeatures
    ) -> Float[Tensor, "batch tokens channels"]:
        velocity = self._branch(latents, sigma, text)
        if self.empty_prompt is None or self.guidance_scale is None:
            return velocity
        empty = self.empty_prompt[[0] * len(latents)]
        return guided(velocity, self._branch(latents, sigma, empty), self.guidance_scale)

    def _branch(self, latents: Tensor, sigma: Tensor, text: TextFeatures) -> Tensor:
        dtype = next(self.transformer.parameters()).dtype
        inputs = transformer_inputs(latents.to(dtype), sigma, text, self.grid)
        return self.transformer(**inputs, return_dict=False)[0].to(latents.dtype)

    @torch.no_grad()
    def decode(self, latents: Float[Tensor, "batch tokens channels"]) -> UInt8[Tensor, "batch height width 3"]:
        vae, factor = self.pipeline.vae, self.pipeline.vae_scale_factor
        size = self.grid * 2 * factor
        unpacked = self.pipeline._unpack_latents(latents.to(vae.dtype), size, size, factor)
        mean, std = (
            torch.tensor(values, device=unpacked.device, dtype=unpacked.dtype).view(1, -1, 1, 1, 1)
            for values in (vae.config.latents_mean, vae.config.latents_std)
        )
        return to_uint8(vae.decode(unpacked * std + mean, return_dict=False)[0][:, :, 0])


def guided(
    conditional: Float[Tensor, "batch tokens channels"],
    unconditional: Float[Tensor, "batch tokens channels"],
    scale: float,
) -> Float[Tensor, "batch tokens channels"]:
    """Classifier-free guidance of QwenImagePipeline: extrapolate, then keep each token's conditional norm."""
    combined = unconditional + scale * (conditional - unconditional)
    return combined * (conditional.norm(dim=-1, keepdim=True) / combined.norm(dim=-1, keepdim=True))


def transformer_inputs(
    latents: Float[Tensor, "batch tokens channels"], sigma: Float[Tensor, "batch"], text: TextFeatures, grid: int
) -> dict[str, Any]:
    """Keyword arguments of QwenImageTransformer2DModel; the timestep is sigma itself, in [0, 1]."""
    return {
        "hidden_states": latents,
        "timestep": sigma,
        "encoder_hidden_states": text.tensors["prompt_embeds"].to(latents.dtype),
        # Without the mask the padding of short prompts takes part in the attention.
        "encoder_hidden_states_mask": text.tensors["prompt_embeds_mask"],
        "img_shapes": [[(1, grid, grid)]] * len(latents),
    }
