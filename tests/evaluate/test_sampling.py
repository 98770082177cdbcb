"""Evaluation images of a checkpoint: the same bits every time, and of the run that the configuration means."""

from pathlib import Path
from typing import Any

import pytest
from analytic import PROMPTS, analytic_study

from jagg.config import Study
from jagg.errors import InputError
from jagg.evaluate.sampling import sample_checkpoints
from jagg.keys import RunKey, StudyPaths
from jagg.prompts import write_prompts
from jagg.records import read_json
from jagg.train.loop import train_run

KEY = RunKey("flux", "dance", "jagg", 0)


@pytest.fixture
def study(tiny_flux_folder: Any, tiny_scorer_folders: dict, tmp_path: Path) -> Study:
    """A study on small real models with one run of one training step."""
    config, folder = tiny_flux_folder
    study = analytic_study(
        results=str(tmp_path / "results"),
        backbones={"flux": config.model_dump(mode="json")},
        scorers={"hpsv2": tiny_scorer_folders["hpsv2"][0].model_dump(mode="json")},
        reward={"weights": {"hpsv2": 1.0}},
        algorithms={"dance": {"family": "dancegrpo", "sampling_steps": 3, "window": 3, "clip_range": 1e-4}},
        arms={"baseline": {"estimator": "exact"}, "jagg": {"estimator": "jagg"}},
        training__trained_steps=1,
        training__checkpoints=[0, 1],
        training__prompts_per_step=2,
        training__micro_batch_size=8,
        evaluation={"images_per_prompt": 2, "sampling_steps": 2, "batch_size": 3},
    )
    paths = StudyPaths.of(study)
    paths.backbone("flux").parent.mkdir(parents=True)
    paths.backbone("flux").symlink_to(folder)
    for split in ("train", "evaluation"):
        write_prompts(paths.prompts(split), PROMPTS[:2])
    train_run(
        study,
        KEY,
        backbone_folder=folder,
        scorer_folders={"hpsv2": tiny_scorer_folders["hpsv2"][1]},
        prompts_path=paths.prompts("train"),
        out=paths.run(KEY).folder,
        note=lambda line: None,
    )
    return study


def test_a_checkpoint_sampled_twice_gives_equal_images(study: Study, tmp_path: Path) -> None:
    run = StudyPaths.of(study).run(KEY)
    for name in ("once", "twice"):
        sample_checkpoints(study, KEY, run, {1: tmp_path / name}, lambda line: None)
    once, twice = (read_json(tmp_path / name / "images.json") for name in ("once", "twice"))
    assert once["images"] == 4
    assert once["images_sha256"] == twice["images_sha256"]
    sample_checkpoints(study, KEY, run, {0: tmp_path / "untouched"}, lambda line: None)
    assert read_json(tmp_path / "untouched" / "images.json")["images_sha256"] != once["images_sha256"]
    other = study.model_copy(update={"training": study.training.model_copy(update={"learning_rate": 0.5})})
    with pytest.raises(InputError, match=r"training\.learning_rate 0\.5"):
        sample_checkpoints(other, KEY, run, {1: tmp_path / "other"}, lambda line: None)
    assert not (tmp_path / "other").exists()
