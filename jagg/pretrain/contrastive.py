"""Contrastive training of an embedded scorer on captions and their images (CLIP, Radford et al. 2021)."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from jagg.pretrain.captions import SHAPES, Caption, draw, random_caption
from jagg.pretrain.degradations import augment
from jagg.scorers.cosine import CosineScorer

MAX_LOGIT_SCALE = math.log(100.0)
SHAPES_ALONE = 0.35
"""Share of the steps in which captions name the shape only."""
UNDEGRADED = 0.6
"""Share of the steps in which images are as drawn."""


def contrastive_loss(
    images: Float[Tensor, "batch width"], prompts: Float[Tensor, "batch width"], scale: Tensor, texts: list[str]
) -> Float[Tensor, ""]:
    """CLIP's symmetric cross entropy on unit vectors; equal texts share the target instead of opposing each other."""
    index = torch.tensor([texts.index(text) for text in texts])
    targets = (index[:, None] == index).float()
    targets = targets / targets.sum(1, keepdim=True)
    logits = scale * images @ prompts.T
    return (functional.cross_entropy(logits, targets) + functional.cross_entropy(logits.T, targets)) / 2


def unit_embeddings(
    scorer: CosineScorer, images: UInt8[np.ndarray, "images height width 3"], texts: list[str]
) -> tuple[Float[Tensor, "images width"], Float[Tensor, "texts width"]]:
    """Embeddings of length 1 of images and texts, through the very steps that scoring takes."""
    return (
        functional.normalize(scorer.embed_images(scorer.pixels(images)), dim=1),
        functional.normalize(scorer.embed_prompts(scorer.tokens(texts)), dim=1),
    )


def contrastive_step_loss(
    scorer: CosineScorer, rng: np.random.Generator, batch_size: int, done: float
) -> Float[Tensor, ""]:
    """The loss of one batch of fresh captions and images, `done` (0 to 1) into the training.

    Shapes come first, by captions that name nothing else, then whole captions, then degraded images: a model that
    meets whole captions at once settles on colours and stays at chance on shapes for most of a short training.
    """
    captions = scenes_in_all_shapes(batch_size, rng)
    texts = [f"a {caption.shape}" if done < SHAPES_ALONE else caption.text for caption in captions]
    images = drawn(captions, rng, scorer.image_size)
    if done >= UNDEGRADED:
        images = augment(images, rng)
    image_units, prompt_units = unit_embeddings(scorer, images, texts)
    return contrastive_loss(image_units, prompt_units, logit_scale(scorer), texts)


def scenes_in_all_shapes(batch_size: int, rng: np.random.Generator) -> list[Caption]:
    """Random captions, each followed by the same with the other shapes.

    In a batch of independent captions the colours alone tell nearly all images apart, and shapes are learned late.
    """
    scenes = [random_caption(rng) for _ in range(-(-batch_size // len(SHAPES)))]
    return [replace(scene, shape=shape) for scene in scenes for shape in SHAPES][:batch_size]


def drawn(captions: list[Caption], rng: np.random.Generator, image_size: int) -> UInt8[np.ndarray, "batch size size 3"]:
    """One image a caption."""
    return np.stack([draw(caption, rng, image_size) for caption in captions])


def logit_scale(scorer: CosineScorer) -> Float[Tensor, ""]:
    """The learned inverse temperature, at most 100 as in CLIP."""
    return scorer.model.logit_scale.clamp(max=MAX_LOGIT_SCALE).exp()


def optimise(
    scorer: CosineScorer,
    step_loss: Callable[[float], Tensor],
    num_steps: int,
    learning_rate: float,
    progress: Callable[[int, int], None],
) -> None:
    """AdamW with a linear warm-up over a tenth of the steps and a cosine decay to zero; gradient norm clipped to 1."""
    optimiser = torch.optim.AdamW(
        scorer.model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _warm_up_and_decay(step, num_steps))
    scorer.model.train()
    for step in range(num_steps):
        loss = step_loss(step / num_steps)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(scorer.model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        progress(step + 1, num_steps)
    scorer.model.eval()


def _warm_up_and_decay(step: int, num_steps: int) -> float:
    warm_up = max(1, num_steps // 10)
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, num_steps - warm_up)))
