"""The error bound of JAGG on velocity fields whose constants are known (math.md 5)."""

import numpy as np
import pytest
import torch
from analytic import Linear
from problems import problem
from torch import Tensor, nn

from jagg.backbones.protocol import TextFeatures
from jagg.gradients.estimators import estimator_of
from jagg.gradients.schedules.windows import window_of, window_signals
from jagg.gradients.window import Window
from jagg.probe.bound import error_parts, interpolation_bound
from jagg.probe.vjp import Products, distance, norm

CASES, LENGTH, TOKENS = 1000, 5, 6


def random_windows(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """alpha, states x = (z, t) of SDE-like paths, their chords, and signals, for many windows at once."""
    generator = torch.Generator().manual_seed(seed)
    levels = torch.sort(torch.rand(CASES, LENGTH, generator=generator).double(), dim=1, descending=True).values
    alpha = (levels[:, :1] - levels) / (levels[:, :1] - levels[:, -1:])
    steps = torch.randn(CASES, LENGTH, TOKENS, generator=generator).double() * torch.rand(CASES, 1, 1).double()
    x = torch.cat([steps.cumsum(dim=1), levels[..., None]], dim=2)
    chord = (1 - alpha[..., None]) * x[:, :1] + alpha[..., None] * x[:, -1:]
    return alpha, x, chord, torch.randn(CASES, LENGTH, generator=generator).double()


def bound_and_error(alpha: Tensor, x: Tensor, chord: Tensor, s: Tensor, features: Tensor, l1: Tensor, l2: Tensor):
    """v = theta . phi(x): the Jacobian by theta is phi(x) itself, so that J^T s = s phi(x)."""
    interpolated = (1 - alpha[..., None]) * features[:, :1] + alpha[..., None] * features[:, -1:]
    error = (s[..., None] * (features - interpolated)).sum(dim=1).norm(dim=1)
    offsets = (x - chord).norm(dim=2)
    length = (x[:, -1] - x[:, 0]).norm(dim=1, keepdim=True)
    return interpolation_bound(s.abs(), offsets, alpha, length, l1[:, None], l2[:, None]), error


def test_the_bound_holds_in_a_thousand_random_fields() -> None:
    alpha, x, chord, s = random_windows(0)
    generator = torch.Generator().manual_seed(1)
    w = torch.randn(CASES, 8, TOKENS + 1, generator=generator).double()
    a = torch.rand(CASES, 8, generator=generator).double()
    phase = torch.rand(CASES, 8, generator=generator).double()
    features = a[:, None] * torch.sin(torch.einsum("nki,nji->njk", w, x) + phase[:, None])
    sizes = w.norm(dim=2)
    l1 = (a * w[..., :-1].norm(dim=2)).square().sum(dim=1).sqrt()  # by z alone
    l2 = (a * sizes**2).square().sum(dim=1).sqrt()
    bound, error = bound_and_error(alpha, x, chord, s, features, l1, l2)
    assert (error <= bound).all()
    assert (error > 0.01 * bound).any()


def test_the_bound_holds_for_linear_fields_and_is_tight_for_one_step_off_the_chord() -> None:
    alpha, x, chord, s = random_windows(2)
    a = torch.randn(CASES, 9, TOKENS, generator=torch.Generator().manual_seed(3)).double()
    linear = torch.einsum("nki,nji->njk", a, x[..., :-1])
    l1 = torch.linalg.matrix_norm(a, ord=2)
    bound, error = bound_and_error(alpha, x, chord, s, linear, l1, torch.zeros(CASES).double())
    assert (error <= bound * (1 + 1e-12)).all()
    # One inner state leaves the chord along the leading singular direction, with every other signal zero.
    direction = torch.linalg.svd(a).Vh[:, 0]
    moved = chord.clone()
    moved[:, 2, :-1] += direction
    only = torch.zeros_like(s)
    only[:, 2] = s[:, 2]
    features = torch.einsum("nki,nji->njk", a, moved[..., :-1])
    bound, error = bound_and_error(alpha, moved, chord, only, features, l1, torch.zeros(CASES).double())
    assert torch.allclose(error / bound, torch.ones(CASES).double(), rtol=1e-9)


def test_the_bound_is_tight_for_a_parabola_along_the_chord() -> None:
    alpha, _, chord, s = random_windows(4)
    direction = chord[:, -1] - chord[:, 0]
    length = direction.norm(dim=1)
    along = torch.einsum("nji,ni->nj", chord - chord[:, :1], direction / length[:, None])
    curvature = torch.rand(CASES, generator=torch.Generator().manual_seed(5)).double() + 0.1
    features = 0.5 * curvature[:, None, None] * along[..., None] ** 2
    bound, error = bound_and_error(alpha, chord, chord, s.abs(), features, torch.zeros(CASES).double(), curvature)
    assert torch.allclose(error / bound, torch.ones(CASES).double(), rtol=1e-9)


class Parabola(nn.Module):
    """v = theta (0.5 z^2 + z): the Jacobian is known, L1 and L2 grow and stay as the states say."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, latents: Tensor, sigma: Tensor, text: Tensor) -> Tensor:
        return self.theta * (0.5 * latents**2 + latents)


def parts_of(module: nn.Module, sample: int, start: int = 0):
    of = problem(module)
    products = Products(of.backbone, list(of.backbone.transformer.parameters()), batch_size=10)
    transitions = of.rollout.plan.windows[start]
    one = slice(sample, sample + 1)
    window = window_of(of.rollout, transitions, one)
    told = tuple(of.rollout.plan.model_sigmas[j] for j in transitions)
    text: TextFeatures = of.rollout.text[one]
    signals = window_signals(of.rollout, transitions, one, of.advantages[one], 10.0).signals
    exact = products(window.latents, told, text, signals)
    estimate = estimator_of("jagg").estimate(window, torch.Generator())
    nodes = list(estimate.nodes)
    upstream = estimate.node_signals(signals, slice(0, 1))
    jagg = products(window.latents[nodes], [told[n] for n in nodes], text, upstream)
    return error_parts(products, window, told, text, signals, exact, jagg), distance(exact, jagg), norm(exact)


@pytest.mark.parametrize("sample", range(6))
def test_estimated_constants_bound_the_error_of_a_network(sample: int) -> None:
    for module in (None, Parabola()):
        parts, error, _ = parts_of(module, sample)
        assert 0 < error <= parts.bound
        assert error <= parts.path + parts.curve + 1e-12


def test_a_linear_velocity_errs_only_by_leaving_the_chord() -> None:
    parts, error, size = parts_of(Linear(), 0)
    assert parts.curve < 1e-10 * size
    assert parts.path == pytest.approx(error)


def test_the_second_difference_of_a_parabola_is_its_curvature() -> None:
    """On the chord the error of 0.5 z^2 is 0.5 alpha (1 - alpha) ||.||, which the estimated L2 must give exactly."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randn(2, 1, 1, 1, generator=generator).double()
    window = Window((0.9, 0.7, 0.3), torch.stack([ends[0], ends.mean(dim=0), ends[1]]), torch.zeros(3, 1, 1, 1))
    alpha = float(window.alphas[1])
    window.latents[1] = (1 - alpha) * ends[0] + alpha * ends[1]

    class Field:
        theta = torch.ones((), dtype=torch.float64, requires_grad=True)

        def velocity(self, latents: Tensor, sigma: Tensor, text: TextFeatures) -> Tensor:
            return self.theta * 0.5 * latents**2

    products = Products(Field(), (Field.theta,), 10)
    signals = torch.tensor([0.0, 2.0, 0.0]).double()[:, None, None, None]
    text = TextFeatures({"none": torch.zeros(1)})
    exact = products(window.latents, window.sigmas, text, signals)
    estimate = estimator_of("jagg").estimate(window, torch.Generator()).node_signals(signals, slice(0, 1))
    jagg = products(window.latents[[0, 2]], (0.9, 0.3), text, estimate)
    parts = error_parts(products, window, window.sigmas, text, signals, exact, jagg)
    assert np.isclose(parts.bound, distance(exact, jagg), rtol=1e-9)
