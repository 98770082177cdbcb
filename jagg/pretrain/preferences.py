"""Preference pairs that the image generator can judge, and tuning on them (Bradley-Terry on scaled cosines)."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from jagg.pretrain.captions import COLOURS, SHAPES, Caption, random_caption
from jagg.pretrain.contrastive import contrastive_loss, drawn, logit_scale, unit_embeddings
from jagg.pretrain.degradations import DEGRADATIONS, degrade
from jagg.scorers.cosine import CosineScorer

ATTRIBUTES = ("colour", "shape", "background")


@dataclass(frozen=True)
class PreferencePairs:
    """Two images a text; the first is the better one."""

    texts: list[str]
    better: UInt8[np.ndarray, "pairs size size 3"]
    worse: UInt8[np.ndarray, "pairs size size 3"]


def with_one_change(caption: Caption, attribute: str, rng: np.random.Generator) -> Caption:
    """The caption with another colour, shape or background; shape and background stay of different colours."""
    taken = (caption.shape,) if attribute == "shape" else (caption.colour, caption.background)
    options = [name for name in (SHAPES if attribute == "shape" else COLOURS) if name not in taken]
    return replace(caption, **{attribute: str(rng.choice(options))})


def matching_pairs(num_pairs: int, rng: np.random.Generator, image_size: int) -> PreferencePairs:
    """The image of the text against one with another colour, shape or background, both degraded alike."""
    captions = [random_caption(rng) for _ in range(num_pairs)]
    wrong = [with_one_change(caption, str(rng.choice(ATTRIBUTES)), rng) for caption in captions]
    strengths = rng.uniform(0, 0.5, num_pairs)
    kind = str(rng.choice(list(DEGRADATIONS)))
    better, worse = (degrade(drawn(group, rng, image_size), kind, strengths, rng) for group in (captions, wrong))
    return PreferencePairs([caption.text for caption in captions], better, worse)


def quality_pairs(num_pairs: int, rng: np.random.Generator, image_size: int) -> PreferencePairs:
    """One image of the text, less and more degraded; in half of the pairs the better one is untouched."""
    captions = [random_caption(rng) for _ in range(num_pairs)]
    clean = drawn(captions, rng, image_size)
    low = np.where(rng.random(num_pairs) < 0.5, 0.0, rng.uniform(0, 0.5, num_pairs))
    high = low + rng.uniform(0.2, 0.5, num_pairs)
    kinds = rng.integers(len(DEGRADATIONS), size=num_pairs)
    better, worse = clean.copy(), clean.copy()
    for index, kind in enumerate(DEGRADATIONS):
        rows = np.flatnonzero(kinds == index)
        if len(rows):
            better[rows] = degrade(clean[rows], kind, low[rows], rng)
            worse[rows] = degrade(clean[rows], kind, high[rows], rng)
    return PreferencePairs([caption.text for caption in captions], better, worse)


def preference_loss(better: Float[Tensor, "pairs"], worse: Float[Tensor, "pairs"], scale: Tensor) -> Float[Tensor, ""]:
    """Negative log-likelihood of the preferred image under Bradley and Terry's model, on scaled cosines."""
    return -functional.logsigmoid(scale * (better - worse)).mean()


def preference_step_loss(
    scorer: CosineScorer, rng: np.random.Generator, batch_size: int, done: float
) -> Float[Tensor, ""]:
    """Preferences of one batch (half matching, half quality) plus the contrastive loss of its better images."""
    half = batch_size // 2
    parts = matching_pairs(half, rng, scorer.image_size), quality_pairs(batch_size - half, rng, scorer.image_size)
    texts = [text for part in parts for text in part.texts]
    all_images = np.concatenate([*(part.better for part in parts), *(part.worse for part in parts)])
    # one pass over both halves: batch statistics must not tell better from worse
    images, prompts = unit_embeddings(scorer, all_images, texts)
    better, worse = images.chunk(2)
    scale = logit_scale(scorer)
    preference = preference_loss((better * prompts).sum(1), (worse * prompts).sum(1), scale)
    return preference + contrastive_loss(better, prompts, scale, texts)


def preference_accuracy(scorer: CosineScorer, pairs: PreferencePairs) -> float:
    """Share of pairs whose better image scores higher; ties count as half."""
    better = scorer.score(images=pairs.better, prompts=pairs.texts)
    worse = scorer.score(images=pairs.worse, prompts=pairs.texts)
    return float(np.mean((better > worse) + 0.5 * (better == worse)))
