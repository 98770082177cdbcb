"""Arms of the sweeps in training: they run, and what is counted is what was drawn."""

from pathlib import Path
from typing import Any

import pytest
from analytic import PROMPTS, AnalyticBackbone, ColourScorer, analytic_models, analytic_study, key

from jagg.config import Study, load_study
from jagg.cost.passes import passes_range
from jagg.gradients import SCHEDULES
from jagg.keys import RunPaths
from jagg.records import HISTORY, file_sha256, read_table
from jagg.train.loop import run_training
from jagg.train.step import Trainer

CONFIGS = Path(__file__).parents[2] / "configs"
SWEEPS = ("sweep_frac", "sweep_window", "sweep_estimators")
ARMS = {
    (sweep, arm): settings
    for sweep in SWEEPS
    for arm, settings in load_study(CONFIGS / f"{sweep}.yaml").model_dump(mode="json")["arms"].items()
}


def study_of(arms: dict[str, Any], steps: int = 1, **changes: Any) -> Study:
    return analytic_study(
        arms={"baseline": {"estimator": "exact"}} | arms,
        training__trained_steps=steps,
        training__checkpoints=[0, steps],
        **changes,
    )


def trained(study: Study, out: Path, arm: str, algorithm: str = "dance", **backbone: Any) -> list[dict[str, Any]]:
    of = key(arm, algorithm=algorithm)
    run_training(study, of, PROMPTS, out, analytic_models(**backbone), note=lambda line: None)
    return read_table(RunPaths(out).history, HISTORY).to_pylist()


@pytest.mark.parametrize(("sweep", "arm"), ARMS)
def test_an_arm_of_a_sweep_runs_for_a_step_under_both_algorithms(sweep: str, arm: str, tmp_path: Path) -> None:
    study = study_of({arm: ARMS[sweep, arm]})
    for algorithm in study.algorithms:
        (row,) = trained(study, tmp_path / algorithm, arm, algorithm)
        assert 0 < row["backward_passes"] <= row["images"] * study.algorithms[algorithm].sampling_steps
        assert row["grad_norm"] > 0


def test_jagg_frac_of_zero_is_the_exact_run_bit_for_bit(tmp_path: Path) -> None:
    study = study_of({"frac_00": ARMS["sweep_frac", "frac_00"], "window_02": ARMS["sweep_window", "window_02"]}, 3)
    weights = {}
    for arm in ("baseline", "frac_00", "window_02"):
        trained(study, tmp_path / arm, arm)
        weights[arm] = file_sha256(RunPaths(tmp_path / arm).checkpoint(3) / "diffusion_pytorch_model.safetensors")
    assert weights["frac_00"] == weights["baseline"] != weights["window_02"]


def test_random_nodes_are_counted_as_drawn_and_meet_their_mean(tmp_path: Path) -> None:
    study = study_of({"debiased": {"estimator": "debiased"}}, 40)
    rows = trained(study, tmp_path, "debiased")
    # Windows of 4, 4 and 2: two of them draw an inner transition with probability 1/2; 12 images.
    assert {row["backward_passes"] for row in rows} == {12 * 6, 12 * 7, 12 * 8}
    assert {row["backward_passes_expected"] for row in rows} == {12 * 7}
    bounds = passes_range(study.algorithms["dance"], study.arms["debiased"], "dance", "native")
    assert [bound.backward_passes for bound in bounds] == [7, 7]
    sd = 12 * (40 * 2 / 4) ** 0.5
    assert abs(sum(row["backward_passes"] - row["backward_passes_expected"] for row in rows)) < 4 * sd


def test_updates_of_one_rollout_draw_their_own_nodes(tmp_path: Path) -> None:
    changes = {"training__optimizer_steps_per_rollout": 3, "training__micro_batch_size": 4}
    rows = trained(study_of({"debiased": {"estimator": "debiased"}}, 12, **changes), tmp_path, "debiased")
    assert {row["backward_passes_expected"] for row in rows} == {12 * 7}
    assert any(row["backward_passes"] % 12 for row in rows)


def test_a_confident_arm_reports_the_windows_it_trusted(tmp_path: Path) -> None:
    def arm(max_residual: float) -> dict[str, Any]:
        return {"estimator": "jagg", "routing": {"router": "confidence", "max_residual": max_residual}}

    study = study_of({"trusting": arm(1e6), "wary": arm(1e-9), "middling": arm(0.02)}, 4)
    counts = {}
    for name in ("trusting", "wary", "middling"):
        rows = trained(study, tmp_path / name, name)
        counts[name] = {(row["windows_approximate"], row["windows_exact"]) for row in rows}
        for row in rows:
            # Windows of 4, 4 and 2: an exact one of 4 costs two passes more than an approximate one.
            assert row["backward_passes"] == row["backward_passes_expected"] >= 12 * 6
    assert counts["trusting"] == {(3, 0)}
    # The last window has no inner transition, so nothing speaks against it.
    assert counts["wary"] == {(1, 2)}
    assert all(1 <= approximate <= 3 and approximate + exact == 3 for approximate, exact in counts["middling"])


def test_an_arm_may_have_its_own_window_and_sees_the_same_noise(tmp_path: Path) -> None:
    study = study_of({"long": {"estimator": "jagg", "window": 10}, "short": {"estimator": "jagg", "window": 2}}, 3)
    rows = {arm: trained(study, tmp_path / arm, arm, "fast") for arm in ("long", "short", "baseline")}
    # Stretches of 5 transitions: one window of 5, or 2 + 2 + 1.
    assert {row["backward_passes"] for row in rows["long"]} == {12 * 2}
    assert {row["backward_passes"] for row in rows["short"]} == {12 * 5}
    noise = [[row["noise_sha256"] for row in of] for of in rows.values()]
    assert noise[0] == noise[1] == noise[2]


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_two_branches_count_twice_under_random_nodes_too(schedule: str, tmp_path: Path) -> None:
    study = study_of({"debiased": {"estimator": "debiased", "schedule": schedule}}, 4)
    rows = trained(study, tmp_path, "debiased", evaluations_per_velocity=2)
    assert {row["backward_passes"] for row in rows} <= {24 * 6, 24 * 7, 24 * 8}


def test_routing_says_what_its_threshold_must_be() -> None:
    for routing, message in (
        ({"router": "confidence"}, "expected a number with router: confidence"),
        ({"max_residual": 0.1}, "none with router: place"),
        ({"router": "confidence", "max_residual": {"dance": 0.1}}, "max_residual: expected one entry for each"),
    ):
        with pytest.raises(ValueError, match=message):
            study_of({"jagg": {"estimator": "jagg", "routing": routing}})


@pytest.mark.parametrize(("lora", "recompute"), [(None, False), ({"rank": 2, "alpha": 4}, True)], ids=["full", "lora"])
@pytest.mark.parametrize("estimator", ["exact", "jagg", "debiased"])
def test_a_training_step_is_the_same_by_every_schedule(estimator: str, lora: dict | None, recompute: bool) -> None:
    """Same draws, same rewards, same gradient: in the trainer too, and whatever the micro-batches are."""
    arms = {name: {"estimator": estimator, "schedule": name, "routing": {"jagg_frac": 0.6}} for name in SCHEDULES}
    settings = {"training__lora": lora, "training__gradient_checkpointing": recompute, "training__micro_batch_size": 6}
    study, scorers = study_of(arms, **settings), {"red": ColourScorer(), "green": ColourScorer(channel=1)}
    rows = {name: Trainer(study, key(name), AnalyticBackbone(), scorers, PROMPTS).step(1, 1) for name in SCHEDULES}
    for name in SCHEDULES:
        assert rows[name]["grad_norm"] == pytest.approx(rows["native"]["grad_norm"], rel=1e-5)
        assert rows[name]["loss"] == pytest.approx(rows["native"]["loss"], abs=1e-7)
        same = ("reward_mean", "noise_sha256", "backward_passes", "windows_exact", "windows_approximate")
        assert [rows[name][column] for column in same] == [rows["native"][column] for column in same]
        assert rows[name]["grad_norm"] > 0
