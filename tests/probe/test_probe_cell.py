"""The probe on a trained analytic run: rows against plain autograd, and the cases that have no answer."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from analytic import PROMPTS, AnalyticBackbone, ColourScorer, Curved, Linear, analytic_models, analytic_study, key
from problems import gradient, problem
from torch import Tensor

from jagg.config import Reward, Study
from jagg.errors import InputError
from jagg.gradients.estimators import estimator_of
from jagg.gradients.schedules.windows import window_of, window_signals
from jagg.gradients.window import Outcome
from jagg.keys import RunKey, StudyPaths, probe_keys
from jagg.probe.cell import Policy, probe_cell
from jagg.probe.conditions import conditions
from jagg.probe.quality import Comparison, compare_gradients, mean_comparison, measure_window
from jagg.probe.vjp import Products, distance, dot, norm
from jagg.prompts import write_prompts
from jagg.records import read_json, write_json
from jagg.train.loop import run_training
from jagg.train.parameters import trainable

REFERENCE = key("baseline")
PROBE: dict[str, Any] = {
    "calibration": {"seeds": [0], "checkpoints": [0], "prompts": 2},
    "holdout": {"seeds": [0, 1], "checkpoints": [0, 6], "prompts": 1},
}


def probe_study(results: Path, **changes: Any) -> Study:
    return analytic_study(results=str(results), probe=PROBE | changes)


def analytic_policy(study: Study, of: RunKey, paths: StudyPaths, precision: str | None) -> Policy:
    backbone = AnalyticBackbone(Curved())
    dtype = getattr(torch, precision or "float32")
    parameters, _ = trainable(backbone, study.training, study.seed, of.seed, dtype=dtype)
    return Policy(backbone, {"red": ColourScorer(), "green": ColourScorer(channel=1)}, parameters)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    study = probe_study(results)
    paths = StudyPaths.of(study)
    for split in ("train", "evaluation"):
        write_prompts(paths.prompts(split), PROMPTS if split == "train" else PROMPTS[::-1])
    for algorithm in ("dance", "fast"):
        of = key("baseline", algorithm=algorithm)
        run_training(study, of, PROMPTS, paths.run(of).folder, analytic_models(), note=lambda line: None)
    return results


def rows_of(study: Study, of: RunKey = REFERENCE) -> list[dict[str, Any]]:
    table = probe_cell(study, of, StudyPaths.of(study), load=analytic_policy, note=lambda line: None)
    return table.to_pylist()


def test_every_window_rollout_and_estimator_has_a_row(trained: Path) -> None:
    study = probe_study(trained)
    rows = rows_of(study)
    # 10 steps in windows of 4, 4 and 2; 8 + 4 + 4 rollouts and three batches; 7 estimators.
    assert len(rows) == 3 * 7 * (8 + 4 + 4 + 3)
    assert {(row["split"], row["step"]) for row in rows} == {("calibration", 0), ("holdout", 0), ("holdout", 6)}
    assert {(row["window"], row["start"], row["transitions"]) for row in rows} == {(0, 0, 4), (1, 4, 4), (2, 8, 2)}
    for split, ids in (("calibration", {"p0", "p1", None}), ("holdout", {"p5", None})):
        assert {row["prompt_id"] for row in rows if row["split"] == split} == ids
    for row in rows:
        assert row["cosine"] is None or -1 - 1e-9 <= row["cosine"] <= 1 + 1e-9
        if row["transitions"] == 2 and row["estimator"] not in ("midpoint", "kriging") and not row["note"]:
            # The window at the trajectory's end is shorter than W, and its two ends are all of it.
            assert row["relative_error"] < 1e-5
    jagg = [row for row in rows if row["estimator"] == "jagg" and row["scope"] == "rollout" and row["transitions"] == 4]
    assert all(row["bound"] > 0 and row["relative_error"] <= row["path_error"] + row["curve_error"] for row in jagg)
    assert {row["nodes"] for row in rows if row["estimator"] == "debiased"} == {2.0, 2.5}


def test_the_probe_is_deterministic_and_checkpoints_differ(trained: Path) -> None:
    study = probe_study(trained, estimators=["jagg"], bound=False, whole_batch=False)
    rows = rows_of(study)
    assert rows == rows_of(study)
    held = {
        step: [row["cosine"] for row in rows if row["split"] == "holdout" and row["step"] == step] for step in (0, 6)
    }
    assert held[0] != held[6]


def test_stretches_of_the_fast_algorithm_lie_side_by_side(trained: Path) -> None:
    study = probe_study(trained, estimators=["jagg"], bound=False, whole_batch=False)
    rows = rows_of(study, key("baseline", algorithm="fast"))
    assert {row["start"] for row in rows} == {0, 4, 5, 9}
    lonely = [row for row in rows if row["transitions"] == 1]
    assert lonely
    assert all(row["relative_error"] == 0 for row in lonely if not row["note"])


def test_the_stress_grid_is_every_combination(trained: Path) -> None:
    stress = {"windows": [2, 5], "sampling_steps": [5, 10], "precisions": ["float32", "bfloat16"]}
    study = probe_study(trained, estimators=["jagg"], stress=stress)
    rows = [row for row in rows_of(study) if row["split"] == "stress"]
    combinations = {(row["window_length"], row["sampling_steps"], row["precision"]) for row in rows}
    assert len(combinations) == 8
    assert {row["estimator"] for row in rows} == {"jagg"}
    fast = [made for made in conditions(study, key("baseline", algorithm="fast")) if made.split == "stress"]
    for condition in fast:
        assert all(plan.sampling_steps in (5, 10) for plan in condition.plans())
    assert len(fast) == 8


def test_a_missing_checkpoint_is_refused_and_a_diverged_run_is_measured_as_far_as_it_went(
    trained: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    shutil.copytree(trained, results)
    study = probe_study(results)
    run = StudyPaths.of(study).run(REFERENCE)
    shutil.rmtree(run.checkpoint(6))
    with pytest.raises(InputError, match=r"no such checkpoint(.|\n)*step-0, step-3(.|\n)*step-6"):
        rows_of(study)
    write_json(run.manifest, read_json(run.manifest) | {"status": "diverged"})
    assert {row["step"] for row in rows_of(study)} == {0}
    other = probe_study(results, estimators=["jagg"]).model_copy(update={"reward": Reward(weights={"red": 1.0})})
    with pytest.raises(InputError, match=r"other settings(.|\n)*reward\.weights\.green"):
        rows_of(other)
    with pytest.raises(InputError, match="no split of the probe has this seed"):
        rows_of(study, key("baseline", seed=7))


def test_a_split_names_what_the_study_has() -> None:
    for changes, message in (
        ({"seeds": [5]}, r"probe.holdout.seeds: expected distinct ones of \[0, 1\], got \[5\]"),
        ({"checkpoints": [0, 4]}, r"probe.holdout.checkpoints: expected distinct ones of \[0, 3, 6\]"),
        ({"prompts": 7}, "probe.holdout.prompts: expected at most 6, got 7"),
    ):
        with pytest.raises(ValueError, match=message):
            analytic_study(probe=PROBE | {"holdout": PROBE["holdout"] | changes})
    assert [of.seed for of in probe_keys(analytic_study(probe=PROBE)) if of.algorithm == "dance"] == [0, 1]
    assert not list(probe_keys(analytic_study()))


def policy_rollout(module: torch.nn.Module | None = None) -> tuple[Any, Products, list[Tensor]]:
    of = problem(module)
    parameters = list(of.backbone.transformer.parameters())
    return of, Products(of.backbone, parameters, batch_size=5), parameters


def test_products_are_autograd_whatever_the_batch_and_leave_no_gradient_behind() -> None:
    of, products, parameters = policy_rollout()
    window = of.rollout.plan.windows[0]
    signals = window_signals(of.rollout, window, slice(0, 6), of.advantages, 10.0).signals
    made = products(of.rollout.latents[:4], [of.rollout.plan.sigmas[j] for j in window], of.rollout.text, signals)
    total = sum(
        (
            of.backbone.velocity(
                of.rollout.latents[j],
                torch.full((6,), of.rollout.plan.sigmas[j], dtype=torch.float64),
                of.rollout.text,
            )
            * signals[j]
        ).sum()
        for j in window
    )
    wanted = torch.autograd.grad(total, parameters)
    assert distance(made, wanted) < 1e-12 * norm(wanted)
    assert all(parameter.grad is None for parameter in parameters)


def test_gradient_checkpointing_changes_nothing() -> None:
    of, products, _ = policy_rollout()
    arguments = (of.rollout.latents[:2], of.rollout.plan.sigmas[:2], of.rollout.text, torch.randn(2, 6, 4, 3).double())
    plain = products(*arguments)
    of.backbone.transformer.enable_gradient_checkpointing()
    assert distance(products(*arguments), plain) == 0


@pytest.mark.parametrize("name", ["jagg", "quadratic", "kriging", "debiased", "monte_carlo"])
def test_measures_follow_from_whole_vectors(name: str) -> None:
    of, products, _ = policy_rollout()
    plan = replace(of.rollout.plan, windows=of.rollout.plan.windows[:1], trained=of.rollout.plan.windows[0])
    of = replace(of, rollout=replace(of.rollout, plan=plan))
    signals = window_signals(of.rollout, plan.windows[0], slice(0, 6), of.advantages, 10.0).signals
    estimator = estimator_of(name)
    (row,) = measure_window(products, of.rollout, plan.windows[0], slice(0, 6), signals, {name: estimator}, False)

    def flat(of_estimator: Any) -> Tensor:
        return torch.cat([tensor.flatten() for tensor in gradient(of, of_estimator).values()])

    exact = flat("exact")
    outcomes = estimator.outcomes(window_of(of.rollout, plan.windows[0], slice(0, 6)))
    vectors = [
        (probability, flat(replace(estimator, outcomes=lambda window, made=made: [Outcome(1.0, made)])))
        for probability, made in outcomes
    ]
    cosine = sum(p * torch.cosine_similarity(v, exact, dim=0).item() for p, v in vectors)
    error = sum(p * (v - exact).norm().item() ** 2 for p, v in vectors) ** 0.5 / exact.norm().item()
    ratio = sum(p * v.norm().item() for p, v in vectors) / exact.norm().item()
    assert (row["cosine"], row["relative_error"], row["norm_ratio"]) == pytest.approx((cosine, error, ratio), rel=1e-9)


def test_a_gradient_that_is_zero_has_no_cosine_but_a_reason() -> None:
    zero, one = (torch.zeros(3),), (torch.ones(3),)
    assert compare_gradients(one, zero) == Comparison(None, None, None, "the exact gradient is zero")
    assert compare_gradients(zero, one) == Comparison(None, 0.0, 1.0, "the estimate is zero")
    assert compare_gradients(one, one).note == ""
    half = mean_comparison([(0.5, compare_gradients(zero, one)), (0.5, compare_gradients(one, one))])
    assert half == Comparison(None, 0.5, 0.5**0.5, "the estimate is zero")
    assert dot(one, one) == 3.0


@pytest.mark.parametrize("case", ["no advantage", "everything clipped"])
def test_without_any_signal_every_measure_is_empty_with_a_reason(case: str) -> None:
    of, products, _ = policy_rollout(Linear())
    advantages = torch.zeros(6).double() if case == "no advantage" else torch.ones(6).double()
    raised = of.rollout.log_probs - (5.0 if case == "everything clipped" else 0.0)
    rollout = replace(of.rollout, log_probs=raised)
    signals = window_signals(rollout, (0, 1, 2, 3), slice(0, 1), advantages[:1], 0.1).signals
    rows = measure_window(
        products, rollout, (0, 1, 2, 3), slice(0, 1), signals, {"jagg": estimator_of("jagg")}, bound=True
    )
    assert [rows[0][name] for name in ("cosine", "relative_error", "bound", "path_error")] == [None] * 4
    assert rows[0]["note"] == "the exact gradient is zero"
