"""MLflow against the files, with the real sqlite store."""

import json
import math
import multiprocessing
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from simulated_study import simulated_study, write_runs

from jagg.config import Study
from jagg.errors import InputError
from jagg.keys import RunKey, StudyPaths
from jagg.records import HISTORY, read_json, read_table, write_json, write_table
from jagg.report.tables import aggregate
from jagg.track import Summary, track, verify
from jagg.track.content import CONTENT_TAG, Entry, entries
from jagg.track.store import Store, opened
from jagg.track.sync import _check_complete

Query = Callable[[str], list[tuple]]
TABLES = ("runs", "metrics", "params", "tags", "experiments")
ONE_CELL = {"algorithm": "dancegrpo", "backbone": "flux"}
KEY = RunKey("flux", "dancegrpo", "jagg", 0)


def small_study(results: Path, seeds: tuple[int, ...] = (0,), **changes: object) -> Study:
    """One cell and two arms of the simulated study."""
    whole = simulated_study(results).model_dump(mode="json")
    parts = {
        "backbones": {"flux": whole["backbones"]["flux"]},
        "algorithms": {"dancegrpo": whole["algorithms"]["dancegrpo"]},
        "arms": {"baseline": {"estimator": "exact"}, "jagg": {"estimator": "jagg", "routing": {"jagg_frac": 0.6}}},
    }
    return simulated_study(results, seeds, **{**parts, **changes})


def written(study: Study, diverged: tuple[RunKey, ...] = ()) -> StudyPaths:
    paths = write_runs(study, diverged)
    aggregate(study, paths)
    return paths


def counts(rows: Query) -> list[int]:
    return [rows(f"select count(*) from {name}")[0][0] for name in TABLES]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_runs_are_nested_and_hold_what_the_files_say(results: Path, rows: Query) -> None:
    study = small_study(results)
    paths = written(study)
    assert track(study, paths) == Summary(added=4, replaced=0, updated=0, unchanged=0)
    tags = {}
    for run, key, value in rows("select run_uuid, key, value from tags"):
        tags.setdefault(run, {})[key] = value
    ids = {values["jagg.key"]: run for run, values in tags.items()}
    assert set(ids) == {
        "simulated",
        "flux/dancegrpo",
        *(f"flux/dancegrpo/{arm}/seed-0" for arm in ("baseline", "jagg")),
    }
    run = tags[ids[str(KEY)]]
    assert run["mlflow.parentRunId"] == ids["flux/dancegrpo"]
    assert tags[ids["flux/dancegrpo"]]["mlflow.parentRunId"] == ids["simulated"]
    assert {name: run[f"jagg.{name}"] for name in ("backbone", "algorithm", "arm", "seed")} == {
        "backbone": "flux", "algorithm": "dancegrpo", "arm": "jagg", "seed": "0",
    }  # fmt: skip
    stored = rows(f"select step, value from metrics where run_uuid = '{ids[str(KEY)]}' and key = 'train/reward_mean'")
    history = read_table(paths.run(KEY).history, HISTORY)
    assert sorted(stored) == list(zip(history["step"].to_pylist(), history["reward_mean"].to_pylist()))
    evaluation = rows(f"select step from metrics where run_uuid = '{ids[str(KEY)]}' and key = 'evaluation/pickscore'")
    assert sorted(evaluation) == [(0,), (6,), (12,)]
    params = dict(rows(f"select key, value from params where run_uuid = '{ids[str(KEY)]}'"))
    assert params["arm.estimator"] == "jagg"
    assert params["config_sha256"] == run["jagg.config_sha256"]
    assert rows("select count(*) from runs where status = 'FINISHED'") == [(4,)]
    record = read_json(paths.tracking_record)
    assert record["runs"] == ids
    assert record["num_metric_points"] == rows("select count(*) from metrics")[0][0]
    artifacts = paths.artifacts / "simulated" / ids["simulated"] / "artifacts"
    assert (artifacts / "tables/scores.parquet").read_bytes() == paths.table("scores.parquet").read_bytes()
    assert verify(study, paths) == []


def test_repeating_adds_nothing(results: Path, rows: Query) -> None:
    study = small_study(results)
    paths = written(study)
    track(study, paths)
    before, record, artifacts = counts(rows), paths.tracking_record.read_bytes(), files(paths.artifacts)
    assert track(study, paths) == Summary(added=0, replaced=0, updated=0, unchanged=4)
    assert counts(rows) == before
    assert paths.tracking_record.read_bytes() == record
    assert files(paths.artifacts) == artifacts


def test_a_new_seed_adds_its_runs_only(results: Path, rows: Query) -> None:
    paths = written(study := small_study(results))
    track(study, paths)
    old = read_json(paths.tracking_record)["runs"]
    more = small_study(results, seeds=(0, 1))
    written(more)
    assert track(more, paths) == Summary(added=2, replaced=0, updated=1, unchanged=3)
    assert old.items() < read_json(paths.tracking_record)["runs"].items()
    assert verify(more, paths) == []


def test_a_run_made_anew_replaces_the_old_one(results: Path, rows: Query) -> None:
    study = small_study(results)
    paths = written(study)
    track(study, paths)
    history = read_table(paths.run(KEY).history, HISTORY)
    place = history.schema.get_field_index("loss")
    write_table(paths.run(KEY).history, history.set_column(place, "loss", pa.array([7.0] * len(history))))
    assert any("train/loss at step 3 is not 7.0" in line for line in verify(study, paths))
    assert track(study, paths).replaced == 1
    assert verify(study, paths) == []
    assert rows("select count(*) from runs where lifecycle_stage = 'active'") == [(4,)]
    assert len(list((paths.artifacts / "simulated").iterdir())) == 4


def test_identity_is_the_configuration_not_what_is_shown(results: Path) -> None:
    """Two configurations that differ in character 7,000 of one value are two identities; no param is too long."""
    found = []
    for end in "ab":
        scorers = simulated_study(results).model_dump(mode="json")["scorers"]
        scorers["hpsv2"]["source"] = {"kind": "folder", "path": "x" * 6999 + end}
        study = small_study(results, scorers=scorers)
        shutil.rmtree(StudyPaths.of(study).root / "runs", ignore_errors=True)
        paths = written(study)
        summary = track(study, paths)
        entry = next(entry for entry in entries(study, paths) if entry.key == str(KEY))
        found.append((entry.identity[0], entry.params["scorers.hpsv2.source.path"], summary.replaced))
    (first, shown, _), (second, shown_again, replaced) = found
    assert first != second
    assert shown == shown_again
    assert len(shown) == 500
    assert replaced == 2


def test_values_that_are_not_finite_are_counted_and_not_sent(results: Path, rows: Query) -> None:
    study = small_study(results)
    paths = written(study, diverged=(KEY,))
    track(study, paths)
    run = read_json(paths.tracking_record)["runs"][str(KEY)]
    values = [value for (value,) in rows("select value from metrics")]
    assert all(math.isfinite(value) and abs(value) < 1e300 for value in values)
    assert rows("select count(*) from metrics where is_nan") == [(0,)]
    metrics = dict(rows(f"select key, value from latest_metrics where run_uuid = '{run}'"))
    assert (metrics["non_finite_count"], metrics["diverged"]) == (2, 1)
    assert rows(f"select status from runs where run_uuid = '{run}'") == [("FAILED",)]
    assert rows(f"select count(*) from metrics where run_uuid = '{run}' and key = 'train/reward_mean'") == [(5,)]
    assert verify(study, paths) == []


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        ("delete from metrics where key = 'evaluation/hpsv2' and step = 6", "evaluation/hpsv2 at step 6 is not"),
        (
            "update metrics set value = 0.5 where key = 'train/loss' and step = 2",
            "train/loss at step 2 is 0.5 in MLflow only",
        ),
        ("update runs set lifecycle_stage = 'deleted' where name like '%jagg/seed-0'", "jagg/seed-0: not in MLflow"),
        ("update runs set status = 'RUNNING' where name like '%jagg/seed-0'", "status is RUNNING"),
        ("delete from params where key = 'arm.estimator'", "params differ: arm.estimator"),
        ("update tags set value = 'z' where key = 'jagg.arm'", "tag jagg.arm is z"),
        ("update tags set value = 'other' where value like '%jagg/seed-0'", "not in the study's files"),
    ],
)
def test_verify_finds_every_kind_of_difference(results: Path, damage: str, line: str) -> None:
    study = small_study(results)
    paths = written(study)
    track(study, paths)
    with sqlite3.connect(results / "mlflow.db") as connection:
        connection.execute(damage)
    assert any(line in found for found in verify(study, paths))


def test_a_lost_artifact_is_found_and_put_back(results: Path) -> None:
    study = small_study(results)
    paths = written(study)
    track(study, paths)
    next(paths.artifacts.rglob("backward_passes.csv")).unlink()
    assert verify(study, paths) == ["simulated: artifact tables/backward_passes.csv is missing or differs"]
    assert track(study, paths).updated == 1
    assert verify(study, paths) == []


@pytest.mark.parametrize("level", ["study", "cell", "run"])
def test_a_run_whose_writer_died_is_made_anew(results: Path, level: str) -> None:
    study = small_study(results)
    paths = written(study)
    track(study, paths)
    with opened(study, paths) as store:
        run = next(run for run in store.runs() if run.data.tags["jagg.level"] == level)
        store.client.delete_tag(run.info.run_id, CONTENT_TAG)
        store.client.update_run(run.info.run_id, status="RUNNING")
    assert track(study, paths) == Summary(added=0, replaced=1, updated=0, unchanged=3)
    assert verify(study, paths) == []


def test_the_results_folder_can_be_moved(results: Path, tmp_path: Path) -> None:
    paths = written(study := small_study(results))
    track(study, paths)
    moved = tmp_path / "moved"
    shutil.move(results, moved)
    again = small_study(moved)
    assert verify(again, StudyPaths.of(again)) == []
    assert track(again, StudyPaths.of(again)) == Summary(added=0, replaced=0, updated=0, unchanged=4)


def test_a_collector_that_stops_early_is_found_out(results: Path, rows: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,205 runs in the store: all are collected; of a collector that stops at 1,000, 205 are missed."""
    study = small_study(results)
    with opened(study, StudyPaths.of(study)) as store:
        experiment = store.experiment_id
    keys = {f"cell/arm/seed-{number}": f"{number:032d}" for number in range(1205)}
    with sqlite3.connect(results / "mlflow.db") as connection:
        connection.executemany(
            "insert into runs (run_uuid, name, source_type, status, start_time, lifecycle_stage, artifact_uri, "
            f"user_id, experiment_id) values (?, ?, 'LOCAL', 'FINISHED', 1, 'active', 'a', 'u', {experiment})",
            [(run_id, key) for key, run_id in keys.items()],
        )
        connection.executemany("insert into tags values ('jagg.key', ?, ?)", [*keys.items()])
    made = [Entry(key, None, {"jagg.key": key}, {}) for key in keys]
    monkeypatch.setattr("jagg.track.check.entries", lambda study, paths: made)
    with opened(study, StudyPaths.of(study)) as store:
        runs = store.runs()
    assert len(runs) == len({run.info.run_id for run in runs}) == 1205
    assert not [line for line in verify(study, StudyPaths.of(study)) if "missing" in line]
    monkeypatch.setattr(Store, "runs", lambda self: runs[:1000])
    assert verify(study, StudyPaths.of(study))[0].startswith("205 missing")
    with pytest.raises(InputError, match="205 missing"):
        _check_complete(keys, {run.info.run_id for run in runs[:1000]})


def test_a_store_of_another_version_is_left_alone(results: Path, rows: Query) -> None:
    paths = written(study := small_study(results))
    track(study, paths)
    record = read_json(paths.tracking_record)
    write_json(paths.tracking_record, record | {"mlflow_version": "3.99.0"})
    before = counts(rows)
    written(more := small_study(results, seeds=(0, 1)))
    for _ in range(2):
        summary = track(more, paths)
        assert "MLflow 3.99.0 wrote the store" in summary.left_alone
        assert (summary.added, counts(rows)) == (0, before)
    assert read_json(paths.tracking_record)["runs"] == record["runs"]
    paths.tracking_record.unlink()
    assert track(more, paths).added == 2
    assert verify(more, paths) == []


def test_metrics_of_many_writers_are_all_there_once(results: Path, rows: Query) -> None:
    """16 processes write 200 metrics each into files of their own; the store has 3,200 after one and two imports."""
    whole = simulated_study(results).model_dump(mode="json")
    training = whole["training"] | {"trained_steps": 200, "checkpoints": [0, 200]}
    study = small_study(results, seeds=tuple(range(16)), arms={"baseline": {"estimator": "exact"}}, training=training)
    paths = StudyPaths.of(study)
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=write_runs, args=(study.model_copy(update={"seeds": (seed,)}),)) for seed in study.seeds
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 16
    for changed in (16, 0):
        summary = track(study, paths)
        assert summary.added == (changed and changed + 2)
        assert rows("select count(*) from metrics where key = 'train/loss'") == [(3200,)]
        assert rows("select count(distinct run_uuid || step) from metrics where key = 'train/loss'") == [(3200,)]


def test_a_series_with_infinity_and_nan(results: Path, rows: Query) -> None:
    whole = simulated_study(results).model_dump(mode="json")
    study = small_study(results, training=whole["training"] | {"trained_steps": 4, "checkpoints": [0, 4]})
    paths = write_runs(study)
    history = read_table(paths.run(KEY).history, HISTORY)
    place = history.schema.get_field_index("loss")
    series = pa.array([1.0, math.inf, math.nan, 2.0])
    write_table(paths.run(KEY).history, history.set_column(place, "loss", series))
    aggregate(study, paths)
    track(study, paths)
    run = read_json(paths.tracking_record)["runs"][str(KEY)]
    stored = rows(f"select step, value from metrics where run_uuid = '{run}' and key = 'train/loss' order by step")
    assert stored == [(1, 1.0), (4, 2.0)]
    assert rows(f"select value from metrics where run_uuid = '{run}' and key = 'non_finite_count'") == [(2.0,)]
    assert rows("select count(*) from metrics where abs(value) > 1e300") == [(0,)]


def test_runs_are_searched_to_the_last_page(results: Path) -> None:
    study = small_study(results, seeds=tuple(range(4)))
    paths = written(study)
    track(study, paths)
    with opened(study, paths) as store:
        runs = store.runs(page_size=3)
    assert len(runs) == len({run.info.run_id for run in runs}) == 10


def test_two_runs_of_one_key_are_told_apart_by_the_recorded_id(results: Path) -> None:
    study = small_study(results)
    paths = written(study)
    track(study, paths)
    entry = next(entry for entry in entries(study, paths) if entry.key == str(KEY))
    with opened(study, paths) as store:
        other = store.create(entry, None)
    assert track(study, paths).unchanged == 4
    recorded = read_json(paths.tracking_record)["runs"][str(KEY)]
    paths.tracking_record.unlink()
    with pytest.raises(InputError) as error:
        track(study, paths)
    assert other in str(error.value)
    assert recorded in str(error.value)


def test_a_damaged_store_is_one_clear_message(results: Path) -> None:
    study = small_study(results)
    paths = written(study)
    with sqlite3.connect(results / "mlflow.db") as connection:
        connection.execute("update alembic_version set version_num = 'of the future'")
    with pytest.raises(InputError, match="MLflow cannot open its store"):
        track(study, paths)
    assert not paths.tracking_record.exists()


def _track_in_process(results: Path) -> None:
    study = small_study(results)
    track(study, StudyPaths.of(study))


def test_writers_that_start_together_take_turns(results: Path, rows: Query, capfd: pytest.CaptureFixture[str]) -> None:
    """The store is empty: the first makes and fills it, and nobody meets a half-made one."""
    (results / "mlflow.db").unlink()
    written(small_study(results))
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_track_in_process, args=(results,)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    assert rows("select count(*) from runs") == [(4,)]
    assert rows("select count(*) from experiments where name = 'simulated'") == [(1,)]
    printed = "".join(capfd.readouterr()).lower()
    assert not [word for word in ("duplicate", "error", "locked", "traceback") if word in printed], printed


def test_nothing_is_reported_over_the_network() -> None:
    from mlflow.telemetry.utils import is_telemetry_disabled

    assert json.loads(os.environ["MLFLOW_DISABLE_TELEMETRY"])
    assert is_telemetry_disabled()
