"""One transition: golden numbers of the public reference codes, and what must hold for any numbers."""

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from jagg.flow.schedule import constant_diffusion, flow_grpo_diffusion, quantised, shifted_sigmas, transition_plan
from jagg.flow.transition import log_prob, sde_step, velocity_coefficient

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "sde_steps.json").read_text())
RELATIVE = {"rtol": 1e-5, "atol": 1e-6}


def check_step(case: dict, sigma: float, sigma_next: float, g: float) -> None:
    # Flow-GRPO's images are (channels, height, width); the log-probability averages over all of them alike.
    latents, velocity, drawn, mean = (
        torch.tensor(case[name]).flatten(1, -2) for name in ("latents", "velocity", "next_latents", "mean")
    )
    step = sde_step(latents, velocity, sigma, sigma_next, g)
    assert_close(step.mean, mean, **RELATIVE)
    assert step.std == pytest.approx(case["std"], rel=1e-5)
    assert_close(log_prob(drawn, step.mean, step.std).float(), torch.tensor(case["log_prob"]), **RELATIVE)


@pytest.mark.parametrize("case", GOLDEN["dance_sde"])
def test_dancegrpo_golden(case: dict) -> None:
    sigmas, j = shifted_sigmas(case["steps"], case["shift"]), case["index"]
    assert (sigmas[j], sigmas[j + 1]) == pytest.approx((case["sigma"], case["sigma_next"]), rel=1e-6)
    check_step(case, sigmas[j], sigmas[j + 1], constant_diffusion(sigmas, case["eta"])[j])


@pytest.mark.parametrize("case", GOLDEN["flow_sde"])
def test_flow_grpo_golden(case: dict) -> None:
    sigmas, j = tuple(case["sigmas"]), case["index"]
    check_step(case, sigmas[j], sigmas[j + 1], flow_grpo_diffusion(sigmas, case["noise_level"])[j])


@pytest.mark.parametrize("case", GOLDEN["shifted_schedules"])
def test_shifted_schedule_golden(case: dict) -> None:
    assert shifted_sigmas(case["steps"], case["shift"]) == pytest.approx(case["sigmas"], rel=1e-6)


levels = st.tuples(st.floats(0.01, 1.0), st.floats(0.05, 0.95)).map(lambda pair: (pair[0], pair[0] * pair[1]))


@settings(max_examples=50, deadline=None)
@given(levels, st.floats(0.05, 2.0), st.integers(0, 2**31))
def test_mean_is_affine_in_the_velocity_with_slope_b(level: tuple[float, float], g: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    latents, velocity = torch.randn(2, 3, 4, 2, generator=generator, dtype=torch.float64)
    b = velocity_coefficient(*level, g)
    moved = sde_step(latents, velocity + 0.5, *level, g).mean - sde_step(latents, velocity, *level, g).mean
    assert_close(moved, torch.full_like(moved, 0.5 * b), rtol=1e-9, atol=1e-12)


def test_zero_diffusion_is_the_euler_step() -> None:
    latents, velocity = torch.randn(2, 5, 4, 3, dtype=torch.float64)
    step = sde_step(latents, velocity, 0.8, 0.5, 0.0, noise=torch.randn(5, 4, 3, dtype=torch.float64))
    assert step.std == 0.0
    assert_close(step.next, latents - 0.3 * velocity)


def test_log_prob_is_the_mean_of_the_normal_log_density() -> None:
    drawn, mean = torch.randn(2, 5, 4, 3, dtype=torch.float64)
    density = torch.distributions.Normal(mean, 0.3).log_prob(drawn)
    assert_close(log_prob(drawn, mean, 0.3), density.mean(dim=(1, 2)))


@pytest.mark.parametrize("std", [1e-3, 1e-2, 1.0])
def test_float32_log_prob_keeps_the_digits_that_its_inputs_have(std: float) -> None:
    generator = torch.Generator().manual_seed(3)
    mean = torch.randn(8, 64, 16, generator=generator)
    drawn = mean + std * torch.randn(8, 64, 16, generator=generator)
    assert_close(
        log_prob(drawn, mean, std).double(), log_prob(drawn.double(), mean.double(), std), rtol=1e-6, atol=2e-6
    )


def test_many_transitions_at_once_equal_one_by_one() -> None:
    sigmas = shifted_sigmas(6, 3.0)
    g = flow_grpo_diffusion(sigmas, 0.7)
    latents, velocity, noise = torch.randn(3, 6, 2, 4, 3)
    columns = [
        torch.tensor(values, dtype=torch.float64)[:, None, None, None] for values in (sigmas[:-1], sigmas[1:], g)
    ]
    together = sde_step(latents, velocity, *columns, noise)
    for j in range(6):
        alone = sde_step(latents[j], velocity[j], sigmas[j], sigmas[j + 1], g[j], noise[j])
        assert torch.equal(together.next[j], alone.next)
        assert_close(
            log_prob(together.next, together.mean, together.std)[j], log_prob(alone.next, alone.mean, alone.std)
        )


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 60), st.floats(0.2, 10.0))
def test_schedules_fall_from_one_to_zero(steps: int, shift: float) -> None:
    sigmas = shifted_sigmas(steps, shift)
    assert (sigmas[0], sigmas[-1]) == (1.0, 0.0)
    assert all(a > b for a, b in pairwise(sigmas))
    assert all(math.isfinite(g) and g > 0 for g in flow_grpo_diffusion(sigmas, 0.7))


def test_quantised_timesteps_are_those_of_whole_thousandths() -> None:
    assert [quantised(sigma) for sigma in shifted_sigmas(10, 1.0)] == [
        1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0,
    ]  # fmt: skip
    assert quantised(0.9642857) == 0.964


def test_a_plan_does_not_train_a_deterministic_transition() -> None:
    with pytest.raises(AssertionError, match="stochastic"):
        transition_plan((1.0, 0.5, 0.0), (0.3, 0.0), (0, 1), window=2, quantise_timestep=False)
