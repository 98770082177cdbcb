"""Fixtures that several rooms share."""

import os
from pathlib import Path

# The networks here are tiny: a second thread is slower than none, and spins on cores that other jobs need.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"

import hypothesis  # noqa: E402
import pytest  # noqa: E402

from jagg.config import Backbone, EmbeddedScorer, Scorer  # noqa: E402

# How long an example takes says how busy the machine is, nothing of the code.
hypothesis.settings.register_profile("project", deadline=None)
hypothesis.settings.load_profile("project")


@pytest.fixture(scope="session")
def tiny_scorer_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Scorer, Path]]:
    """Metric -> (configuration, folder) of embedded scorers, trained until they know a background when they see it."""
    from jagg.pretrain.scorers import pretrain_scorer

    folders = {}
    for metric, preference_steps in (("hpsv2", 2), ("pickscore", 2), ("clipscore", 0)):
        source = EmbeddedScorer(kind="embedded", contrastive_steps=40, preference_steps=preference_steps, batch_size=16)
        config = Scorer(family=metric, version="v2.1" if metric == "hpsv2" else None, source=source, batch_size=8)
        folders[metric] = (config, tmp_path_factory.mktemp("scorers") / metric)
        pretrain_scorer(*folders[metric])
    return folders


ModelFolder = tuple[Backbone, Path]
"""A backbone's configuration and the folder that `jagg pretrain` filled for it."""


def tiny_backbone(family: str, **source: int) -> Backbone:
    """An embedded backbone that is built in seconds: real classes, next to no training."""
    steps = {"autoencoder_steps": 4, "flow_steps": 20, "batch_size": 8, "num_layers": 1, "num_single_layers": 1}
    return Backbone(
        family=family,
        source={"kind": "embedded", "learning_rate": 5e-3, **steps, **source},
        image_size=32,
        max_text_tokens={"flux": 16, "qwen_image": 20}[family],
    )


def _pretrained(family: str, folder: Path) -> ModelFolder:
    from jagg.pretrain.backbones import pretrain_backbone

    config = tiny_backbone(family)
    pretrain_backbone(config, folder)
    return config, folder


@pytest.fixture(scope="session")
def tiny_flux_folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """A small FLUX pipeline, hardly trained; read only."""
    return _pretrained("flux", tmp_path_factory.mktemp("models") / "flux")


@pytest.fixture(scope="session")
def tiny_qwen_folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """A small QwenImage pipeline, hardly trained; read only."""
    return _pretrained("qwen_image", tmp_path_factory.mktemp("models") / "qwen_image")
