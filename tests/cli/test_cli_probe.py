"""`jagg probe` as users call it: what it refuses, with exit status 2 and nothing written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def refused(tmp_path: Path, config: Path, **options: object) -> str:
    out = tmp_path / "probe.parquet"
    given = {"backbone": "flux", "algorithm": "dancegrpo", "seed": 0, "out": out} | options
    process = subprocess.run(
        [sys.executable, "-m", "jagg", "probe", str(config), *(f"--{name}={value}" for name, value in given.items())],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 2, process.stdout + process.stderr
    assert process.stderr.startswith("jagg: ")
    assert not out.exists()
    return process.stderr


def test_a_study_without_a_probe_is_refused(tmp_path: Path) -> None:
    content = yaml.safe_load((ROOT / "configs" / "smoke.yaml").read_text())
    del content["probe"]
    config = tmp_path / "study.yaml"
    config.write_text(yaml.safe_dump(content))
    assert "a section `probe`" in refused(tmp_path, config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": "fluxx"}, "did you mean 'flux'?"),
        ({"algorithm": "dance"}, "did you mean 'dancegrpo'?"),
        ({"seed": 5}, "a seed of probe.calibration or probe.holdout"),
        ({"seed": 1}, "run.json"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, options: dict[str, object], message: str) -> None:
    assert message in refused(tmp_path, ROOT / "configs" / "smoke.yaml", **options)
