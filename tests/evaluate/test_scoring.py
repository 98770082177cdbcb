"""Folders of images at the boundary of scoring: what is refused, and that rows follow names, not order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from jagg.config import load_study
from jagg.errors import InputError
from jagg.evaluate.scoring import StudyScorers
from jagg.evaluate.signature import evaluation_signature
from jagg.keys import RunKey
from jagg.prompts import Prompt, write_prompts
from jagg.records import SCORES, write_json

STUDY = load_study(Path(__file__).parents[2] / "configs" / "smoke.yaml")
PROMPTS = [Prompt("p0", "a red circle on a blue background", ""), Prompt("p1", "a blue cross on a red background", "")]


@pytest.fixture
def scorers(tiny_scorer_folders: dict, tmp_path: Path) -> StudyScorers:
    """The tiny embedded scorers where a study expects its scorers."""
    configs = {metric: config for metric, (config, _) in tiny_scorer_folders.items()}
    study = STUDY.model_copy(update={"scorers": configs, "results": str(tmp_path / "results")})
    folder = tmp_path / "results" / study.study / "scorers"
    folder.mkdir(parents=True)
    for metric, (_, source) in tiny_scorer_folders.items():
        (folder / metric).symlink_to(source)
    return StudyScorers(study, list(configs))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for prompt in PROMPTS:
        for index in range(2):
            pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{prompt.id}_{index}.png")
    return folder


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    write_prompts(tmp_path / "prompts.json", PROMPTS)
    return tmp_path / "prompts.json"


def test_one_row_an_image_and_metric_with_unit_and_scorer(scorers: StudyScorers, images: Path, prompts: Path) -> None:
    table = scorers.score_folder(images, prompts)
    assert table.schema == SCORES
    assert table.num_rows == 2 * 2 * 3
    rows = table.to_pylist()
    assert {row["unit"] for row in rows} == {"cosine"}
    assert all(-1 <= row["value"] <= 1 and "@" in row["scorer"] for row in rows)
    assert len({(row["prompt_id"], row["image_index"], row["metric"]) for row in rows}) == 12


def test_scoring_twice_gives_the_same_bits_and_order_of_prompts_does_not_matter(
    scorers: StudyScorers, images: Path, prompts: Path, tmp_path: Path
) -> None:
    table = scorers.score_folder(images, prompts)
    write_prompts(tmp_path / "reversed.json", PROMPTS[::-1])
    assert scorers.score_folder(images, prompts).equals(table)
    assert scorers.score_folder(images, tmp_path / "reversed.json").equals(table)


def test_a_sampled_folder_brings_its_key_and_signature(scorers: StudyScorers, images: Path, prompts: Path) -> None:
    key = RunKey("flux", "dancegrpo", "jagg", 7)
    write_json(images / "images.json", {"key": key.row(), "step": 30, "signature": "s", "run_status": "complete"})
    row = scorers.score_folder(images, prompts).to_pylist()[0]
    assert {name: row[name] for name in key.row()} == key.row()
    assert (row["step"], row["signature"]) == (30, "s")


def test_a_diverged_run_without_images_has_no_rows(scorers: StudyScorers, prompts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "none"
    folder.mkdir()
    with pytest.raises(InputError, match="no images to score"):
        scorers.score_folder(folder, prompts)
    write_json(folder / "images.json", {"run_status": "diverged", "step": 30})
    table = scorers.score_folder(folder, prompts)
    assert isinstance(table, pa.Table)
    assert table.num_rows == 0


def test_images_and_prompts_must_match(scorers: StudyScorers, images: Path, prompts: Path, tmp_path: Path) -> None:
    write_prompts(tmp_path / "other.json", [PROMPTS[0], Prompt("p9", "x", "")])
    with pytest.raises(InputError, match="prompts without images: p9; images without a prompt: p1"):
        scorers.score_folder(images, tmp_path / "other.json")


def test_sampled_images_are_not_scored_against_other_texts_of_the_same_ids(
    scorers: StudyScorers, images: Path, prompts: Path, tmp_path: Path
) -> None:
    study = STUDY.model_copy(update={"results": str(tmp_path)})
    write_json(images / "images.json", {"signature": evaluation_signature(study, "flux", PROMPTS)})
    assert scorers.score_folder(images, prompts).num_rows == 12
    write_prompts(tmp_path / "other.json", [replace(PROMPTS[0], text="a green ring"), PROMPTS[1]])
    with pytest.raises(InputError, match="sampled from other prompts"):
        scorers.score_folder(images, tmp_path / "other.json")


def test_lossy_images_are_refused(scorers: StudyScorers, images: Path, prompts: Path) -> None:
    Image.new("RGB", (32, 32)).save(images / "p0_2.jpg")
    with pytest.raises(InputError, match=r"p0_2\.jpg"):
        scorers.score_folder(images, prompts)


@pytest.mark.parametrize("kind", ["truncated", "jpeg inside", "grey"])
def test_damaged_images_are_named(scorers: StudyScorers, images: Path, prompts: Path, kind: str) -> None:
    victim = images / "p1_1.png"
    if kind == "truncated":
        victim.write_bytes(victim.read_bytes()[:60])
    elif kind == "jpeg inside":
        with victim.open("wb") as file:
            Image.new("RGB", (32, 32)).save(file, format="JPEG")
    else:
        Image.new("L", (32, 32)).save(victim)
    with pytest.raises(InputError, match=r"p1_1\.png"):
        scorers.score_folder(images, prompts)


def test_a_name_that_is_no_image_name(scorers: StudyScorers, images: Path, prompts: Path) -> None:
    Image.new("RGB", (32, 32)).save(images / "p0.png")
    with pytest.raises(InputError, match=r"p0\.png"):
        scorers.score_folder(images, prompts)


def test_unknown_metric() -> None:
    with pytest.raises(InputError, match="did you mean 'hpsv2'"):
        StudyScorers(STUDY, ["hpsv"])
