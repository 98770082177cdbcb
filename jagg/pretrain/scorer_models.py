"""Untrained embedded scorers on disk, in the formats of the real ones."""

import gzip
from pathlib import Path

import torch

from jagg.config import Scorer
from jagg.errors import unknown_name
from jagg.pretrain.captions import vocabulary
from jagg.records import write_json
from jagg.scorers.cosine import CosineScorer

IMAGE_SIZE = 32
"""Height and width of an embedded scorer's input, in pixels."""
CONTEXT_LENGTH = 24
EMBEDDING_WIDTH = 64

CLIP_TOWERS = {
    "pickscore": {
        "vision": {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "patch_size": 4},
        "text": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
    },
    "clipscore": {
        "vision": {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "patch_size": 4},
        "text": {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4},
    },
}
"""Family -> sizes of its transformers CLIPModel; patch size in pixels. The families differ so that scores do, too."""
RESNET = {"layers": [1, 1, 1, 1], "width": 16, "patch_size": None, "image_size": IMAGE_SIZE}
"""hpsv2: open_clip's ModifiedResNet learns a given accuracy in a fraction of a small ViT's time."""


def word_merges(words: list[str]) -> list[tuple[str, str]]:
    """Byte-pair merges that make one token of each word: what both CLIP tokenizers read as their vocabulary."""
    merges: dict[tuple[str, str], None] = {}
    for word in words:
        symbols = [*word[:-1], f"{word[-1]}</w>"]
        while len(symbols) > 1:
            merges[symbols[0], symbols[1]] = None
            symbols = [symbols[0] + symbols[1], *symbols[2:]]
    return list(merges)
