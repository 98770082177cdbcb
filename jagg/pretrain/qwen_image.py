"""The embedded QwenImage pipeline: sizes, and the computations that train it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from diffusers import (
    AutoencoderKLQwenImage,
    FlowMatchEulerDiscreteScheduler,
    QwenImagePipeline,
    QwenImageTransformer2DModel,
)
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv2d
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from jagg import config as configuration
from jagg.backbones.protocol import TextFeatures
from jagg.backbones.qwen_image import EMPTY_PROMPT, check_template, transformer_inputs
from jagg.backbones.source import checked_grid
from jagg.pretrain.embedded import quiet_, zero_
from jagg.pretrain.tokenizers import qwen_tokenizer

LATENT_CHANNELS = 4
TEXT_WIDTH = 64
ROPE_AXES = {16: (4, 6, 6), 24: (8, 8, 8)}
"""Head dimension -> rotary channels of (frame, row, column)."""


def transformer_config(source: configuration.EmbeddedBackbone) -> dict[str, Any]:
    """Arguments of QwenImageTransformer2DModel."""
    return {
        "in_channels": 4 * LATENT_CHANNELS,
        "out_channels": LATENT_CHANNELS,
        "num_layers": source.num_layers,
        "num_attention_heads": source.num_heads,
        "attention_head_dim": source.head_dim,
        "joint_attention_dim": TEXT_WIDTH,
        "axes_dims_rope": ROPE_AXES[source.head_dim],
        "guidance_embeds": False,
    }


def untrained_pipeline(source: configuration.EmbeddedBackbone) -> QwenImagePipeline:
    """A small QwenImagePipeline; initial weights come from torch's current random state."""
    transformer = QwenImageTransformer2DModel(**transformer_config(source))
    for block in transformer.transformer_blocks:
        zero_(block.img_mod, block.txt_mod)
    zero_(transformer.norm_out.linear, transformer.proj_out)
    pipeline = QwenImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=_autoencoder(),
        text_encoder=None,
        tokenizer=None,
        transformer=transformer,
    )
    tokenizer = qwen_tokenizer(pipeline.prompt_template_encode)
    pipeline.register_modules(tokenizer=tokenizer, text_encoder=_text_encoder(len(tokenizer), tokenizer.eos_token_id))
    check_template(pipeline, "the embedded QwenImage")
    return pipeline


def _autoencoder() -> AutoencoderKLQwenImage:
    vae = AutoencoderKLQwenImage(
        base_dim=8,
        z_dim=LATENT_CHANNELS,
        dim_mult=[1, 2, 2],
        num_res_blocks=1,
        temperal_downsample=[False, False],
        latents_mean=[0.0] * LATENT_CHANNELS,
        latents_std=[1.0] * LATENT_CHANNELS,
    )
    for module in vae.modules():
        if isinstance(module, nn.Conv3d):
            # Of a kernel's frames only the last meets the image; the initial spread is that of a 2-D kernel.
            with torch.no_grad():
                module.weight *= module.kernel_size[0] ** 0.5
    quiet_(vae.quant_conv)
    return vae


def _text_encoder(vocab_size: int, eos_token_id: int) -> Qwen2_5_VLForConditionalGeneration:
    text = {
        "vocab_size": vocab_size,
        "hidden_size": TEXT_WIDTH,
        "intermediate_size": 2 * TEXT_WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
        "bos_token_id": eos_token_id,
        "eos_token_id": eos_token_id,
        "pad_token_id": eos_token_id,
        "use_cache": False,
    }
    vision = {
        "depth": 1,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": TEXT_WIDTH,
        "fullatt_block_indexes": [0],
    }
    # The vision tower is part of the class, never of a text-to-image run.
    encoder = Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True)
    )
    # With the class's own spread of 0.02 the blocks' outputs drown the words, and colours take several times longer.
    nn.init.normal_(encoder.get_input_embeddings().weight)
    return encoder


class EmbeddedQwenImage:
    """See `jagg.pretrain.embedded.EmbeddedFamily`."""

    empty_prompt = EMPTY_PROMPT

    def __init__(self, config: configuration.Backbone, source: configuration.EmbeddedBackbone, device: str) -> None:
        self.pipeline = untrained_pipeline(source).to(device)
        self._max_text_tokens = config.max_text_tokens
        self._grid = checked_grid(config.image_size, self.pipeline.vae_scale_factor)

    def _encode(self, images: Float[Tensor, "batch 3 size size"]) -> DiagonalGaussianDistribution:
        vae = self.pipeline.vae
        with single_frame_convolutions(vae):
            return DiagonalGaussianDistribution(vae.quant_conv(vae.encoder(images[:, :, None]))[:, :, 0])

    def reconstruct(self, images: Float[Tensor, "batch 3 size size"]) -> tuple[Tensor, Tensor]:
        vae = self.pipeline.vae
        posterior = self._encode(images)
        # vae.decode clamps to [-1, 1], where the gradient ends.
        with single_frame_convolutions(vae):
            return vae.decoder(vae.post_quant_conv(posterior.sample()[:, :, None]))[:, :, 0], posterior.kl().mean()

    @torch.no_grad()
    def normalise(self, images: Float[Tensor, "batch 3 size size"]) -> None:
        latents = self._encode(images).mode()
        mean, std = latents.mean((0, 2, 3)), latents.std((0, 2, 3))
        self.pipeline.vae.register_to_config(latents_mean=mean.tolist(), latents_std=std.tolist())

    @torch.no_grad()
    def latents(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch tokens channels"]:
        config = self.pipeline.vae.config
        mean, std = (
            torch.tensor(values, device=images.device).view(1, -1, 1, 1)
            for values in (config.latents_mean, config.latents_std)
        )
        latents = (self._encode(images).mode() - mean) / std
        return QwenImagePipeline._pack_latents(latents, *latents.shape)

    def tokenise(self, prompts: list[str]) -> dict[str, Tensor]:
        pipeline = self.pipeline
        tokens = pipeline.tokenizer(
            [pipeline.prompt_template_encode.format(prompt) for prompt in prompts],
            padding="max_length",
            max_length=pipeline.prompt_template_encode_start_idx + self._max_text_tokens,
            truncation=True,
            return_tensors="pt",
        ).to(pipeline.device)
        return {"ids": tokens.input_ids, "mask": tokens.attention_mask}

    def velocity(self, latents: Tensor, sigma: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        drop = self.pipeline.prompt_template_encode_start_idx
        # The language model inside, without its vocabulary head; padding is on the right, so causal attention
        # keeps it from the prompt's tokens.
        hidden = self.pipeline.text_encoder.model(
            input_ids=tokens["ids"], attention_mask=tokens["mask"]
        ).last_hidden_state[:, drop:]
        mask = tokens["mask"][:, drop:].bool()
        text = TextFeatures({"prompt_embeds": hidden * mask[:, :, None], "prompt_embeds_mask": mask})
        return self.pipeline.transformer(**transformer_inputs(latents, sigma, text, self._grid), return_dict=False)[0]


@contextmanager
def single_frame_convolutions(vae: AutoencoderKLQwenImage) -> Iterator[None]:
    """Inside, causal 3-D convolutions of one frame run as the 2-D ones they equal: earlier frames are zero."""
    convolutions = [module for module in vae.modules() if isinstance(module, nn.Conv3d)]
    for convolution in convolutions:
        convolution.forward = partial(_single_frame, convolution)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for convolution in convolutions:
            del convolution.forward


def _single_frame(convolution: nn.Conv3d, frames: Tensor, cache: None = None) -> Tensor:
    # QwenImage's square kernels pad rows and columns alike, and keep the padding outside of `padding`.
    padding = convolution.kernel_size[1] // 2
    return conv2d(frames[:, :, 0], convolution.weight[:, :, -1], convolution.bias, padding=padding)[:, :, None]
