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
from jagg.records import SCORES, write_json, write_table
from jagg.report.data import truncated_prompts
from jagg.stats.compare import compare_files
from jagg.stats.design import Design

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


def test_cut_prompts_are_marked_by_scorer_and_can_be_left_out(
    scorers: StudyScorers, images: Path, tmp_path: Path
) -> None:
    """Embedded scorers read 16 tokens, start and end among them; two of four prompts are longer."""
    for path in images.iterdir():
        path.unlink()
    prompts = [Prompt(f"words-{count}", " ".join(["red"] * count), "") for count in (13, 14, 15, 200)]
    for prompt in prompts:
        Image.new("RGB", (32, 32), (200, 30, 30)).save(images / f"{prompt.id}_0.png")
    write_prompts(tmp_path / "long.json", prompts)
    table = scorers.score_folder(images, tmp_path / "long.json")
    assert truncated_prompts(table) == dict.fromkeys(("hpsv2", "pickscore", "clipscore"), "2 of 4")
    cut = {(row["metric"], row["prompt_id"]) for row in table.to_pylist() if row["truncated"]}
    assert cut == {(m, f"words-{count}") for m in ("hpsv2", "pickscore", "clipscore") for count in (15, 200)}
    values = {(row["metric"], row["prompt_id"]): row["value"] for row in table.to_pylist()}
    for metric in ("hpsv2", "pickscore", "clipscore"):
        assert values[metric, "words-14"] == values[metric, "words-15"] == values[metric, "words-200"]
    for arm in ("baseline", "jagg"):
        named = table.set_column(2, "arm", pa.array([arm] * len(table)))
        write_table(tmp_path / f"{arm}.csv", named)
    files = [tmp_path / "baseline.csv", tmp_path / "jagg.csv"]
    for whole, num_prompts in ((False, 4), (True, 2)):
        rows = compare_files(files, Design("baseline"), whole_prompts=whole).differences().to_pylist()
        assert {row["num_prompts"] for row in rows} == {num_prompts}
    write_table(files[0], table.drop_columns(["truncated"]).set_column(2, "arm", pa.array(["baseline"] * len(table))))
    with pytest.raises(InputError, match="not known which prompts are cut"):
        compare_files(files, Design("baseline"), whole_prompts=True)


class Matching:
    """1 for an image whose red says the number of its prompt, else 0."""

    name, unit = "matching@0", "cosine"

    def score(self, *, images: np.ndarray, prompts: list[str]) -> np.ndarray:
        return np.array([float(image[0, 0, 0] == int(prompt)) for image, prompt in zip(images, prompts, strict=True)])


def test_every_image_is_scored_against_its_own_prompt(scorers: StudyScorers, tmp_path: Path) -> None:
    numbered = [Prompt(f"p{number}", str(40 * number + 10), "") for number in range(5)]
    folder = tmp_path / "numbered"
    folder.mkdir()
    for prompt in numbered:
        Image.new("RGB", (32, 32), (int(prompt.text), 0, 0)).save(folder / f"{prompt.id}_0.png")
    scorers._scorers = {"hpsv2": Matching()}
    deranged = [replace(prompt, text=other.text) for prompt, other in zip(numbered, numbered[1:] + numbered[:1])]
    for prompts, mean in ((numbered, 1.0), (numbered[::-1], 1.0), (deranged, 0.0)):
        write_prompts(tmp_path / "prompts.json", prompts)
        table = scorers.score_folder(folder, tmp_path / "prompts.json")
        assert np.mean(table["value"].to_pylist()) == mean
        assert table["truncated"].null_count == 5


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


def test_black_images_of_a_file_have_scores(scorers: StudyScorers, images: Path, prompts: Path) -> None:
    for path in images.iterdir():
        Image.new("RGB", (32, 32)).save(path)
    values = scorers.score_folder(images, prompts)["value"].to_pylist()
    assert len(values) == 12
    assert np.isfinite(values).all()


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
