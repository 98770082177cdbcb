"""How well an embedded scorer judges fresh images: accuracies on captions and pairs that training never drew."""

import numpy as np
import torch

from jagg.pretrain.captions import base_captions
from jagg.pretrain.contrastive import drawn
from jagg.pretrain.preferences import (
    ATTRIBUTES,
    matching_pairs,
    preference_accuracy,
    quality_pairs,
    with_one_change,
)
from jagg.scorers.cosine import CosineScorer
from jagg.streams import stream_seed


def held_out_accuracies(scorer: CosineScorer, seed: int, num_images: int = 240) -> dict[str, float]:
    """Accuracies between 0 and 1 on newly drawn images.

    `right_<attribute>`: an undegraded image scores higher with its caption than with one where that attribute is
    wrong (chance 1/2). `top_1`: its caption scores highest of the 120 base captions (chance 1/120). `preference_*`: of
    two images the better one scores higher (chance 1/2): without less degradation, or right without wrong attributes.
    """
    image_size = scorer.image_size
    rng = np.random.default_rng(stream_seed("scorer-held-out", seed))
    captions = base_captions()
    shown = [captions[index % len(captions)] for index in range(num_images)]
    images = drawn(shown, rng, image_size)
    right = scorer.score(images=images, prompts=[caption.text for caption in shown])
    result = {}
    for attribute in ATTRIBUTES:
        wrong = [with_one_change(caption, attribute, rng).text for caption in shown]
        result[f"right_{attribute}"] = float(np.mean(right > scorer.score(images=images, prompts=wrong)))
    with torch.inference_mode():
        cosines = scorer.image_directions(images) @ scorer.prompt_directions([caption.text for caption in captions]).T
    result["top_1"] = float(np.mean(cosines.argmax(1).cpu().numpy() == np.arange(num_images) % len(captions)))
    result["preference_matching"] = preference_accuracy(scorer, matching_pairs(num_images, rng, image_size))
    result["preference_quality"] = preference_accuracy(scorer, quality_pairs(num_images, rng, image_size))
    return result
