"""The same loop on the real classes: small FLUX and QwenImage pipelines and small scorers of the real formats."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from analytic import PROMPTS, analytic_study

from jagg.backbones import load_backbone
from jagg.config import Study
from jagg.errors import InputError
from jagg.keys import RunKey, RunPaths
from jagg.prompts import write_prompts
from jagg.records import HISTORY, read_json, read_table
from jagg.train.checkpoint import load_checkpoint
from jagg.train.loop import train_run

LORA = {"rank": 2, "alpha": 4.0}


@pytest.fixture(params=["flux", "qwen_image"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue({"flux": "tiny_flux_folder", "qwen_image": "tiny_qwen_folder"}[request.param])


def small_study(model: Any, scorers: dict, lora: bool) -> Study:
    return analytic_study(
        backbones={"model": model[0].model_dump(mode="json")},
        scorers={metric: scorers[metric][0].model_dump(mode="json") for metric in ("hpsv2", "clipscore")},
        reward={"weights": {"hpsv2": 0.5, "clipscore": 0.5}},
        training__trained_steps=2,
        training__checkpoints=[0, 2],
        training__prompts_per_step=2,
        training__micro_batch_size=8,
        training__learning_rate=1e-3,
        training__lora=LORA if lora else None,
    )


@pytest.mark.parametrize("lora", [True, False], ids=["lora", "full"])
def test_a_run_on_embedded_models(model: Any, tiny_scorer_folders: dict, tmp_path: Path, lora: bool) -> None:
    study, out = small_study(model, tiny_scorer_folders, lora), tmp_path / "run"
    write_prompts(tmp_path / "train.json", PROMPTS)
    manifest = train_run(
        study,
        RunKey("model", "dance", "jagg", 0),
        backbone_folder=model[1],
        scorer_folders={metric: folder for metric, (_, folder) in tiny_scorer_folders.items()},
        prompts_path=tmp_path / "train.json",
        out=out,
        note=lambda line: None,
    )
    rows = read_table(RunPaths(out).history, HISTORY).to_pylist()
    assert manifest["status"] == "complete"
    assert [row["backward_passes"] for row in rows] == [8 * 6, 8 * 6]
    assert max(row["ratio_max_deviation"] for row in rows) <= 1e-6
    assert all(row["grad_norm"] > 0 for row in rows)
    assert set(json.loads(rows[0]["reward_parts"])) == {"hpsv2", "clipscore"}
    assert manifest["weights"]["scorer hpsv2"].count("@") == 1

    backbone = load_backbone(*model)
    text, latents = backbone.encode_prompts(["red"]), torch.randn(1, *backbone.latent_shape)
    with torch.no_grad():
        base = backbone.velocity(latents, torch.tensor([0.7]), text)
        load_checkpoint(backbone, RunPaths(out).checkpoint(0))
        assert torch.equal(backbone.velocity(latents, torch.tensor([0.7]), text), base)
        applied = load_checkpoint(backbone, RunPaths(out).checkpoint(2))
        changed = backbone.velocity(latents, torch.tensor([0.7]), text)
    assert applied == read_json(RunPaths(out).checkpoint(2) / "checkpoint.json")["tensors"] > 0
    assert not torch.equal(changed, base)
    if not lora:
        again = type(backbone.transformer).from_pretrained(RunPaths(out).checkpoint(2))
        assert all(
            torch.equal(a, b) for a, b in zip(again.state_dict().values(), backbone.transformer.state_dict().values())
        )


def test_a_missing_model_is_refused_before_anything_is_written(
    tiny_flux_folder: Any, tiny_scorer_folders: dict, tmp_path: Path
) -> None:
    study = small_study(tiny_flux_folder, tiny_scorer_folders, lora=True)
    write_prompts(tmp_path / "train.json", PROMPTS)
    with pytest.raises(InputError):
        train_run(
            study,
            RunKey("model", "dance", "jagg", 0),
            backbone_folder=tmp_path / "nothing",
            scorer_folders={metric: folder for metric, (_, folder) in tiny_scorer_folders.items()},
            prompts_path=tmp_path / "train.json",
            out=tmp_path / "run",
        )
    assert list((tmp_path / "run").iterdir()) == []
