"""The smoke study from end to end, and what is run again after a change."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import yaml
from study_project import Project

from jagg.config import load_study
from jagg.keys import StudyPaths, run_keys

pytestmark = [pytest.mark.workflow, pytest.mark.slow]
SMOKE = "configs/smoke.yaml"


def edited(project: Project, change: object) -> None:
    path = project.folder / SMOKE
    content = yaml.safe_load(path.read_text())
    change(content)  # type: ignore[operator]
    path.write_text(yaml.safe_dump(content))


def test_every_run_checkpoint_metric_and_image_has_a_score(finished: Project) -> None:
    study = load_study(finished.folder / SMOKE)
    table = pq.read_table(finished.folder / "results/smoke/tables/scores.parquet")
    images = study.prompts.evaluation * study.evaluation.images_per_prompt
    assert table.num_rows == len(list(run_keys(study))) * len(study.training.checkpoints) * 3 * images
    assert pc.all(pc.is_finite(table["value"])).as_py()
    assert set(table["metric"].to_pylist()) == {"hpsv2", "clipscore", "pickscore"}


def test_the_step_0_scores_are_the_same_in_every_run_of_a_backbone(finished: Project) -> None:
    table = pq.read_table(finished.folder / "results/smoke/tables/scores.parquet").to_pandas()
    start = table[table.step == 0].groupby(["backbone", "metric", "prompt_id", "image_index"]).value.nunique()
    assert (start == 1).all()
    end = table[table.step == table.step.max()].groupby(["backbone", "metric", "prompt_id", "image_index"])
    assert (end.value.nunique() > 1).any()


def test_measured_backward_passes_are_the_closed_form(finished: Project) -> None:
    table = pyarrow.csv.read_csv(finished.folder / "results/smoke/tables/backward_passes.csv").to_pandas()
    assert (table.backward_passes == table.backward_passes_expected).all()
    dance = table[table.algorithm == "dancegrpo"].set_index("arm").backward_passes_per_trajectory
    assert set(dance["baseline"]) == {20.0}
    assert set(dance["jagg"]) == set(dance["ablation"]) == {14.0}


def test_a_finished_study_runs_nothing_again(finished: Project) -> None:
    for seed in ("0", "1", "2"):
        assert finished.pending(SMOKE, PYTHONHASHSEED=seed) == {}


def test_order_of_keys_and_name_of_the_file_run_nothing(finished: Project, tmp_path: Path) -> None:
    twin = finished.twin(tmp_path / "twin")
    content = yaml.safe_load((twin.folder / SMOKE).read_text())
    shuffled = _shuffled(content, random.Random(0))
    (twin.folder / "configs/other.yaml").write_text(yaml.safe_dump(shuffled, sort_keys=False))
    assert twin.pending("configs/other.yaml") == {}


def _shuffled(content: object, draw: random.Random) -> object:
    """Mappings with their keys in another order, however deep they stand."""
    if not isinstance(content, dict):
        return content
    items = [(name, _shuffled(inner, draw)) for name, inner in content.items()]
    return dict(draw.sample(items, len(items)))


def test_a_renamed_folder_runs_nothing(finished: Project, tmp_path: Path) -> None:
    twin = finished.twin(tmp_path / "before")
    (tmp_path / "before").rename(tmp_path / "after")
    assert Project(tmp_path / "after").pending(SMOKE) == {}
    assert twin.folder.name == "before"


def test_a_new_seed_trains_only_its_own_runs(finished: Project, tmp_path: Path) -> None:
    twin = finished.twin(tmp_path / "twin")
    edited(twin, lambda content: content["seeds"].append(3))
    assert twin.pending(SMOKE) == {"train": 12, "evaluate": 12, "tables": 1, "audit": 1, "report": 1, "track": 1}


def test_a_new_backbone_trains_only_its_own_runs(finished: Project, tmp_path: Path) -> None:
    twin = finished.twin(tmp_path / "twin")
    edited(twin, lambda content: content["backbones"].update(second=content["backbones"]["flux"]))
    runs = {"train": 12, "evaluate": 12, "probe": 4}
    assert twin.pending(SMOKE) == {"pretrain_backbone": 1, **runs, "tables": 1, "audit": 1, "report": 1, "track": 1}


def test_an_edited_estimator_trains_its_own_arm_only(finished: Project, tmp_path: Path) -> None:
    twin = finished.twin(tmp_path / "twin")
    path = twin.folder / "jagg/gradients/estimators/jagg.py"
    path.write_text(path.read_text() + "\n# a comment changes nothing\n")
    assert twin.pending(SMOKE) == {}
    path.write_text(path.read_text() + "\nCHANGED = True\n")
    runs = {"train": 8, "evaluate": 8, "probe": 8}  # a probe measures this estimator beside the others
    assert twin.pending(SMOKE) == {**runs, "tables": 1, "audit": 1, "report": 1, "track": 1}


def test_a_killed_study_is_finished_by_the_same_command(finished: Project, tmp_path: Path) -> None:
    twin = finished.twin(tmp_path / "twin")
    paths = StudyPaths(twin.folder / "results", "smoke")
    keys = list(run_keys(load_study(twin.folder / SMOKE)))
    victim, others = paths.run(keys[0]), [paths.run(key) for key in keys[1:]]
    shutil.rmtree(victim.folder)
    # What a run is for must be missing too, or Snakemake does not miss the run.
    shutil.rmtree(paths.root / "tables")
    paths.report.unlink()
    paths.tracking_record.unlink()
    times = [run.manifest.stat().st_mtime_ns for run in others]
    driver = subprocess.Popen(
        [sys.executable, "-m", "jagg", "study", "run", SMOKE, "--cores", "1"],
        cwd=twin.folder,
        env=twin.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 180
    while not victim.checkpoint(0).exists():
        assert driver.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    assert not victim.manifest.exists()
    process = twin.jagg("study", "run", SMOKE, "--cores", "2")
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    assert twin.pending(SMOKE) == {}
    assert [run.manifest.stat().st_mtime_ns for run in others] == times


def test_a_truncated_score_file_stops_the_tables_with_its_name(finished: Project, tmp_path: Path) -> None:
    twin = finished.twin(tmp_path / "twin")
    study = load_study(twin.folder / SMOKE)
    paths = StudyPaths(twin.folder / "results", study.study)
    victim = paths.run(next(run_keys(study))).scores(0)
    before = (paths.table("scores.parquet")).read_bytes()
    victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
    process = twin.jagg("tables", SMOKE)
    assert process.returncode == 2
    assert str(victim.relative_to(twin.folder)) in process.stderr
    assert paths.table("scores.parquet").read_bytes() == before


def test_mlflow_and_files_agree_and_tracking_again_adds_nothing(finished: Project, tmp_path: Path) -> None:
    twin = finished.twin(tmp_path / "twin")
    assert twin.jagg("track", SMOKE, "--verify").returncode == 0
    before = (twin.folder / "results/smoke/tracking.json").read_text()
    assert twin.jagg("track", SMOKE).returncode == 0
    assert (twin.folder / "results/smoke/tracking.json").read_text() == before
    assert twin.jagg("track", SMOKE, "--verify").returncode == 0


def test_status_counts_every_run_as_done(finished: Project) -> None:
    process = finished.jagg("study", "status", SMOKE)
    assert process.returncode == 0, process.stderr
    rows = [line.split() for line in process.stdout.splitlines()[1:]]
    assert len(rows) == 12
    assert all(row[3:] == ["2", "2", "0", "0", "0", "0", "0"] for row in rows)


def test_the_report_names_the_small_models_and_needs_no_network(finished: Project) -> None:
    html = (finished.folder / "results/smoke/report.html").read_text()
    assert "FLUX.1-dev" in html
    assert not re.search(r"""(?:src|href)=["']?https?://""", html)


def test_snakemake_s_own_report_has_the_captions_and_needs_no_network(finished: Project, tmp_path: Path) -> None:
    out = tmp_path / "snakemake.html"
    command = [sys.executable, "-m", "snakemake", "--config", f"study={SMOKE}", "--report", str(out)]
    offline = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    subprocess.run(
        command, cwd=finished.folder, env=finished.environment() | offline, capture_output=True, timeout=120, check=True
    )
    html = out.read_text()
    assert all(name in html for name in ("paired_differences.csv", "backward_passes.csv", "claims.csv", "report.html"))
    assert "A verdict follows from the interval alone." in html


def test_images_are_made_again_bit_for_bit(finished: Project, tmp_path: Path) -> None:
    study = load_study(finished.folder / SMOKE)
    paths = StudyPaths(finished.folder / "results", study.study)
    run = paths.run(next(run_keys(study)))
    step = study.training.checkpoints[-1]
    relative = run.folder.relative_to(finished.folder).as_posix()
    process = finished.jagg("sample", SMOKE, "--run", relative, "--step", str(step), "--out", str(tmp_path / "again"))
    assert process.returncode == 0, process.stderr
    names = [path.name for path in run.images(step).glob("*.png")]
    assert len(names) == study.prompts.evaluation * study.evaluation.images_per_prompt
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (run.images(step) / name).read_bytes()
