"""The clipped objective and its closed-form signals against autograd."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from jagg.algorithms.objective import clipped_objective, clipped_signals
from jagg.flow.transition import log_prob, sde_step, transition_mean, transition_std

SIGMAS, G = (1.0, 0.8, 0.5), (0.3, 0.9, 0.5)
NEXT = (0.8, 0.5, 0.0)


def column(values: tuple[float, ...]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None, None, None]


LEVELS = {"sigma": column(SIGMAS), "sigma_next": column(NEXT), "g": column(G)}


def transitions(seed: int, off_policy: float) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    latents, velocity, noise, drift = torch.randn(4, 3, 5, 4, 2, generator=generator, dtype=torch.float64)
    step = sde_step(latents, velocity, **LEVELS, noise=noise)
    return {
        "latents": latents,
        "next_latents": step.next,
        "velocities": velocity + off_policy * drift,
        "old_log_probs": log_prob(step.next, step.mean, step.std),
        "advantages": torch.randn(5, generator=generator, dtype=torch.float64),
    }


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.1, 1.0]), st.sampled_from([1e-4, 0.1, 0.5]))
def test_signals_are_the_derivative_of_the_objective(seed: int, off_policy: float, clip_range: float) -> None:
    made = transitions(seed, off_policy)
    signals = clipped_signals(**made, **LEVELS, clip_range=clip_range)
    velocities = made["velocities"].clone().requires_grad_(True)
    mean = transition_mean(made["latents"], velocities, **LEVELS)
    ratio = torch.exp(log_prob(made["next_latents"], mean, transition_std(**LEVELS)) - made["old_log_probs"])
    loss = clipped_objective(ratio, made["advantages"], clip_range)
    loss.sum().backward()
    assert_close(signals.loss, loss.detach())
    assert_close(signals.signals, velocities.grad, rtol=1e-9, atol=1e-12)


def test_clipped_transitions_drop_out_and_the_others_stay() -> None:
    made = transitions(0, off_policy=1.0)
    signals = clipped_signals(**made, **LEVELS, clip_range=1e-3)
    up, positive = signals.ratio > 1.001, made["advantages"] > 0
    down = signals.ratio < 0.999
    held = (up & positive) | (down & ~positive)
    assert held.any()
    assert (~held).any()
    assert torch.equal(signals.signals.abs().amax(dim=(2, 3)) == 0, held)


def test_on_policy_ratio_is_one_and_nothing_is_clipped() -> None:
    made = {name: tensor.float() for name, tensor in transitions(1, off_policy=0.0).items()}
    step = sde_step(made["latents"], made["velocities"], **LEVELS)
    made["old_log_probs"] = log_prob(made["next_latents"], step.mean, step.std)
    signals = clipped_signals(**made, **LEVELS, clip_range=1e-4)
    assert (signals.ratio - 1).abs().max() <= 1e-6
    assert_close(signals.loss, -made["advantages"].double().expand(3, 5))
    assert (signals.signals.abs().amax(dim=(2, 3)) > 0).all()


def test_one_rounding_of_bfloat16_is_far_outside_a_narrow_clip_range() -> None:
    ratio = torch.exp(torch.tensor([2.0**-8]))
    assert ratio.item() == pytest.approx(1.00391, abs=1e-5)
    advantage = torch.tensor([1.0])
    assert clipped_objective(ratio, advantage, 1e-4).item() == pytest.approx(-1.0001)


def test_no_advantage_gives_no_signal() -> None:
    made = transitions(2, off_policy=0.5) | {"advantages": torch.zeros(5, dtype=torch.float64)}
    assert clipped_signals(**made, **LEVELS, clip_range=0.1).signals.abs().max() == 0
