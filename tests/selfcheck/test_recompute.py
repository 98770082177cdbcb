"""The self-audit passes on what the project wrote, and names the first thing that was changed."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jagg.claims.registry import load_claims
from jagg.config import Study
from jagg.cost.passes import trained_passes
from jagg.errors import InputError
from jagg.keys import RunKey, StudyPaths
from jagg.records import lock_sha256, read_json, write_json
from jagg.report.tables import aggregate
from jagg.selfcheck.recompute import self_audit

REGISTRIES = sorted((Path(__file__).parents[2] / "configs" / "claims").glob("*.yaml"))
Copy = tuple[Study, StudyPaths]
TABLES = ("paired_differences.csv", "backward_passes.csv", "runs.csv", "costs.csv", "curves.csv", "equal_cost.csv",
          "attrition.csv", "claims.csv")  # fmt: skip


def checked(copy: Copy) -> list[str]:
    lines: list[str] = []
    self_audit(*copy, load_claims(REGISTRIES), trained_passes, lines.append)
    return lines


def refused(copy: Copy) -> str:
    with pytest.raises(InputError) as raised:
        checked(copy)
    return str(raised.value)


def run_of(copy: Copy, arm: str = "jagg", seed: int = 1):  # type: ignore[no-untyped-def]
    return copy[1].run(RunKey("flux", "dancegrpo", arm, seed))


def change_column(path: Path, column: str, change: Callable[[list], list]) -> None:
    table = pq.read_table(path)
    place = table.column_names.index(column)
    values = pa.array(change(table.column(column).to_pylist()), table.schema.field(column).type)
    pq.write_table(table.set_column(place, column, values), path)


def change_record(path: Path, **changes: object) -> None:
    write_json(path, read_json(path) | changes)


def test_an_untouched_study_agrees_after_a_move_and_without_its_old_folder(copied: Copy) -> None:
    study, paths = copied
    moved = paths.results / "elsewhere"
    moved.mkdir()
    paths.root.rename(moved / study.study)
    lines = checked((study.model_copy(update={"results": str(moved)}), StudyPaths(moved, study.study)))
    assert any("report.html" in line for line in lines)
    assert all(any(name in line for line in lines) for name in TABLES)
    assert not paths.root.exists()


@pytest.mark.parametrize("name", TABLES)
def test_one_changed_digit_in_a_table_is_named(copied: Copy, name: str) -> None:
    path = copied[1].table(name)
    lines = path.read_text().splitlines(keepends=True)
    number = next(i for i, line in enumerate(lines[1:], start=1) if re.search(r"\d(?=,|\n)", line))
    at = [match.start() for match in re.finditer(r"\d(?=,|\n)", lines[number])][-1]
    digit = str((int(lines[number][at]) + 1) % 10)
    lines[number] = lines[number][:at] + digit + lines[number][at + 1 :]
    path.write_text("".join(lines))
    message = refused(copied)
    assert f"{path}, row {number}" in message


def test_a_changed_score_in_the_table_of_scores_is_named(copied: Copy) -> None:
    path = copied[1].table("scores.parquet")
    change_column(path, "value", lambda values: [*values[:-1], values[-1] + 1e-12])
    assert f"{path}, row" in refused(copied)


def test_swapped_score_files_are_named(copied: Copy) -> None:
    run = run_of(copied)
    first, last = run.scores(6), run.scores(12)
    shutil.move(first, first.with_suffix(".kept"))
    shutil.move(last, first)
    shutil.move(first.with_suffix(".kept"), last)
    assert str(first) in refused(copied)


def test_scores_of_another_arm_under_this_arms_name_do_not_give_the_tables(copied: Copy) -> None:
    ours, theirs = run_of(copied).scores(12), run_of(copied, "baseline").scores(12)
    values = pq.read_table(theirs).column("value").to_pylist()
    change_column(ours, "value", lambda _: values)
    assert "tables/scores.parquet" in refused(copied)


def test_a_changed_count_of_the_ledger_is_named_even_where_the_totals_follow(copied: Copy) -> None:
    run = run_of(copied)
    change_column(run.history, "backward_passes", lambda values: [values[0] + 1, *values[1:]])
    assert "total of backward_passes" in refused(copied)
    totals = read_json(run.manifest)["totals"]
    change_record(run.manifest, totals=totals | {"backward_passes": totals["backward_passes"] + 1})
    message = refused(copied)
    assert "closed form" in message
    assert "training step 1" in message


def test_a_missing_forward_count_fails_a_claim_of_savings(copied: Copy) -> None:
    path = copied[1].table("backward_passes.csv")
    header, *rows = (line.split(",") for line in path.read_text().splitlines())
    place = header.index("forward_passes")
    path.write_text("\n".join(",".join(line[:place] + line[place + 1 :]) for line in (header, *rows)) + "\n")
    assert "backward_passes.csv" in refused(copied)


def test_a_mixed_scorer_hash_is_named(copied: Copy) -> None:
    path = run_of(copied).scores(12)
    change_column(path, "scorer", lambda values: [*values[:-1], "embedded-pickscore-simulated@ffffffffffff"])
    message = refused(copied)
    assert "another scorer" in message
    assert str(path) in message


@pytest.mark.parametrize("column", ["environment", "signature", "unit"])
def test_scores_made_otherwise_than_the_references_are_named(copied: Copy, column: str) -> None:
    run = run_of(copied)
    for step in (0, 6, 12):
        change_column(run.scores(step), column, lambda values: ["other"] * len(values))
    assert str(run.folder) in refused(copied)


def test_a_mixed_environment_lock_is_named(copied: Copy) -> None:
    run = run_of(copied)
    environment = read_json(run.manifest)["environment"]
    change_record(run.manifest, environment=environment | {"lock_sha256": "1" * 64})
    assert "packages are not those of the lock" in refused(copied)
    packages = {"torch": "9.9"}
    lock = lock_sha256(packages)
    change_record(run.manifest, environment=environment | {"packages": packages, "lock_sha256": lock})
    message = refused(copied)
    assert "another environment" in message
    assert str(run.folder) in message


def test_other_noise_than_the_references_and_noise_shared_by_two_seeds_are_named(copied: Copy) -> None:
    run = run_of(copied)
    kept = pq.read_table(run.history)
    change_column(run.history, "noise_sha256", lambda values: ["f" * 64, *values[1:]])
    assert "other prompts, noise or windows" in refused(copied)
    pq.write_table(kept, run.history)
    for arm in ("baseline", "jagg"):
        change_column(run_of(copied, arm).history, "noise_sha256", lambda values: [f"{0:064d}"] * len(values))
    assert "two seeds saw the same noise" in refused(copied)


def test_a_changed_number_of_the_report_or_its_figures_is_named(copied: Copy) -> None:
    paths = copied[1]
    page = paths.report.read_text()
    paths.report.write_text(
        re.sub(r">(\d)\.(\d)", lambda match: f">{match[1]}.{(int(match[2]) + 1) % 10}", page, count=1)
    )
    assert "report" in refused(copied)
    paths.report.write_text(page)
    figure = sorted(paths.figure("").glob("*.csv"))[0]
    text = figure.read_text()
    figure.write_text(text[:-2] + str((int(text[-2]) + 1) % 10) + "\n" if text[-2].isdigit() else text + "1\n")
    assert figure.name in refused(copied)


def test_changed_prompts_images_checkpoints_and_identities_are_named(copied: Copy) -> None:
    paths, run = copied[1], run_of(copied)
    for path, change in (
        (paths.prompts("evaluation"), lambda text: text.replace("circle", "square").replace('"a ', '"one ')),
        (run.checkpoint(12) / "diffusion_pytorch_model.safetensors", lambda text: text + "x"),
        (run.manifest, lambda text: text.replace('"learning_rate": 0.0001', '"learning_rate": 0.0002')),
    ):
        kept = path.read_text()
        path.write_text(change(kept))
        assert str(path) in refused(copied)
        path.write_text(kept)
    image = sorted(run.images(12).glob("*.png"))[0]
    shutil.copyfile(sorted(run.images(6).glob("*.png"))[0], image)
    assert str(run.images(12)) in refused(copied)


STRAYS = {
    "a run of another seed": ("runs/flux/dancegrpo/jagg/seed-1", "runs/flux/dancegrpo/jagg/seed-77"),
    "another arm": ("runs/flux/dancegrpo/jagg", "runs/flux/dancegrpo/third"),
    "scores of another checkpoint": (
        "runs/flux/dancegrpo/jagg/seed-1/scores/step-12.parquet",
        "runs/flux/dancegrpo/jagg/seed-1/scores/step-99.parquet",
    ),
    "another table": ("tables/runs.csv", "tables/more.csv"),
    "another figure": ("figures/gains.csv", "figures/more.csv"),
}


@pytest.mark.parametrize("kind", STRAYS)
def test_a_result_that_nothing_declares_is_not_passed_over(copied: Copy, kind: str) -> None:
    like, added = (copied[1].root / name for name in STRAYS[kind])
    if like.is_dir():
        shutil.copytree(like, added)
    else:
        shutil.copyfile(like, added)
    assert added.name in refused(copied)


@pytest.mark.parametrize("pattern", ["*.svg", "*.png", "*.csv"])
def test_a_changed_or_missing_figure_is_named(copied: Copy, pattern: str) -> None:
    path = sorted(copied[1].figure("").glob(pattern))[-1]
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    assert path.name in refused(copied)
    path.unlink()
    assert path.name in refused(copied)


def test_models_that_are_not_those_of_the_runs_are_named(copied: Copy) -> None:
    paths = copied[1]
    for path, changes in (
        (paths.backbone("flux") / "model.json", {"family": "qwen_image"}),
        (paths.backbone("flux") / "model.json", {"num_parameters": 7}),
        (paths.scorer("hpsv2") / "scorer.json", {"family": "clipscore"}),
        (paths.scorer("hpsv2") / "scorer.json", {"source": {"kind": "hub"}}),
        (paths.scorer("hpsv2") / "scorer.json", {"weight_sha256": "f" * 64}),
        (run_of(copied).manifest, {"weights": {"backbone": "f" * 64}}),
        (run_of(copied).manifest, {"model": "another"}),
        (run_of(copied).manifest, {"arm": "third"}),
        (run_of(copied).manifest, {"status": "fine"}),
    ):
        kept = read_json(path)
        change_record(path, **changes)
        assert "self-audit: " in refused(copied), changes
        write_json(path, kept)
    weights = run_of(copied).checkpoint(12) / "diffusion_pytorch_model.safetensors"
    weights.unlink()
    assert "without its weights" in refused(copied)


def test_another_group_of_a_prompt_is_named(copied: Copy) -> None:
    path = copied[1].prompts("evaluation")
    prompts = read_json(path)
    group = prompts[0]["group"]
    path.write_text(path.read_text().replace(f'"group": "{group}"', '"group": "other"', 1))
    message = refused(copied)
    assert "other prompts" in message
    assert "group='other'" in message


def test_another_configuration_than_the_recorded_one_is_refused(copied: Copy) -> None:
    study, paths = copied
    other = study.comparison.model_copy(update={"ci_level": 0.9})
    assert "comparison" in refused((study.model_copy(update={"comparison": other}), paths))


def test_a_run_with_an_infinite_score_cannot_be_averaged_away(copied: Copy) -> None:
    study, paths = copied
    change_column(run_of(copied).scores(12), "value", lambda values: [float("inf"), *values[1:]])
    with pytest.raises(InputError, match="cosine"):
        aggregate(study, paths)
    assert "outside the range" in refused(copied)


def test_no_scores_of_the_untouched_model_is_refused(copied: Copy) -> None:
    study, _ = copied
    for arm in study.arms:
        for seed in study.seeds:
            run_of(copied, arm, seed).scores(0).unlink()
    assert "step-0.parquet" in refused(copied)
