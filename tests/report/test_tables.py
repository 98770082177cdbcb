"""The study's tables from the files of its runs."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from simulated_study import EFFECTS, PACKAGES, only, simulated_study, write_runs

from jagg.config import Study
from jagg.errors import InputError
from jagg.keys import RunKey, StudyPaths
from jagg.records import (
    BACKWARD_PASSES,
    HISTORY,
    PAIRED_DIFFERENCES,
    RUNS,
    SCORES,
    lock_sha256,
    read_json,
    read_table,
    table_of,
    write_json,
    write_table,
)
from jagg.report.tables import aggregate, last_attempts, study_tables
from jagg.stats.tables import ATTRITION

CONTRACT = {
    "paired_differences.csv": (
        "backbone, algorithm, metric, role, step, arm, reference, num_seeds, mean_reference, mean_arm, difference, "
        "sd_difference, ci_low, ci_high, ci_level, ci_method, p_value, p_holm, sign_flip_p, sign_flip_floor, margin, "
        "p_noninferiority, p_equivalence, verdict, smallest_detectable, seeds_needed, note"
    ),
    "backward_passes.csv": (
        "backbone, algorithm, arm, seed, trajectories, trained_steps, windows_exact, windows_approximate, "
        "backward_passes, backward_passes_expected, backward_passes_per_trajectory, ratio_to_baseline, "
        "forward_passes, transformer_flops, rollout_s, update_s, update_time_ratio, step_time_ratio"
    ),
}


@pytest.mark.parametrize("name", sorted(CONTRACT))
def test_columns_stand_in_the_order_of_the_contract(finished: tuple[Study, StudyPaths], name: str) -> None:
    header = finished[1].table(name).read_text().splitlines()[0].replace('"', "").split(",")
    wanted = CONTRACT[name].split(", ")
    assert header[: len(wanted)] == wanted


def test_rows_of_every_run_are_there(finished: tuple[Study, StudyPaths]) -> None:
    _, paths = finished
    assert read_table(paths.table("scores.parquet"), SCORES).num_rows == 36 * 3 * 3 * 4 * 2
    assert read_table(paths.table("history.parquet"), HISTORY).num_rows == 36 * 12
    assert read_table(paths.table("runs.csv"), RUNS)["status"].to_pylist() == ["complete"] * 36


def test_known_effects_are_found(finished: tuple[Study, StudyPaths]) -> None:
    rows = read_table(finished[1].table("paired_differences.csv"), PAIRED_DIFFERENCES).to_pylist()
    assert len(rows) == 2 * (4 + 1) * 3 * 3
    for row in rows:
        if row["step"] == 12 and row["backbone"] == "pooled":
            assert row["ci_low_family"] < EFFECTS[row["arm"]] < row["ci_high_family"]
            assert row["verdict"] == {"jagg": "equivalent", "ablation": "inferior"}[row["arm"]]
        if row["step"] == 0:
            assert row["verdict"] == "not-estimable"
            assert row["p_value"] is None


def test_passes_are_14_against_20_and_equal_what_the_history_says(finished: tuple[Study, StudyPaths]) -> None:
    rows = read_table(finished[1].table("backward_passes.csv"), BACKWARD_PASSES).to_pylist()
    for row in rows:
        assert row["trajectories"] == 12 * 8
        assert row["backward_passes"] == row["backward_passes_expected"]
        assert row["transformer_flops"] is None
        assert "transformer_flops not measured" in row["note"]
        if row["algorithm"] == "dancegrpo":
            per_trajectory, windows = (20, (5, 0)) if row["arm"] == "baseline" else (14, (2, 3))
            assert row["backward_passes_per_trajectory"] == per_trajectory
            assert row["ratio_to_baseline"] == per_trajectory / 20
            assert (row["windows_exact"], row["windows_approximate"]) == tuple(96 * w for w in windows)
        if row["arm"] == "baseline":
            assert row["ratio_to_baseline"] == row["update_time_ratio"] == row["step_time_ratio"] == 1
    jagg = [row for row in rows if row["arm"] == "jagg"]
    assert np.mean([row["update_time_ratio"] for row in jagg]) == pytest.approx(1.0 / 1.3, rel=0.02)


def test_diverged_and_missing_runs_are_listed_and_not_averaged(tmp_path: Path) -> None:
    study = only(simulated_study(tmp_path), backbones=["flux"])
    diverged, missing = RunKey("flux", "dancegrpo", "jagg", 1), RunKey("flux", "dancegrpo", "baseline", 2)
    paths = write_runs(study, diverged=(diverged,))
    paths.run(missing).manifest.unlink()
    aggregate(study, paths)
    runs = read_table(paths.table("runs.csv"), RUNS).to_pylist()
    states = {RunKey(*[row[name] for name in ("backbone", "algorithm", "arm", "seed")]): row["status"] for row in runs}
    assert {key: state for key, state in states.items() if state != "complete"} == {
        diverged: "diverged",
        missing: "missing",
    }
    differences = read_table(paths.table("paired_differences.csv"), PAIRED_DIFFERENCES).to_pylist()
    cell = [r for r in differences if (r["backbone"], r["algorithm"], r["arm"]) == ("flux", "dancegrpo", "jagg")]
    assert {row["num_seeds"] for row in cell} == {1}
    assert all("only in baseline: seeds 1" in r["note"] and "only in jagg: seeds 2" in r["note"] for r in cell)
    passes = read_table(paths.table("backward_passes.csv"), BACKWARD_PASSES).to_pylist()
    assert len(passes) == 16
    alone = [row for row in passes if row["ratio_to_baseline"] is None]
    assert {(row["arm"], row["seed"]) for row in alone} == {("jagg", 2), ("ablation", 2)}
    assert all("no complete run of baseline" in row["note"] for row in alone)


def test_a_run_whose_ratio_is_not_one_before_any_update_is_left_out(tmp_path: Path) -> None:
    study = simulated_study(tmp_path)
    paths = write_runs(study)
    key = RunKey("flux", "dancegrpo", "jagg", 1)
    history = read_table(paths.run(key).history, HISTORY)
    place = history.schema.get_field_index("ratio_max_deviation")
    deviations = np.zeros(len(history))
    deviations[2] = 2.0**-8  # a log-probability off by one rounding of bfloat16
    write_table(paths.run(key).history, history.set_column(place, "ratio_max_deviation", pa.array(deviations)))
    aggregate(study, paths)
    (row,) = [row for row in read_table(paths.table("runs.csv"), RUNS).to_pylist() if row["status"] != "complete"]
    assert row["status"] == "ratio check failed"
    assert "0.00391 from 1 before any update (training step 3), more than 1 clip_range (0.0001)" in row["note"]
    differences = read_table(paths.table("paired_differences.csv"), PAIRED_DIFFERENCES).to_pylist()
    cell = [r for r in differences if (r["backbone"], r["algorithm"], r["arm"]) == ("flux", "dancegrpo", "jagg")]
    assert {row["num_seeds"] for row in cell} == {2}
    counts = [
        (row["attempted_arm"], row["finished_arm"], row["excluded_arm"], row["excluded_reference"], row["num_imputed"])
        for row in read_table(paths.table("attrition.csv"), ATTRITION).to_pylist()
        if (row["backbone"], row["algorithm"], row["arm"]) == ("flux", "dancegrpo", "jagg")
    ]
    assert set(counts) == {(3, 3, 1, 1, 1)}
    for allowed in (None, 40.0):
        comparison = study.comparison.model_copy(update={"max_ratio_deviation": allowed})
        runs = study_tables(study.model_copy(update={"comparison": comparison}), paths)["runs.csv"]
        assert set(runs["status"].to_pylist()) == {"complete"}


def test_times_of_different_machines_have_no_ratio(tmp_path: Path) -> None:
    study = simulated_study(tmp_path)
    paths = write_runs(study)
    key = RunKey("flux", "dancegrpo", "jagg", 1)
    record = read_json(paths.run(key).manifest)
    write_json(paths.run(key).manifest, record | {"device": {"name": "an accelerator"}})
    tables = study_tables(study, paths)
    rows = {
        RunKey(r["backbone"], r["algorithm"], r["arm"], r["seed"]): r for r in tables["backward_passes.csv"].to_pylist()
    }
    assert (rows[key]["machine"], rows[key]["environment"]) == ("an accelerator", lock_sha256(PACKAGES)[:12])
    assert (rows[key]["update_time_ratio"], rows[key]["step_time_ratio"]) == (None, None)
    assert rows[key]["ratio_to_baseline"] == 0.7
    assert "baseline's run was timed on simulated" in rows[key]["note"]
    assert {row["update_time_ratio"] is None for of, row in rows.items() if of != key} == {False}
    costs = [
        row for row in tables["costs.csv"].to_pylist()
        if (row["backbone"], row["algorithm"], row["arm"]) == ("flux", "dancegrpo", "jagg")
    ]  # fmt: skip
    assert {row["ratio"] is None for row in costs if row["method"] == "exact"} == {False}
    assert {row["note"] for row in costs if row["method"] != "exact"} == {
        "not estimable: pairs timed on different machines or libraries: seeds 1"
    }


def test_the_images_of_a_run_are_all_its_rollouts(tmp_path: Path) -> None:
    """300 training steps x 32 prompts x 12 images."""
    study = simulated_study(tmp_path, seeds=(0,))
    training = study.training.model_copy(
        update={"trained_steps": 300, "prompts_per_step": 32, "group_size": 12, "checkpoints": (0, 300)}
    )
    study = study.model_copy(update={"training": training})
    rows = study_tables(study, write_runs(study))["backward_passes.csv"].to_pylist()
    assert {row["trajectories"] for row in rows} == {115_200}
    assert {row["backward_passes"] for row in rows if row["arm"] == "baseline"} == {115_200 * 20, 115_200 * 4}


def expect_refusal(study: Study, paths: StudyPaths, *texts: str) -> None:
    with pytest.raises(InputError) as error:
        aggregate(study, paths)
    assert all(text in str(error.value) for text in texts), error.value
    assert not paths.table("scores.parquet").exists()


def test_a_truncated_score_file_is_named(tmp_path: Path) -> None:
    study = only(simulated_study(tmp_path, seeds=(0,)), backbones=["flux"], algorithms=["dancegrpo"])
    paths = write_runs(study)
    path = paths.run(RunKey("flux", "dancegrpo", "jagg", 0)).scores(6)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    expect_refusal(study, paths, str(path))


def test_a_score_file_of_another_run_or_without_a_metric_is_named(tmp_path: Path) -> None:
    study = only(simulated_study(tmp_path, seeds=(0,)), backbones=["flux"], algorithms=["dancegrpo"])
    paths = write_runs(study)
    run, other = (paths.run(RunKey("flux", "dancegrpo", arm, 0)) for arm in ("jagg", "baseline"))
    kept = run.scores(6).read_bytes()
    run.scores(6).write_bytes(other.scores(6).read_bytes())
    expect_refusal(study, paths, str(run.scores(6)), "rows of another run")
    run.scores(6).write_bytes(kept)
    table = read_table(run.scores(6), SCORES)
    write_table(run.scores(6), table.filter(pa.compute.not_equal(table["metric"], "hpsv2")))
    expect_refusal(study, paths, str(run.scores(6)), "not complete")


def test_a_run_of_other_settings_is_refused_by_key(tmp_path: Path) -> None:
    study = only(simulated_study(tmp_path, seeds=(0,)), backbones=["flux"], algorithms=["dancegrpo"])
    paths = write_runs(study)
    for name, value, made in (("eta", 0.7, 0.3), ("advantage_deviation", "batch", "group")):
        content = study.model_dump(mode="json")
        content["algorithms"]["dancegrpo"][name] = value
        expect_refusal(
            Study.model_validate(content), paths, f"algorithm.{name} {value}", f"algorithm.{name} {made}", "run.json"
        )


def test_a_study_without_runs_is_refused(tmp_path: Path) -> None:
    study = simulated_study(tmp_path)
    expect_refusal(study, StudyPaths.of(study), "no run of the study is complete")


def test_one_arm_alone_gives_an_empty_comparison(tmp_path: Path) -> None:
    study = only(simulated_study(tmp_path, seeds=(0,)), backbones=["flux"], arms=["baseline"])
    paths = write_runs(study)
    aggregate(study, paths)
    assert read_table(paths.table("paired_differences.csv"), PAIRED_DIFFERENCES).num_rows == 0


def test_repeated_steps_count_once_and_the_last_attempt_wins(finished: tuple[Study, StudyPaths]) -> None:
    first = read_table(finished[1].run(RunKey("flux", "dancegrpo", "jagg", 0)).history, HISTORY)
    again = [row | {"attempt": 2, "loss": 7.0} for row in first.slice(5, 3).to_pylist()]
    history = last_attempts(pa.concat_tables([first, table_of(again, HISTORY)]))
    assert history["step"].to_pylist() == list(range(1, 13))
    assert [row["loss"] == 7.0 for row in history.to_pylist()] == [step in (6, 7, 8) for step in range(1, 13)]
