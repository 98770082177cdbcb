"""Passes are counted where they happen."""

import pytest
import torch
from analytic import PROMPTS, AnalyticBackbone, ColourScorer, Curved, analytic_study, key
from torch import nn

from jagg.algorithms import plans
from jagg.cost.passes import Passes, planned_windows
from jagg.flow import StepNoise, rollout, shifted_sigmas
from jagg.flow.schedule import constant_diffusion, transition_plan
from jagg.train.ledger import Ledger, PassCounts
from jagg.train.step import Trainer


class DirectForward(Curved):
    """Calls its layers past `__call__`, where module hooks never see it."""

    def forward(self, latents: torch.Tensor, sigma: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        return Curved.forward(self, latents, sigma, text) + 0 * self.hidden.forward(torch.zeros(5)).sum()


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("module", [Curved, DirectForward])
def test_five_gradient_calls_are_five_backward_passes(module: type[nn.Module], recompute: bool) -> None:
    backbone = AnalyticBackbone(module())
    if recompute:
        backbone.transformer.enable_gradient_checkpointing()
    ledger, text = Ledger(backbone), backbone.encode_prompts(["red"])
    # The input needs no gradient, which is where full backward hooks stay silent.
    for _ in range(5):
        velocity = ledger.velocity(torch.randn(1, 4, 3), torch.ones(1), text)
        ledger.backward(velocity, torch.ones_like(velocity))
    assert ledger.take() == PassCounts(backward_passes=5, forward_passes_grad=5)
    assert ledger.take() == PassCounts()


@pytest.mark.parametrize(("evaluations", "total"), [(1, 40), (2, 80)])
def test_guidance_in_two_branches_counts_twice(evaluations: int, total: int) -> None:
    backbone = AnalyticBackbone(evaluations_per_velocity=evaluations)
    ledger, sigmas = Ledger(backbone), shifted_sigmas(10, 3.0)
    plan = transition_plan(sigmas, constant_diffusion(sigmas, 0.3), tuple(range(10)), window=4, quantise_timestep=False)
    noise = StepNoise(0, 0, 1, ["p"] * 4, list(range(4)), backbone.latent_shape)
    rollout(ledger, plan, backbone.encode_prompts(["red"] * 4), noise.initial(False), noise.transition, 2)
    assert ledger.take().forward_passes_nograd == total == backbone.evaluations


def test_a_count_off_the_closed_form_stops_the_run() -> None:
    expected = Passes(2, 3, 14, 14, 26)
    PassCounts(14 * 6, 14 * 6, 26 * 6).check([expected], 6)
    PassCounts(14 * 6, 14 * 6, 26 * 6).check([expected, expected], 3)
    with pytest.raises(AssertionError, match="backward_passes: counted 85, closed form 84"):
        PassCounts(85, 84, 156).check([expected], 6)


@pytest.mark.parametrize("schedule", ["native", "reuse", "retain", "reweight"])
def test_operations_and_saved_bytes_are_those_of_the_passes(schedule: str) -> None:
    """Every sample-pass forward is 2 x tokens x weights operations; the graph keeps what the closed form says."""
    study = analytic_study(arms__jagg__schedule=schedule, training__measured_steps=[2])
    scorers = {"red": ColourScorer(), "green": ColourScorer(channel=1)}
    trainer = Trainer(study, key(), AnalyticBackbone(), scorers, PROMPTS)
    rows = [trainer.step(step, 1) for step in (1, 2)]
    assert (rows[0]["transformer_flops"], rows[0]["saved_activation_bytes"]) == (None, None)
    forward = 2 * 4 * (5 * 16 + 16 * 3)
    # A backward pass has both products of the second layer and, its input being fixed, one of the first.
    backward = 2 * 4 * (5 * 16 + 2 * 16 * 3)
    forwards = rows[1]["forward_passes_grad"] + rows[1]["forward_passes_nograd"]
    assert rows[1]["transformer_flops"] == forward * forwards + backward * rows[1]["backward_passes"]
    # 4 tokens, float32: the inputs of both layers, for each graph alive.
    each = 4 * 4 * (5 + 16)
    graphs = {"native": 12, "reuse": 12, "retain": 12 * 6, "reweight": 12 * 2}
    assert rows[1]["saved_activation_bytes"] == graphs[schedule] * each


@pytest.mark.parametrize("schedule", ["native", "reuse", "retain", "reweight"])
@pytest.mark.parametrize("trusted", [True, False])
def test_saved_bytes_of_windows_that_their_states_decide_are_the_closed_form(schedule: str, trusted: bool) -> None:
    routing = {"jagg_frac": 0.6, "router": "confidence", "max_residual": 1e9 if trusted else 1e-9}
    study = analytic_study(
        arms__jagg={"estimator": "jagg", "routing": routing, "schedule": schedule},
        training__measured_steps=[1],
        training__micro_batch_size=4,
    )
    scorers = {"red": ColourScorer(), "green": ColourScorer(channel=1)}
    trainer = Trainer(study, key(), AnalyticBackbone(), scorers, PROMPTS)
    (plan,) = plans(study.algorithms["dance"])
    windows = planned_windows(plan, trainer.method.estimator, trainer.schedule, 0.6, by_confidence=True, fewest=trusted)
    graphs = trainer.schedule.held(windows, 4, 12).graphs
    assert trainer.step(1, 1)["saved_activation_bytes"] == graphs * 4 * 4 * (5 + 16)


def test_frozen_weights_get_no_gradient_product() -> None:
    """With adapters of rank 2 a backward pass has one product of each frozen weight, for the inputs, not two."""
    study = analytic_study(training__lora={"rank": 2, "alpha": 4}, training__measured_steps=[1])
    scorers = {"red": ColourScorer(), "green": ColourScorer(channel=1)}
    row = Trainer(study, key(), AnalyticBackbone(), scorers, PROMPTS).step(1, 1)
    frozen, adapters = (5 * 16, 16 * 3), (5 * 2 + 2 * 16, 16 * 2 + 2 * 3)
    forward = 2 * 4 * (sum(frozen) + sum(adapters))
    # The first layer's input is fixed: no product for it, neither of the frozen weight nor of its adapter's A.
    backward = 2 * 4 * (frozen[1] + 2 * adapters[1] + 2 * adapters[0] - 5 * 2)
    forwards = row["forward_passes_grad"] + row["forward_passes_nograd"]
    assert row["transformer_flops"] == forward * forwards + backward * row["backward_passes"]
