"""Untrained embedded scorers on disk, in the formats of the real ones."""

import gzip
from collections.abc import Callable
from pathlib import Path

import torch

from jagg.config import Scorer
from jagg.errors import unknown_name
from jagg.pretrain.captions import vocabulary
from jagg.records import write_json
from jagg.scorers.cosine import CosineScorer

IMAGE_SIZE = 32
"""Height and width of an embedded scorer's input, in pixels."""
CONTEXT_LENGTH = 16
EMBEDDING_WIDTH = 64

CLIP_TOWERS = {
    "pickscore": {
        "vision": {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 8},
        "text": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
    },
    "clipscore": {
        "vision": {"hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "patch_size": 8},
        "text": {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4},
    },
}
"""Family -> sizes of its transformers CLIPModel; patch size in pixels. The families differ so that scores do, too."""
RESNET = {"layers": [1, 1, 1, 1], "width": 16, "patch_size": None, "image_size": IMAGE_SIZE}
"""hpsv2: open_clip's ModifiedResNet learns a given accuracy in a fraction of a small ViT's time."""


def word_merges(words: list[str]) -> list[tuple[str, str]]:
    """Byte-pair merges, most urgent first, that make one token of each word: the vocabulary of both CLIP tokenizers."""
    merges: list[tuple[str, str]] = []
    for word in words:
        while len(symbols := _merge(word, merges)) > 1:
            merges.append((symbols[0], symbols[1]))
    return merges


def _merge(word: str, merges: list[tuple[str, str]]) -> list[str]:
    symbols = [*word[:-1], f"{word[-1]}</w>"]
    for pair in merges:
        place = 0
        while place < len(symbols) - 1:
            if (symbols[place], symbols[place + 1]) == pair:
                symbols[place : place + 2] = ["".join(pair)]
            place += 1
    return symbols


def create_untrained(config: Scorer, folder: Path, seed: int) -> None:
    """Write a randomly initialised scorer of the configured family into `folder`.

    Raises:
        InputError: the family has no embedded form.
    """
    if config.family not in CREATORS:
        raise unknown_name("embedded scorer family", config.family, CREATORS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        CREATORS[config.family](config, folder)


def save_weights(config: Scorer, scorer: CosineScorer, folder: Path) -> Path:
    """Write the scorer's weights over those in `folder`; returns the weight file."""
    if config.family == "hpsv2":
        from jagg.scorers.hpsv2 import CHECKPOINTS

        weights = folder / CHECKPOINTS[config.version or ""]
        torch.save({"state_dict": scorer.model.state_dict()}, weights)
        return weights
    from jagg.scorers.clip import WEIGHTS

    scorer.model.save_pretrained(folder)
    return folder / WEIGHTS


def _create_hpsv2(config: Scorer, folder: Path) -> None:
    import open_clip

    from jagg.scorers.hpsv2 import CHECKPOINTS, CONFIG_FILE, MERGES_FILE, tokenizer_of

    lines = ["#version: 0.2", *(" ".join(pair) for pair in word_merges(vocabulary()))]
    (folder / MERGES_FILE).write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    text = {"context_length": CONTEXT_LENGTH, "vocab_size": 0, "width": 64, "heads": 4, "layers": 2}
    model = {"embed_dim": EMBEDDING_WIDTH, "vision_cfg": RESNET, "text_cfg": text}
    write_json(folder / CONFIG_FILE, {"model_cfg": model})
    text["vocab_size"] = tokenizer_of(folder).vocab_size
    write_json(folder / CONFIG_FILE, {"model_cfg": model})
    torch.save({"state_dict": open_clip.CLIP(**model).state_dict()}, folder / CHECKPOINTS[config.version or ""])


def _create_clip(config: Scorer, folder: Path) -> None:
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPProcessor, CLIPTokenizer
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    from transformers.utils import logging

    logging.disable_progress_bar()

    merges = word_merges(vocabulary())
    characters = list(bytes_to_unicode().values())
    symbols = [*characters, *(f"{character}</w>" for character in characters), *("".join(pair) for pair in merges)]
    symbols += ["<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(
        vocab={symbol: index for index, symbol in enumerate(symbols)}, merges=merges, model_max_length=CONTEXT_LENGTH
    )
    size = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    image_processor = CLIPImageProcessorPil(size={"shortest_edge": IMAGE_SIZE}, crop_size=size)
    CLIPProcessor(image_processor, tokenizer).save_pretrained(folder)
    towers = CLIP_TOWERS[config.family]
    text = {
        **towers["text"],
        "intermediate_size": 4 * towers["text"]["hidden_size"],
        "vocab_size": len(symbols),
        "max_position_embeddings": CONTEXT_LENGTH,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision = {
        **towers["vision"],
        "intermediate_size": 4 * towers["vision"]["hidden_size"],
        "image_size": IMAGE_SIZE,
    }
    CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=EMBEDDING_WIDTH)).save_pretrained(
        folder
    )


CREATORS: dict[str, Callable[[Scorer, Path], None]] = {
    "hpsv2": _create_hpsv2,
    "pickscore": _create_clip,
    "clipscore": _create_clip,
}
