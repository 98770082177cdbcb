"""Estimators beyond JAGG: unbiasedness by enumeration, interpolation properties, routing by confidence."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from analytic import Linear
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import Problem, gradient, on_chord, problem
from torch import Tensor
from torch.testing import assert_close

from jagg.config import Arm
from jagg.flow.schedule import shifted_sigmas
from jagg.gradients import ESTIMATORS, estimator_of, schedule_of
from jagg.gradients.estimators import arm_estimator
from jagg.gradients.estimators.debiased import debiased
from jagg.gradients.estimators.exact import ESTIMATOR as EXACT
from jagg.gradients.routing import route_by_confidence
from jagg.gradients.schedules.protocol import Method
from jagg.gradients.schedules.windows import window_of
from jagg.gradients.window import Estimator, Outcome, Window
from jagg.train.ledger import Ledger

TIGHT = {"rtol": 1e-10, "atol": 1e-13}
UNBIASED = {
    "monte_carlo": estimator_of("monte_carlo"),
    "debiased": estimator_of("debiased"),
    "debiased, proxy": debiased(0.3, "proxy"),
    "debiased, always": debiased(1.0),
    "debiased, by residual": debiased(0.8, "proxy", full_residual=0.5),
}


def flat(gradients: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in gradients.values()])


def random_window(length: int, seed: int = 0, batch: int = 3) -> Window:
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(2, length, batch, 5, 2, generator=generator, dtype=torch.float64)
    return Window(shifted_sigmas(20, 3.0)[:length], states[0], states[1])


def only(estimator: Estimator, number: int) -> Estimator:
    """The estimator that always draws the outcome of a number."""

    def outcomes(window: Window) -> list[Outcome]:
        return [estimator.outcomes(window)[number]._replace(probability=1.0)]

    return replace(estimator, outcomes=outcomes)


def one_window(seed: int, length: int) -> Problem:
    """A trajectory of one window, so that the outcomes of windows need not be combined."""
    of = problem(steps=length, seed=seed, off_policy=0.02)
    plan = replace(of.rollout.plan, windows=(of.rollout.plan.trained,))
    return replace(of, rollout=replace(of.rollout, plan=plan))


@pytest.mark.parametrize("name", UNBIASED)
@pytest.mark.parametrize("length", [2, 3, 4, 7])
def test_the_mean_over_the_draws_is_the_exact_gradient(name: str, length: int) -> None:
    of = one_window(length, length)
    outcomes = UNBIASED[name].outcomes(window_of(of.rollout, of.rollout.plan.trained, slice(0, of.images)))
    assert sum(outcome.probability for outcome in outcomes) == pytest.approx(1.0, abs=1e-12)
    mean = sum(
        outcome.probability * flat(gradient(of, only(UNBIASED[name], number)))
        for number, outcome in enumerate(outcomes)
    )
    exact = flat(gradient(of))
    assert ((mean - exact).norm() / exact.norm()).item() < 1e-10
    if len(outcomes) > 1:
        assert (flat(gradient(of, only(UNBIASED[name], 0))) - exact).norm() / exact.norm() > 1e-4


def test_windows_draw_independently_and_the_whole_trajectory_is_unbiased() -> None:
    of = problem(steps=8)
    estimator = debiased(0.5, "proxy")
    choices = [
        estimator.outcomes(window_of(of.rollout, window, slice(0, of.images))) for window in of.rollout.plan.windows
    ]
    mean = torch.zeros_like(flat(gradient(of)))
    for pair in product(*map(range, map(len, choices))):
        numbers = dict(zip([window[0] for window in of.rollout.plan.windows], pair))
        probability = choices[0][pair[0]].probability * choices[1][pair[1]].probability

        def outcomes(window: Window, numbers: dict[int, int] = numbers) -> list[Outcome]:
            made = estimator.outcomes(window)
            start = of.rollout.plan.sigmas.index(window.sigmas[0])
            return [made[numbers[start]]._replace(probability=1.0)]

        mean += probability * flat(gradient(of, replace(estimator, outcomes=outcomes)))
    exact = flat(gradient(of))
    assert ((mean - exact).norm() / exact.norm()).item() < 1e-10


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in ("monte_carlo", "debiased")])
def test_a_deterministic_estimator_leaves_its_generator_alone(name: str) -> None:
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    estimator_of(name).estimate(random_window(5), generator)
    assert torch.equal(generator.get_state(), before)


def test_draws_follow_their_probabilities_and_their_seed() -> None:
    window, estimator = random_window(4), debiased(0.4, "proxy")
    drawn = [estimator.estimate(window, torch.Generator().manual_seed(seed)).nodes for seed in range(2000)]
    for probability, estimate in estimator.outcomes(window):
        sd = (probability * (1 - probability) / 2000) ** 0.5
        assert abs(drawn.count(estimate.nodes) / 2000 - probability) < 5 * sd
    again = [estimator.estimate(window, torch.Generator().manual_seed(seed)).nodes for seed in range(20)]
    assert again == drawn[:20]


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 12), st.integers(0, 1000))
def test_interpolations_reproduce_constants_and_the_noise_level(length: int, seed: int) -> None:
    window = random_window(length, seed)
    t = torch.tensor(window.sigmas, dtype=torch.float64)
    for name, power in (("quadratic", 2), ("jagg", 1), ("midpoint", 0)):
        made = estimator_of(name).estimate(window, torch.Generator())
        for degree in range(min(power, len(made.nodes) - 1) + 1):
            assert_close(t[list(made.nodes)] ** degree @ made.weights, t**degree, rtol=1e-9, atol=1e-9)


def test_kriging_on_the_chord_is_jagg() -> None:
    of = on_chord(problem())
    for transitions in of.rollout.plan.windows:
        window = window_of(of.rollout, transitions, slice(0, of.images))
        weights = estimator_of("kriging").estimate(window, torch.Generator()).weights
        wanted = estimator_of("jagg").estimate(window, torch.Generator()).weights
        assert_close(weights, wanted[:, :, None].expand_as(weights), rtol=1e-6, atol=1e-8)


def test_kriging_is_the_best_two_weights_for_a_linear_velocity() -> None:
    of = problem(Linear(), g=1.0)
    exact = flat(gradient(of))
    error = {name: (flat(gradient(of, name)) - exact).norm().item() for name in ("kriging", "jagg")}
    assert error["kriging"] < error["jagg"]
    window = window_of(of.rollout, of.rollout.plan.windows[0], slice(0, of.images))
    weights = estimator_of("kriging").estimate(window, torch.Generator()).weights
    t = torch.tensor(window.sigmas, dtype=torch.float64)[:, None, None].expand(-1, of.images, 1)
    x = torch.cat([window.latents.flatten(2), t, torch.ones_like(t)], dim=2)

    def squares(w: Tensor) -> Tensor:
        return (x - torch.einsum("kjb,kbi->jbi", w, x[[0, -1]])).square().sum(2)

    best = squares(weights)
    for seed in range(20):
        moved = weights + 0.1 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(seed)).double()
        assert (squares(moved) >= best - 1e-12).all()


def test_velocity_residuals_are_zero_for_straight_velocities_and_count_the_bend() -> None:
    window = random_window(5)
    alpha = window.alphas[:, None, None, None]
    straight = (1 - alpha) * window.velocities[0] + alpha * window.velocities[-1]
    assert replace(window, velocities=straight).velocity_residual() < 1e-12
    bent = straight.clone()
    bent[2] *= 2
    assert_close(replace(window, velocities=bent).velocity_residuals()[2], torch.full((3,), 0.5, dtype=torch.float64))
    assert random_window(2).velocity_residual() == 0.0


def test_the_probability_of_an_inner_transition_follows_the_residual() -> None:
    window = random_window(4)
    residual = window.velocity_residual()
    for full, wanted in ((residual / 2, 0.6), (residual * 2, 0.3), (residual * 1e6, 0.03)):
        estimator = debiased(0.6, full_residual=full)
        assert estimator.mean_nodes(window) == pytest.approx(2 + wanted)
        assert estimator.expected_nodes(4) == 2.6
        assert estimator.depends_on_states


def test_an_arm_gives_the_debiased_estimator_its_settings() -> None:
    arm = Arm.model_validate({"estimator": "debiased", "debiased": {"probability": 0.25}})
    assert arm_estimator(arm).expected_nodes(4) == 2.25
    assert arm_estimator(Arm(estimator="debiased")) is ESTIMATORS["debiased"]
    with pytest.raises(ValueError, match="expected only with estimator: debiased, got estimator: jagg"):
        Arm.model_validate({"estimator": "jagg", "debiased": {"probability": 0.25}})


def test_a_confident_router_trusts_windows_up_to_its_threshold() -> None:
    window, jagg = random_window(4), estimator_of("jagg")
    residual = window.velocity_residual()
    assert route_by_confidence(jagg, window, None) is jagg
    assert route_by_confidence(jagg, window, residual) is jagg
    assert route_by_confidence(jagg, window, residual * 0.999) is EXACT


def test_confidence_routes_between_jagg_and_exact_and_says_so() -> None:
    of = problem()
    residuals = [
        window_of(of.rollout, window, slice(0, of.images)).velocity_residual() for window in of.rollout.plan.windows
    ]
    assert_close(gradient(of, "jagg", max_residual=max(residuals)), gradient(of, "jagg"), **TIGHT)
    assert_close(gradient(of, "jagg", max_residual=1e-9), gradient(of), rtol=1e-6, atol=1e-9)
    middle = sorted(residuals)[1]
    method = Method(estimator_of("jagg"), 1.0, of.clip_range, 100, middle)
    ledger = Ledger(of.backbone)
    made = schedule_of("native").accumulate(
        ledger, method, of.rollout, of.advantages, slice(0, of.images), lambda start: torch.Generator()
    )
    assert [window.exact for window in made.windows] == [residual > middle for residual in residuals]
    assert ledger.take().backward_passes == of.images * sum(window.nodes for window in made.windows)
