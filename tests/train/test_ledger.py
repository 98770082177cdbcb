"""Passes are counted where they happen."""

import pytest
import torch
from analytic import AnalyticBackbone, Curved
from torch import nn

from jagg.flow import StepNoise, rollout, shifted_sigmas
from jagg.flow.schedule import constant_diffusion, transition_plan
from jagg.gradients.passes import Passes
from jagg.train.ledger import Ledger, PassCounts


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
    PassCounts(14 * 6, 14 * 6, 26 * 6).check(expected, 6)
    with pytest.raises(AssertionError, match="backward_passes: counted 85, closed form 84"):
        PassCounts(85, 84, 156).check(expected, 6)
