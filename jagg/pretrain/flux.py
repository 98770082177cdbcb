"""The embedded FLUX pipeline: sizes, and the computations that train it."""

from typing import Any

import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from diffusers.models.resnet import ResnetBlock2D
from jaxtyping import Float
from torch import Tensor
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

from jagg import config as configuration
from jagg.backbones.flux import transformer_inputs
from jagg.backbones.protocol import TextFeatures
from jagg.backbones.source import checked_grid
from jagg.pretrain.embedded import quiet_, zero_
from jagg.pretrain.tokenizers import clip_tokenizer, t5_tokenizer

CLIP_TOKENS = 16
"""Positions of the CLIP text encoder; the longest caption has 14 tokens."""
LATENT_CHANNELS = 4
TEXT_WIDTH = 64
ROPE_AXES = {16: (4, 6, 6), 24: (8, 8, 8)}
"""Head dimension -> rotary channels of (unused, row, column)."""


def transformer_config(source: configuration.EmbeddedBackbone) -> dict[str, Any]:
    """Arguments of FluxTransformer2DModel."""
    return {
        "in_channels": 4 * LATENT_CHANNELS,
        "num_layers": source.num_layers,
        "num_single_layers": source.num_single_layers,
        "num_attention_heads": source.num_heads,
        "attention_head_dim": source.head_dim,
        "joint_attention_dim": TEXT_WIDTH,
        "pooled_projection_dim": TEXT_WIDTH,
        "axes_dims_rope": ROPE_AXES[source.head_dim],
        "guidance_embeds": False,
    }


def untrained_pipeline(source: configuration.EmbeddedBackbone) -> FluxPipeline:
    """A small FluxPipeline; initial weights come from torch's current random state."""
    clip, t5 = clip_tokenizer(CLIP_TOKENS), t5_tokenizer()
    transformer = FluxTransformer2DModel(**transformer_config(source))
    for block in transformer.transformer_blocks:
        zero_(block.norm1.linear, block.norm1_context.linear)
    for block in transformer.single_transformer_blocks:
        zero_(block.norm.linear)
    zero_(transformer.norm_out.linear, transformer.proj_out)
    return FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=_autoencoder(),
        text_encoder=CLIPTextModel(
            CLIPTextConfig(
                vocab_size=len(clip),
                hidden_size=TEXT_WIDTH,
                intermediate_size=2 * TEXT_WIDTH,
                num_hidden_layers=2,
                num_attention_heads=4,
                max_position_embeddings=CLIP_TOKENS,
                projection_dim=TEXT_WIDTH,
                bos_token_id=clip.bos_token_id,
                eos_token_id=clip.eos_token_id,
                pad_token_id=clip.pad_token_id,
            )
        ),
        tokenizer=clip,
        text_encoder_2=T5EncoderModel(
            T5Config(
                vocab_size=len(t5),
                d_model=TEXT_WIDTH,
                d_kv=16,
                d_ff=2 * TEXT_WIDTH,
                num_layers=2,
                num_heads=4,
                dropout_rate=0.0,
                feed_forward_proj="gated-gelu",
                pad_token_id=t5.pad_token_id,
                eos_token_id=t5.eos_token_id,
                is_encoder_decoder=False,
                use_cache=False,
            )
        ),
        tokenizer_2=t5,
        transformer=transformer,
    )


def _autoencoder() -> AutoencoderKL:
    vae = AutoencoderKL(
        block_out_channels=(8, 16, 32),
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        latent_channels=LATENT_CHANNELS,
        layers_per_block=1,
        norm_num_groups=4,
        mid_block_add_attention=False,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.0,
    )
    zero_(*(block.conv2 for block in vae.modules() if isinstance(block, ResnetBlock2D)))
    quiet_(vae.encoder.conv_out)
    return vae


class EmbeddedFlux:
    """See `jagg.pretrain.embedded.EmbeddedFamily`."""

    empty_prompt = None

    def __init__(self, config: configuration.Backbone, source: configuration.EmbeddedBackbone, device: str) -> None:
        self.pipeline = untrained_pipeline(source).to(device)
        self._max_text_tokens = config.max_text_tokens
        self._grid = checked_grid(config.image_size, self.pipeline.vae_scale_factor)

    def reconstruct(self, images: Float[Tensor, "batch 3 size size"]) -> tuple[Tensor, Tensor]:
        posterior = self.pipeline.vae.encode(images).latent_dist
        return self.pipeline.vae.decode(posterior.sample()).sample, posterior.kl().mean()

    @torch.no_grad()
    def normalise(self, images: Float[Tensor, "batch 3 size size"]) -> None:
        latents = self.pipeline.vae.encode(images).latent_dist.mode()
        self.pipeline.vae.register_to_config(
            shift_factor=latents.mean().item(), scaling_factor=1 / latents.std().item()
        )

    @torch.no_grad()
    def latents(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch tokens channels"]:
        vae = self.pipeline.vae
        latents = (vae.encode(images).latent_dist.mode() - vae.config.shift_factor) * vae.config.scaling_factor
        return FluxPipeline._pack_latents(latents, *latents.shape)

    def tokenise(self, prompts: list[str]) -> dict[str, Tensor]:
        pipeline = self.pipeline
        options = {"padding": "max_length", "truncation": True, "return_tensors": "pt"}
        clip = pipeline.tokenizer(prompts, max_length=CLIP_TOKENS, **options).input_ids
        t5 = pipeline.tokenizer_2(prompts, max_length=self._max_text_tokens, **options).input_ids
        return {"clip": clip.to(pipeline.device), "t5": t5.to(pipeline.device)}

    def velocity(self, latents: Tensor, sigma: Tensor, tokens: dict[str, Tensor]) -> Tensor:
        text = TextFeatures(
            {
                "prompt_embeds": self.pipeline.text_encoder_2(tokens["t5"])[0],
                "pooled_prompt_embeds": self.pipeline.text_encoder(tokens["clip"]).pooler_output,
            }
        )
        inputs = transformer_inputs(latents, sigma, text, self._grid, None)
        return self.pipeline.transformer(**inputs, return_dict=False)[0]
