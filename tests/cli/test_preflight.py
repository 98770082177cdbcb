"""Every scorer scores before anything is trained."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from jagg.cli.models import preflight
from jagg.errors import InputError

SMOKE = Path(__file__).parents[2] / "configs" / "smoke.yaml"


@pytest.fixture
def study(tiny_scorer_folders: dict, tmp_path: Path) -> Path:
    """A study's file, with its tiny scorers built."""
    content = yaml.safe_load(SMOKE.read_text()) | {"results": str(tmp_path / "results")}
    content["scorers"] = {name: config.model_dump(mode="json") for name, (config, _) in tiny_scorer_folders.items()}
    for name, (_, folder) in tiny_scorer_folders.items():
        shutil.copytree(folder, tmp_path / "results" / content["study"] / "scorers" / name)
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_every_scorer_gives_one_finite_cosine(study: Path, tmp_path: Path) -> None:
    preflight(study, tmp_path / "preflight.json")
    scorers = json.loads((tmp_path / "preflight.json").read_text())["scorers"]
    assert set(scorers) == {"hpsv2", "pickscore", "clipscore"}
    assert all(-1 <= record["value"] <= 1 and "@" in record["scorer"] for record in scorers.values())


@pytest.mark.parametrize(("metric", "name"), [("hpsv2", "HPS_v2.1_compressed.pt"), ("pickscore", "model.safetensors")])
def test_a_missing_file_is_named_and_nothing_is_written(study: Path, tmp_path: Path, metric: str, name: str) -> None:
    path = next((tmp_path / "results").glob(f"*/scorers/{metric}/{name}"))
    path.unlink()
    with pytest.raises(InputError, match=path.name):
        preflight(study, tmp_path / "preflight.json")
    assert not (tmp_path / "preflight.json").exists()
