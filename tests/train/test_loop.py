"""Whole runs on analytic networks: outputs, ledger, streams, continuation, divergence."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from analytic import PROMPTS, AnalyticBackbone, BrokenScorer, analytic_models, analytic_study, key

from jagg.config import Study
from jagg.errors import InputError
from jagg.flow import sample_ode, shifted_sigmas
from jagg.keys import RunKey, RunPaths
from jagg.records import HISTORY, file_sha256, read_json, read_table
from jagg.streams import stream_seed
from jagg.train.loop import Models, run_training
from jagg.train.step import draw_batch

FULL_WEIGHTS = "diffusion_pytorch_model.safetensors"
TIMES = ("rollout_s", "reward_s", "update_s", "rest_s", "step_s", "peak_memory_bytes", "attempt")


def train(
    out: Path,
    of: RunKey | None = None,
    study: Study | None = None,
    load: Callable[[], Models] | None = None,
    on_step: Callable[[int, Any], None] | None = None,
) -> dict[str, Any]:
    return run_training(
        study or analytic_study(),
        of or key(),
        PROMPTS,
        out,
        load or analytic_models(),
        note=lambda line: None,
        on_step=on_step,
    )


def history(out: Path) -> list[dict[str, Any]]:
    return read_table(RunPaths(out).history, HISTORY).to_pylist()


def final_weights(out: Path, step: int = 6, name: str = FULL_WEIGHTS) -> str:
    return file_sha256(RunPaths(out).checkpoint(step) / name)


def without_times(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def test_a_run_leaves_its_manifest_history_and_checkpoints(tmp_path: Path) -> None:
    manifest = train(tmp_path)
    assert manifest == read_json(tmp_path / "run.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints", "history.parquet", "run.json"]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-0", "step-3", "step-6"]
    rows = history(tmp_path)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert manifest["status"] == "complete"
    assert {"name", "attention", "deterministic_algorithms"} <= set(manifest["device"])
    # Windows at 0, 4, 8 of 10 steps; the first two lie before 0.6: 2 + 2 + 2 passes for each of 12 images.
    assert {(row["backward_passes"], row["backward_passes_expected"]) for row in rows} == {(72, 72)}
    assert {(row["forward_passes_grad"], row["forward_passes_nograd"]) for row in rows} == {(72, 168)}
    assert {(row["windows_exact"], row["windows_approximate"]) for row in rows} == {(1, 2)}
    assert manifest["totals"]["backward_passes"] == 6 * 72
    assert manifest["trained_transitions"] == [{"transitions": list(range(10)), "steps": [1, 2, 3, 4, 5, 6]}]
    assert set(json.loads(rows[0]["reward_parts"])) == {"red", "green"}
    assert final_weights(tmp_path, 3) != final_weights(tmp_path, 6)


def test_training_raises_the_reward(tmp_path: Path) -> None:
    study = analytic_study(training__trained_steps=30, training__checkpoints=[0, 30])
    train(tmp_path, key("baseline"), study)
    rewards = [row["reward_mean"] for row in history(tmp_path)]
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.05


def test_before_any_update_the_ratio_is_one(tmp_path: Path) -> None:
    study = analytic_study(training__optimizer_steps_per_rollout=3, training__micro_batch_size=4)
    train(tmp_path, study=study)
    rows = history(tmp_path)
    assert max(row["ratio_max_deviation"] for row in rows) <= 1e-6
    assert {row["optimizer_steps"] for row in rows} == {3}
    assert {row["backward_passes"] for row in rows} == {72}


def test_later_updates_of_a_rollout_leave_the_ratio_of_one(tmp_path: Path) -> None:
    changes = {"training__optimizer_steps_per_rollout": 3, "training__micro_batch_size": 4}
    study = analytic_study(**changes, training__learning_rate=0.3, algorithms__dance__clip_range=1e-6)
    train(tmp_path, study=study)
    assert all(row["clip_fraction"] > 0.5 for row in history(tmp_path))


@pytest.mark.parametrize("algorithm", ["dance", "fast"])
def test_arms_of_a_seed_see_equal_streams_and_seeds_differ(algorithm: str) -> None:
    study = analytic_study()
    batches = {
        (arm, seed): [draw_batch(study, key(arm, seed, algorithm), PROMPTS, (4, 3), step) for step in (1, 2, 3)]
        for arm in ("baseline", "jagg")
        for seed in (0, 1)
    }
    hashes = {of: [batch.sha256() for batch in drawn] for of, drawn in batches.items()}
    plans = {of: [batch.plan for batch in drawn] for of, drawn in batches.items()}
    for seed in (0, 1):
        assert hashes["baseline", seed] == hashes["jagg", seed]
        assert plans["baseline", seed] == plans["jagg", seed]
        assert len(set(hashes["jagg", seed])) == 3
    assert not set(hashes["jagg", 0]) & set(hashes["jagg", 1])
    orders = {seed: [[p.id for p in batch.prompts] for batch in batches["jagg", seed]] for seed in (0, 1)}
    assert orders[0] != orders[1]
    assert not torch.equal(batches["jagg", 0][0].initial, batches["jagg", 1][0].initial)


def test_an_aa_arm_draws_other_noise_from_the_same_seeds() -> None:
    study = analytic_study()
    other = study.arms["baseline"].model_copy(update={"noise_streams": 1})
    study = study.model_copy(update={"arms": study.arms | {"again": other}})
    ours, theirs, repeated = (
        draw_batch(study, key(arm, 0), PROMPTS, (4, 3), 1) for arm in ("baseline", "again", "again")
    )
    assert ours.sha256() != theirs.sha256() == repeated.sha256()
    assert not torch.equal(ours.noise.transition(0), theirs.noise.transition(0))


def test_arms_start_from_equal_batches_and_rewards_and_then_part(tmp_path: Path) -> None:
    for arm in ("baseline", "jagg", "ablation"):
        train(tmp_path / arm, key(arm))
    rows = [history(tmp_path / arm) for arm in ("baseline", "jagg", "ablation")]
    assert [row["noise_sha256"] for row in rows[0]] == [row["noise_sha256"] for row in rows[1]]
    assert rows[0][0]["reward_mean"] == rows[1][0]["reward_mean"] == rows[2][0]["reward_mean"]
    assert len({final_weights(tmp_path / arm) for arm in ("baseline", "jagg", "ablation")}) == 3


def test_equal_runs_have_equal_bits(tmp_path: Path) -> None:
    for name in "ab":
        train(tmp_path / name)
    assert final_weights(tmp_path / "a") == final_weights(tmp_path / "b")
    assert without_times(history(tmp_path / "a")) == without_times(history(tmp_path / "b"))


def test_evaluation_between_steps_changes_nothing(tmp_path: Path) -> None:
    def evaluate(step: int, backbone: AnalyticBackbone) -> None:
        torch.manual_seed(99)
        text = backbone.encode_prompts(["red", "blue"])
        sample_ode(backbone, text, torch.randn(2, 4, 3), shifted_sigmas(5, 3.0))

    train(tmp_path / "plain")
    train(tmp_path / "evaluated", on_step=evaluate)
    assert final_weights(tmp_path / "plain") == final_weights(tmp_path / "evaluated")


class InterruptedRunError(Exception):
    """Stands for the machine going away."""


def interrupt_after(last: int) -> Callable[[int, Any], None]:
    def stop(step: int, backbone: Any) -> None:
        if step == last:
            raise InterruptedRunError

    return stop


LORA = {"training__lora": {"rank": 2, "alpha": 4.0}, "training__ema_decay": 0.9}


@pytest.mark.parametrize(
    ("changes", "name"), [({}, FULL_WEIGHTS), (LORA, "adapter_model.safetensors")], ids=["full", "lora and average"]
)
def test_a_continued_run_has_the_bits_of_an_uninterrupted_one(tmp_path: Path, changes: dict, name: str) -> None:
    study = analytic_study(**changes)
    train(tmp_path / "whole", study=study)
    with pytest.raises(InterruptedRunError):
        train(tmp_path / "broken", study=study, on_step=interrupt_after(5))
    assert not (tmp_path / "broken" / "run.json").exists()
    manifest = train(tmp_path / "broken", study=study)
    for step in (3, 6):
        assert final_weights(tmp_path / "broken", step, name) == final_weights(tmp_path / "whole", step, name)
    rows = history(tmp_path / "broken")
    assert without_times(rows) == without_times(history(tmp_path / "whole"))
    assert [row["attempt"] for row in rows] == [1, 1, 1, 1, 2, 2]
    assert manifest["lost_steps"] == [5]
    assert [entry["resumed_at"] for entry in manifest["attempts"]] == [0, 4]
    assert manifest["totals"]["backward_passes"] == 6 * 72


def test_work_lost_to_a_crash_is_counted_apart(tmp_path: Path) -> None:
    """A crash after step 50 of 100, with the last state at step 40."""
    changes = {"training__trained_steps": 100, "training__checkpoints": [0, 100], "training__save_state_every": 40}
    study = analytic_study(**changes)
    with pytest.raises(InterruptedRunError):
        train(tmp_path, study=study, on_step=interrupt_after(50))
    manifest = train(tmp_path, study=study)
    rows = history(tmp_path)
    assert [row["step"] for row in rows] == list(range(1, 101))
    assert [row["attempt"] for row in rows] == [1] * 40 + [2] * 60
    assert manifest["lost_steps"] == list(range(41, 51))
    assert manifest["totals"]["backward_passes"] == sum(row["backward_passes"] for row in rows) == 100 * 72


def test_a_killed_process_is_continued_and_its_lock_taken_over(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import test_loop\n"
        "def die(step, backbone):\n"
        "    if step == 3: os._exit(9)\n"
        "test_loop.train(Path(sys.argv[2]), on_step=die)\n"
    )
    here = Path(__file__).parent
    command = [sys.executable, "-c", code, str(here), str(tmp_path / "killed")]
    assert subprocess.run(command, env={"PYTHONPATH": f"{here.parent}:{here.parents[1]}"}, check=False).returncode == 9
    assert (tmp_path / "killed" / ".lock").exists()
    manifest = train(tmp_path / "killed")
    assert manifest["lock_taken_over"]["pid"] == manifest["attempts"][0]["pid"]
    assert manifest["lost_steps"] == [3]
    train(tmp_path / "whole")
    assert final_weights(tmp_path / "killed") == final_weights(tmp_path / "whole")


@pytest.mark.parametrize("change", ["setting", "weights", "prompts"])
def test_a_state_made_with_anything_else_is_not_used(tmp_path: Path, change: str) -> None:
    with pytest.raises(InterruptedRunError):
        train(tmp_path / "run", on_step=interrupt_after(3))
    study = analytic_study(training__learning_rate=0.02) if change == "setting" else analytic_study()
    prompts = PROMPTS[::-1] if change != "prompts" else [replace(PROMPTS[0], text="new"), *PROMPTS[1:]]
    prompts = PROMPTS if change != "prompts" else prompts

    def load() -> Models:
        return replace(analytic_models()(), backbone_sha256="other" if change == "weights" else "analytic weights")

    notes: list[str] = []
    manifest = run_training(study, key(), prompts, tmp_path / "run", load, note=notes.append)
    assert len(manifest["stale_states"]) == 1
    assert any("is not used" in line for line in notes)
    assert [entry["attempt"] for entry in manifest["attempts"]] == [1]
    run_training(study, key(), prompts, tmp_path / "fresh", load, note=notes.append)
    assert final_weights(tmp_path / "run") == final_weights(tmp_path / "fresh")


def test_a_checkpoint_lost_since_is_made_again(tmp_path: Path) -> None:
    with pytest.raises(InterruptedRunError):
        train(tmp_path / "run", on_step=interrupt_after(5))
    (tmp_path / "run" / "checkpoints" / "step-3" / "checkpoint.json").unlink()
    manifest = train(tmp_path / "run")
    assert manifest["lost_steps"] == [1, 2, 3, 4, 5]
    assert (tmp_path / "run" / "checkpoints" / "step-3" / "checkpoint.json").exists()


def test_a_complete_run_is_left_alone_and_a_changed_one_made_again(tmp_path: Path) -> None:
    first = train(tmp_path)

    def never() -> Models:
        raise AssertionError("nothing is left to do")

    assert train(tmp_path, load=never) == first
    changed = train(tmp_path, study=analytic_study(training__learning_rate=0.02))
    assert changed["identity_sha256"] != first["identity_sha256"]
    renamed_arm = train(tmp_path, study=analytic_study(training__learning_rate=0.02, training__save_state_every=3))
    assert renamed_arm == changed


def test_a_reward_that_is_not_finite_ends_the_run_as_diverged(tmp_path: Path) -> None:
    def load() -> Models:
        models = analytic_models()()
        return replace(models, scorers=models.scorers | {"green": BrokenScorer(good_calls=4)})

    manifest = train(tmp_path, load=load)
    assert manifest["status"] == "diverged"
    assert manifest["diverged"] == {"step": 5, "quantity": "reward", "value": "nan"}
    assert [row["step"] for row in history(tmp_path)] == [1, 2, 3, 4]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-0", "step-3"]


def test_a_step_too_large_ends_the_run_as_diverged(tmp_path: Path) -> None:
    study = analytic_study(training__learning_rate=1e38)
    manifest = train(tmp_path, study=study)
    assert manifest["status"] == "diverged"
    assert (manifest["diverged"]["step"], manifest["diverged"]["quantity"]) == (2, "latent")
    assert [row["step"] for row in history(tmp_path)] == [1]


class DarkBackbone(AnalyticBackbone):
    """Images are black from the fifth batch on."""

    decoded = 0

    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        self.decoded += 1
        return super().decode(latents) * (self.decoded < 5)


def test_images_that_are_all_black_end_the_run_as_diverged(tmp_path: Path) -> None:
    manifest = train(tmp_path, load=lambda: replace(analytic_models()(), backbone=DarkBackbone()))
    assert manifest["status"] == "diverged"
    assert manifest["diverged"] == {"step": 5, "quantity": "brightest pixel of all images", "value": "0"}
    assert [row["step"] for row in history(tmp_path)] == [1, 2, 3, 4]


@pytest.mark.parametrize("changes", [{}, LORA], ids=["full", "lora"])
def test_gradient_checkpointing_changes_memory_and_not_the_result(tmp_path: Path, changes: dict) -> None:
    train(tmp_path / "plain", study=analytic_study(**changes))
    manifest = train(tmp_path / "recomputed", study=analytic_study(**changes, training__gradient_checkpointing=True))
    rows = [history(tmp_path / name) for name in ("plain", "recomputed")]
    assert [row["reward_mean"] for row in rows[0]] == [row["reward_mean"] for row in rows[1]]
    assert rows[0][0]["backward_passes"] == rows[1][0]["backward_passes"]
    assert manifest["totals"]["forward_passes_recomputed"] == manifest["totals"]["backward_passes"]


def test_two_branch_guidance_is_in_the_ledger(tmp_path: Path) -> None:
    train(tmp_path, load=analytic_models(evaluations_per_velocity=2))
    assert {row["backward_passes"] for row in history(tmp_path)} == {144}


def test_the_fast_window_moves_and_is_recorded(tmp_path: Path) -> None:
    manifest = train(tmp_path, key(algorithm="fast"))
    used = manifest["trained_transitions"]
    assert len(used) > 1
    assert sorted(step for entry in used for step in entry["steps"]) == [1, 2, 3, 4, 5, 6]
    assert all(len(entry["transitions"]) == 5 for entry in used)
    rows = {row["step"]: row for row in history(tmp_path)}
    for entry in used:
        start = entry["transitions"][0]
        # A window of four and one of one: the first is approximated if it starts before 0.6.
        passes = (2 if start < 6 else 4) + 1
        assert {rows[step]["backward_passes"] for step in entry["steps"]} == {12 * passes}


def test_micro_batches_change_a_run_by_rounding_only(tmp_path: Path) -> None:
    for size in (12, 2):
        train(tmp_path / str(size), study=analytic_study(training__micro_batch_size=size))
    whole, parts = history(tmp_path / "12"), history(tmp_path / "2")
    assert [row["noise_sha256"] for row in whole] == [row["noise_sha256"] for row in parts]
    assert [row["backward_passes"] for row in whole] == [row["backward_passes"] for row in parts]
    assert whole[0]["grad_norm"] == pytest.approx(parts[0]["grad_norm"], rel=1e-4)
    assert whole[-1]["reward_mean"] == pytest.approx(parts[-1]["reward_mean"], rel=1e-3)


def test_too_few_prompts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too few training prompts"):
        run_training(analytic_study(), key(), PROMPTS[:2], tmp_path / "run", analytic_models())
    assert not (tmp_path / "run").exists()


def test_streams_are_named_by_study_seed_too() -> None:
    one, other = (draw_batch(analytic_study(seed=seed), key(), PROMPTS, (4, 3), 1) for seed in (0, 1))
    assert one.sha256() != other.sha256()
    assert stream_seed("prompts", 0, 0, 1) != stream_seed("window", 0, 0, 1)
