"""Estimators against autograd and against the mathematics; what must not matter to a gradient."""

import pytest
import torch
from analytic import Linear
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import Problem, autograd_gradient, gradient, on_chord, permuted, problem
from torch import Tensor
from torch.testing import assert_close

from jagg.algorithms.objective import clipped_signals
from jagg.gradients.schedules.windows import coefficients

TIGHT = {"rtol": 1e-10, "atol": 1e-13}


def flat(gradients: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in gradients.values()])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.05]), st.sampled_from([0.05, 10.0]), st.integers(2, 11))
def test_the_exact_estimator_is_plain_autograd(seed: int, off_policy: float, clip_range: float, steps: int) -> None:
    of = problem(seed=seed, off_policy=off_policy, steps=steps)
    of = Problem(of.backbone, of.rollout, of.advantages, clip_range)
    assert_close(gradient(of), autograd_gradient(of), **TIGHT)


@pytest.mark.parametrize("estimator", ["exact", "jagg", "endpoint_only"])
@pytest.mark.parametrize("batch_size", [1, 4, 5])
def test_micro_batches_change_nothing(estimator: str, batch_size: int) -> None:
    of = problem(off_policy=0.05)
    assert_close(gradient(of, estimator, batch_size=batch_size), gradient(of, estimator), **TIGHT)


@pytest.mark.parametrize("estimator", ["exact", "jagg", "endpoint_only"])
def test_splitting_the_images_gives_the_mean_of_the_parts(estimator: str) -> None:
    of = problem(off_policy=0.05)
    assert_close(gradient(of, estimator, splits=3), gradient(of, estimator), **TIGHT)


@pytest.mark.parametrize("estimator", ["exact", "jagg"])
def test_the_order_of_images_changes_nothing(estimator: str) -> None:
    of = problem()
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    assert_close(gradient(permuted(of, order), estimator), gradient(of, estimator), **TIGHT)


def test_the_gradient_is_linear_in_the_advantages() -> None:
    of = problem(off_policy=0.02)
    doubled = Problem(of.backbone, of.rollout, 2 * of.advantages)
    assert_close(flat(gradient(doubled, "jagg")), 2 * flat(gradient(of, "jagg")), **TIGHT)


@pytest.mark.parametrize("advantages", [0.0, 1.0])
def test_no_advantage_or_everything_clipped_gives_no_gradient(advantages: float) -> None:
    of = problem(off_policy=0.1)
    raised = of.rollout.log_probs - 5.0
    rollout = type(of.rollout)(of.rollout.plan, of.rollout.text, of.rollout.latents, of.rollout.velocities, raised)
    clipped = Problem(of.backbone, rollout, torch.full_like(of.advantages, advantages), clip_range=0.1)
    for estimator in ("exact", "jagg", "endpoint_only"):
        assert flat(gradient(clipped, estimator)).abs().max() == 0


def test_jagg_is_exact_for_a_linear_velocity_on_the_chord() -> None:
    of = on_chord(problem(Linear()))
    exact, jagg = gradient(of), gradient(of, "jagg")
    assert flat(exact).norm() > 1e-3
    assert ((flat(jagg) - flat(exact)).norm() / flat(exact).norm()).item() < 1e-10
    assert flat(gradient(of, "endpoint_only")).sub(flat(exact)).norm() / flat(exact).norm() > 0.05


def test_off_the_chord_the_difference_is_the_closed_form() -> None:
    of = problem(Linear())
    exact, jagg = gradient(of), gradient(of, "jagg")
    plan, made = of.rollout.plan, of.rollout
    scale = 1 / (of.images * len(plan.trained))
    wanted = torch.zeros_like(exact["B"])
    for window in plan.windows:
        rows = slice(window[0], window[-1] + 1)
        signals = clipped_signals(
            made.latents[rows],
            made.latents[window[0] + 1 : window[-1] + 2],
            made.velocities[rows],
            made.log_probs[rows],
            scale * of.advantages,
            **coefficients(plan, window, made.latents.device),
            clip_range=10.0,
        ).signals
        t = torch.tensor([plan.sigmas[j] for j in window], dtype=torch.float64)
        alpha = ((t[0] - t) / (t[0] - t[-1]))[:, None, None, None]
        chord = (1 - alpha) * made.latents[window[0]] + alpha * made.latents[window[-1]]
        wanted += torch.einsum("jbnc,jbnd->cd", signals, made.latents[rows] - chord)
    assert wanted.norm() > 1e-3 * exact["B"].norm()
    assert_close(exact["B"] - jagg["B"], wanted, rtol=1e-10, atol=1e-14)
    assert_close(jagg["c"], exact["c"], **TIGHT)
    assert_close(jagg["d"], exact["d"], **TIGHT)


def test_estimates_follow_the_matrix_formula() -> None:
    """g_hat = sum_k J_k^T sum_j M[k, j] s_j, with every Jacobian product taken alone."""
    of = problem(steps=4, off_policy=0.02)
    plan, made, transformer = of.rollout.plan, of.rollout, of.backbone.transformer
    told = [torch.full((of.images,), plan.sigmas[j], dtype=torch.float64) for j in range(4)]
    velocities = [of.backbone.velocity(made.latents[j], told[j], made.text) for j in range(4)]
    signals = clipped_signals(
        made.latents[:4],
        made.latents[1:],
        torch.stack(velocities).detach(),
        made.log_probs,
        of.advantages / (of.images * 4),
        **coefficients(plan, (0, 1, 2, 3), made.latents.device),
        clip_range=10.0,
    ).signals
    t = plan.sigmas
    alpha = [(t[0] - t[j]) / (t[0] - t[3]) for j in range(4)]
    matrices = {
        "jagg": {0: [1 - a for a in alpha], 3: alpha},
        "endpoint_only": {0: [1, 0, 0, 0], 3: [0, 0, 0, 1]},
        "exact": {j: [float(j == i) for i in range(4)] for j in range(4)},
    }
    for estimator, rows in matrices.items():
        parts = [
            torch.autograd.grad(
                velocities[k],
                list(transformer.parameters()),
                sum(m * s for m, s in zip(row, signals)),
                retain_graph=True,
            )
            for k, row in rows.items()
        ]
        wanted = torch.cat([sum(tensors).flatten() for tensors in zip(*parts)])
        assert_close(flat(gradient(of, estimator)), wanted, **TIGHT)


def test_routing_uses_the_estimator_in_the_first_windows_only() -> None:
    of = problem()
    assert_close(gradient(of, "jagg", jagg_frac=0.0), gradient(of), **TIGHT)
    part, whole = gradient(of, "jagg", jagg_frac=0.4), gradient(of, "jagg")
    assert not torch.allclose(flat(part), flat(whole), rtol=1e-6, atol=0)
    # A trajectory that is trained from step 4 on has its first window at 4/10, beyond the fraction.
    late = problem(first=4)
    assert_close(gradient(late, "jagg", jagg_frac=0.4), gradient(late), **TIGHT)


def test_a_window_of_one_is_exact() -> None:
    of = problem(steps=5, first=4)
    assert_close(gradient(of, "jagg"), gradient(of), **TIGHT)
    assert flat(gradient(of, "endpoint_only")).norm() > 0
