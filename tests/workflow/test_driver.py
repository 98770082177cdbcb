"""Starting studies: two drivers, and the rests of a killed one."""

import json
import os
import socket
from pathlib import Path

import pytest

from jagg.cli import driver
from jagg.config import load_study
from jagg.errors import InputError

STUDY = load_study(Path(__file__).parents[2] / "configs" / "smoke.yaml")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").touch()
    return tmp_path


def record(project: Path, study: str, pid: int) -> None:
    folder = project / ".snakemake" / "jagg-drivers"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{study}.json").write_text(json.dumps({"host": socket.gethostname(), "pid": pid}))


def lock(project: Path) -> None:
    path = project / ".snakemake" / "locks" / "0.output.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def test_a_second_driver_of_a_study_is_refused(project: Path) -> None:
    with driver.driving(STUDY), pytest.raises(InputError, match=str(os.getpid())), driver.driving(STUDY):
        pass
    assert not list((project / ".snakemake" / "jagg-drivers").iterdir())


def test_locks_of_a_dead_driver_are_stale(project: Path) -> None:
    with driver.driving(STUDY) as stale:
        assert not stale
    record(project, STUDY.study, pid=2**22 + 1)
    lock(project)
    with driver.driving(STUDY) as stale:
        assert stale


def test_locks_are_not_stale_while_another_study_is_driven(project: Path) -> None:
    record(project, "other", pid=os.getpid())
    lock(project)
    with driver.driving(STUDY) as stale:
        assert not stale


def test_outside_the_project_the_message_says_where_to_go(project: Path) -> None:
    (project / "Snakefile").unlink()
    with pytest.raises(InputError, match="no Snakefile here"), driver.driving(STUDY):
        pass
