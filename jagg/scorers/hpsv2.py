"""HPSv2 (Wu et al. 2023): an open_clip model tuned on human preferences, `{"state_dict": ...}` in a .pt file."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from jagg.config import Scorer
from jagg.errors import InputError
from jagg.scorers.cosine import CosineScorer, Images
from jagg.scorers.sources import checked_weights, model_folder, scorer_label

CHECKPOINTS = {"v2.0": "HPS_v2_compressed.pt", "v2.1": "HPS_v2.1_compressed.pt"}
ARCHITECTURE = "ViT-H-14"
"""The published weights' model among open_clip's own configurations; a folder may hold another configuration."""
CONFIG_FILE = "open_clip_config.json"
MERGES_FILE = "bpe_merges.txt.gz"
_MEAN, _STD = (
    torch.tensor(values)[:, None, None] for values in (open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD)
)


class HPSv2(CosineScorer):
    """HPSv2 on open_clip.

    The authors' package vendors an older open_clip, lacks its tokenizer's vocabulary and silences user warnings for
    the whole process, so it is not used; tests hold that both give the same score.
    """

    def __init__(self, *, tokenizer: Any, **shared: Any) -> None:
        super().__init__(**shared)
        self._tokenizer = tokenizer
        self.max_tokens = tokenizer.context_length

    def pixels(self, images: Images) -> Float[Tensor, "batch 3 size size"]:
        unit = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
        return (fitted(unit, self.image_size) - _MEAN) / _STD

    def tokens(self, prompts: list[str]) -> dict[str, Tensor]:
        return {"text": self._tokenizer(prompts)}

    def truncated(self, prompts: list[str]) -> list[bool]:
        return [len(self._tokenizer.encode(prompt)) > self.max_tokens - 2 for prompt in prompts]

    def embed_images(self, pixels: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch width"]:
        return self.model.encode_image(pixels)

    def embed_prompts(self, tokens: dict[str, Tensor]) -> Float[Tensor, "batch width"]:
        return self.model.encode_text(tokens["text"])


def fitted(images: Float[Tensor, "batch 3 height width"], size: int) -> Float[Tensor, "batch 3 size size"]:
    """Images whose longer edge is scaled to `size` and whose shorter one is padded with zeros, as the authors do.

    open_clip by itself scales the shorter edge and crops, and scales bytes rather than floats.
    """
    height, width = images.shape[2:]
    if max(height, width) == size:
        scaled = images
    else:
        scale = size / max(height, width)
        new_size = (round(height * scale), round(width * scale))
        scaled = functional.interpolate(images, new_size, mode="bicubic", antialias=True, align_corners=False)
    rows, columns = (size - edge for edge in scaled.shape[2:])
    return functional.pad(scaled, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))


def load(config: Scorer, folder: Path, device: str) -> HPSv2:
    """HPSv2 of the configured version.

    Raises:
        InputError: the weights are missing, have another hash, or do not fit the model.
    """
    checkpoint = CHECKPOINTS[config.version or ""]
    source = model_folder(config, folder, [checkpoint])
    weights = source / checkpoint
    weight_sha256 = checked_weights(config, folder, weights)
    architecture = architecture_of(source)
    with torch.random.fork_rng(devices=[]):  # initial weights, soon replaced, take no draws from anyone
        model = open_clip.CLIP(**open_clip.get_model_config(architecture))
    try:
        open_clip.load_checkpoint(model, str(weights), weights_only=True)
    except (RuntimeError, KeyError, EOFError, pickle.UnpicklingError) as error:
        raise InputError(
            "HPSv2 weights do not load", where=weights, expected=f"a state_dict of {architecture}", got=str(error)[:300]
        ) from error
    image_size = int(np.max(model.visual.image_size))
    model_name = f"hps{config.version}" + (f"-{ARCHITECTURE.lower()}" if architecture == ARCHITECTURE else "")
    return HPSv2(
        tokenizer=tokenizer_of(source),
        label=scorer_label(config, model_name, image_size),
        weight_sha256=weight_sha256,
        image_size=image_size,
        model=model,
        batch_size=config.batch_size,
        device=device,
    )


def architecture_of(folder: Path) -> str:
    """The name under which open_clip finds the model of `folder`: its own configuration file, else ViT-H-14."""
    return f"local-dir:{folder}" if (folder / CONFIG_FILE).is_file() else ARCHITECTURE


def tokenizer_of(folder: Path) -> Any:
    """open_clip's CLIP tokenizer, with the folder's own merges where it has some."""
    merges = {"bpe_path": str(folder / MERGES_FILE)} if (folder / MERGES_FILE).is_file() else {}
    return open_clip.get_tokenizer(architecture_of(folder), **merges)
