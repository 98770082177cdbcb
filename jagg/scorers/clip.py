"""Scorers that are a transformers CLIPModel with its processor: PickScore and CLIPScore."""

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor
from transformers import CLIPImageProcessorPil, CLIPModel, CLIPTokenizer
from transformers.utils import logging as transformers_logging

from jagg.config import Scorer
from jagg.errors import InputError
from jagg.scorers.cosine import CosineScorer, Images
from jagg.scorers.sources import checked_weights, hub_folder, model_folder, scorer_label, source_model

WEIGHTS = "model.safetensors"
PROCESSOR_FILES = [
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer*",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
]


class CLIPScorer(CosineScorer):
    """A CLIPModel and its processor; images go through Pillow, whatever else is installed."""

    def __init__(
        self,
        *,
        tokenizer: CLIPTokenizer,
        image_processor: CLIPImageProcessorPil,
        **shared: Any,
    ) -> None:
        super().__init__(**shared)
        self._tokenizer = tokenizer
        self._image_processor = image_processor
        self.max_tokens = self.model.config.text_config.max_position_embeddings

    def pixels(self, images: Images) -> Float[Tensor, "batch 3 size size"]:
        return self._image_processor(list(images), return_tensors="pt")["pixel_values"]

    def tokens(self, prompts: list[str]) -> dict[str, Tensor]:
        return dict(
            self._tokenizer(prompts, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt")
        )

    def truncated(self, prompts: list[str]) -> list[bool]:
        ids = self._tokenizer(prompts, verbose=False)["input_ids"] if prompts else []
        return [len(tokens) > self.max_tokens for tokens in ids]

    def embed_images(self, pixels: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch width"]:
        return projected(self.model.get_image_features(pixel_values=pixels), self.model.config.projection_dim)

    def embed_prompts(self, tokens: dict[str, Tensor]) -> Float[Tensor, "batch width"]:
        return projected(self.model.get_text_features(**tokens), self.model.config.projection_dim)


def projected(features: Any, width: int) -> Float[Tensor, "batch width"]:
    """The projected embedding: transformers 4 returns it, transformers 5 an object that holds it as pooler_output.

    Raises:
        TypeError: neither is found, or the embedding has another width.
    """
    embedding = features if isinstance(features, Tensor) else getattr(features, "pooler_output", None)
    if not isinstance(embedding, Tensor) or embedding.ndim != 2 or embedding.shape[1] != width:
        got = tuple(embedding.shape) if isinstance(embedding, Tensor) else "no pooler_output"
        raise TypeError(f"expected a projected embedding (batch, {width}) in {type(features).__name__}, got {got}")
    return embedding


def load(config: Scorer, folder: Path, device: str) -> CLIPScorer:
    """A CLIPModel with the processor of `config.processor`, or its own.

    Raises:
        InputError: files are missing, the weights have another hash, or do not fill the model exactly.
    """
    source = model_folder(config, folder, [WEIGHTS, "config.json", *([] if config.processor else PROCESSOR_FILES)])
    processor = hub_folder(config.processor, PROCESSOR_FILES) if config.processor else source
    weight_sha256 = checked_weights(config, folder, source / WEIGHTS)
    transformers_logging.disable_progress_bar()
    try:
        model, report = CLIPModel.from_pretrained(
            source, local_files_only=True, use_safetensors=True, dtype=torch.float32, output_loading_info=True
        )
        tokenizer = CLIPTokenizer.from_pretrained(processor, local_files_only=True)
        image_processor = CLIPImageProcessorPil.from_pretrained(processor, local_files_only=True)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise InputError("a CLIP model does not load", where=source, got=str(error)[:300]) from error
    _check_filled(source, report)
    image_size = model.config.vision_config.image_size
    return CLIPScorer(
        tokenizer=tokenizer,
        image_processor=image_processor,
        label=scorer_label(config, source_model(config), image_size),
        weight_sha256=weight_sha256,
        image_size=image_size,
        model=model,
        batch_size=config.batch_size,
        device=device,
    )


def _check_filled(source: Path, report: dict[str, Any]) -> None:
    """transformers only logs weights that it drew at random or left out; older files hold position_ids, unused."""
    wrong = [
        f"{kind[:-5]} {key}"
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")
        for key in map(str, report[kind])
        if "position_ids" not in key
    ]
    if wrong:
        raise InputError(
            "weights and configuration of a CLIP model do not belong together",
            where=source,
            expected="every weight of the model, and no other",
            got=", ".join(sorted(wrong)[:5]),
        )
