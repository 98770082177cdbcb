"""What a study says or refuses before its first job."""

from pathlib import Path

import pytest

from jagg.cli.start import check_start, executor_of
from jagg.config import Study, load_study
from jagg.errors import InputError

SMALL = load_study(Path(__file__).parents[2] / "configs" / "small.yaml")


def study_in(results: Path, uri: str | None = None) -> Study:
    tracking = SMALL.tracking.model_copy(update={"uri": uri})
    return SMALL.model_copy(update={"results": str(results), "tracking": tracking})


def mounts(tmp_path: Path, kind: str) -> Path:
    """The system's list of mounts, with tmp_path/shared on a file system of some kind."""
    path = tmp_path / "mounts"
    path.write_text(f"overlay / overlay rw 0 0\nserver:/export {tmp_path}/shared {kind} rw,vers=4.2 0 0\n")
    return path


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre"])
def test_a_store_on_a_network_file_system_is_refused_on_a_cluster(tmp_path: Path, kind: str) -> None:
    study, lines = study_in(tmp_path / "shared" / "results"), []
    with pytest.raises(InputError) as fault:
        check_start(study, ["--executor", "slurm"], lines.append, mounts(tmp_path, kind))
    for part in (kind, "slurm", "an MLflow server", "a local disk"):
        assert part in str(fault.value)
    lines.clear()
    check_start(study, [], lines.append, mounts(tmp_path, kind))
    assert len(lines) == 1
    assert kind in lines[0]


def test_a_server_or_a_local_disk_is_fine(tmp_path: Path) -> None:
    lines: list[str] = []
    shared, local = study_in(tmp_path / "shared", "http://mlflow:5000"), study_in(tmp_path / "results")
    for study in (shared, local):
        check_start(study, ["--executor", "local"], lines.append, mounts(tmp_path, "nfs4"))
    assert lines == []
    on_share = study_in(tmp_path, f"sqlite:///{tmp_path}/shared/mlflow.db")
    with pytest.raises(InputError, match="nfs4, executor slurm"):
        check_start(on_share, ["-e", "slurm"], lines.append, mounts(tmp_path, "nfs4"))


def test_an_executor_that_was_never_tried_is_said(tmp_path: Path) -> None:
    lines: list[str] = []
    check_start(study_in(tmp_path), ["--executor=googlebatch"], lines.append)
    assert "googlebatch: this project was not tested" in lines[0]


def test_the_executor_may_stand_in_a_profile(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("executor: slurm\njobs: 10\n")
    assert executor_of(["--profile", str(tmp_path)]) == "slurm"
    assert executor_of([f"--workflow-profile={tmp_path}", "--executor", "local"]) == "local"
    assert executor_of(["--keep-going", "--dry-run"]) == "local"
