"""Building a study's scorer folder: training an embedded scorer, or checking and recording a full-size one."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jagg.config import EmbeddedScorer, Scorer
from jagg.pretrain.contrastive import contrastive_step_loss, optimise
from jagg.pretrain.folders import replaced_folder
from jagg.pretrain.preferences import preference_step_loss
from jagg.pretrain.scorer_models import create_untrained, save_weights
from jagg.pretrain.scorer_quality import held_out_accuracies
from jagg.records import write_json
from jagg.scorers import load_scorer, preflight, scorer_loader
from jagg.scorers.cosine import CosineScorer
from jagg.scorers.sources import MANIFEST
from jagg.streams import stream_seed

Progress = Callable[[str, int, int], None]
"""Called with the stage, the optimizer steps done and their number."""

PREFERENCE_RATE = 0.3
"""Peak learning rate of preference tuning, as a share of the contrastive one."""


def pretrain_scorer(config: Scorer, out: Path, progress: Progress = lambda stage, done, total: None) -> dict[str, Any]:
    """Fill the scorer folder `out` (results/<study>/scorers/<metric>/) and return its manifest, scorer.json.

    An embedded scorer is trained; a hub or folder one is loaded, scored once, and recorded. An earlier scorer in `out`
    is replaced as a whole.

    Raises:
        InputError: no embedded form of the family; weights missing, damaged or unreachable.
    """
    with replaced_folder(Path(out), MANIFEST) as folder:
        manifest: dict[str, Any] = {"family": config.family, "source": config.source.model_dump(mode="json")}
        if isinstance(config.source, EmbeddedScorer):
            manifest |= _train(config, config.source, folder, progress)
        write_json(folder / MANIFEST, manifest)
        scorer = load_scorer(config, folder)
        manifest |= {"label": scorer.name, "preflight": preflight({config.family: scorer})[config.family]}
        if isinstance(scorer, CosineScorer):
            manifest |= {
                "num_parameters": scorer.num_parameters,
                "image_size": scorer.image_size,
                "weight_sha256": scorer.weight_sha256,
            }
        write_json(folder / MANIFEST, manifest)
    return manifest


def _train(config: Scorer, source: EmbeddedScorer, folder: Path, progress: Progress) -> dict[str, Any]:
    start = time.perf_counter()
    load = scorer_loader(config.family)
    create_untrained(config, folder, stream_seed("scorer-weights", config.family, source.seed))
    scorer = load(config, folder, "cpu")
    assert isinstance(scorer, CosineScorer), config.family
    stages = {
        "contrastive": (contrastive_step_loss, source.contrastive_steps, source.learning_rate),
        "preference": (preference_step_loss, source.preference_steps, PREFERENCE_RATE * source.learning_rate),
    }
    for stage, (step_loss, num_steps, learning_rate) in stages.items():
        rng = np.random.default_rng(stream_seed(f"scorer-{stage}", config.family, source.seed))
        optimise(
            scorer,
            partial(step_loss, scorer, rng, source.batch_size),
            num_steps,
            learning_rate,
            partial(progress, stage),
        )
    save_weights(config, scorer, folder)
    training_s = time.perf_counter() - start
    trained = load(config, folder, "cpu")
    assert isinstance(trained, CosineScorer), config.family
    return {
        "held_out_accuracy": held_out_accuracies(trained, source.seed),
        "training_s": round(training_s, 3),
    }
