"""How far off JAGG can be: the bound, its constants along a measured window, and the error's parts (math.md 5)."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jagg.backbones.protocol import TextFeatures
from jagg.gradients.window import Window
from jagg.probe.vjp import Gradient, Products, distance, norm

_REACH = 0.25
"""Half width of the second difference along the chord, in alpha; less near the ends."""


def interpolation_bound(
    signal_norms: Float[Tensor, "*batch window"],
    offsets: Float[Tensor, "*batch window"],
    alphas: Float[Tensor, "*batch window"],
    chord: Float[Tensor, "*batch 1"],
    l1: Float[Tensor, "*batch 1"] | float,
    l2: Float[Tensor, "*batch 1"] | float,
) -> Float[Tensor, "*batch"]:
    """sum_j ||s_j|| (L1 ||delta_j|| + 1/2 alpha_j (1 - alpha_j) L2 ||x_{W-1} - x_0||^2) (math.md 5)."""
    return (signal_norms * (l1 * offsets + 0.5 * alphas * (1 - alphas) * l2 * chord**2)).sum(dim=-1)


class ErrorParts(NamedTuple):
    """Norms, in the unit of the gradient."""

    bound: float
    path: float
    """Of the part from states off the chord: exact against the Jacobians of the chord with the window's own signals."""
    curve: float
    """Of the part from the network's curvature: the Jacobians of the chord against JAGG."""


def error_parts(
    products: Products,
    window: Window,
    told: tuple[float, ...],
    text: TextFeatures,
    signals: Float[Tensor, "window 1 tokens channels"],
    exact: Gradient,
    jagg: Gradient,
) -> ErrorParts:
    """Bound and parts of JAGG's error for one trajectory.

    L1 and L2 are the largest seen along this window: first and second differences of vector-Jacobian products with
    the window's own signals. They estimate the constants from below, so the bound may fail where they miss the worst.
    """
    alpha = window.alphas.to(window.latents)[:, None, None, None]
    chord = (1 - alpha) * window.latents[0] + alpha * window.latents[-1]
    on_chord = products(chord, told, text, signals)
    path, curve = distance(exact, on_chord), distance(on_chord, jagg)
    del on_chord
    offsets = (window.latents - chord).flatten(1).norm(dim=1)
    norms = signals.flatten(1).norm(dim=1)
    length = float((window.latents[-1] - window.latents[0]).norm().double().square() + (told[-1] - told[0]) ** 2) ** 0.5
    l1 = l2 = 0.0
    for j in range(1, len(window) - 1):
        if norms[j] == 0:
            continue
        unit = signals[j] / norms[j]
        if offsets[j] > 0:
            pair = torch.stack([window.latents[j], chord[j]])
            l1 = max(l1, norm(products(pair, [told[j]] * 2, text, torch.stack([unit, -unit]))) / float(offsets[j]))
        l2 = max(l2, _second_derivative(products, window, told, text, unit, float(window.alphas[j])) / length**2)
    bound = interpolation_bound(
        norms.double(), offsets.double(), window.alphas.to(norms.device), norms.new_tensor([length]).double(), l1, l2
    )
    return ErrorParts(float(bound), path, curve)


def _second_derivative(
    products: Products,
    window: Window,
    told: tuple[float, ...],
    text: TextFeatures,
    unit: Float[Tensor, "1 tokens channels"],
    alpha: float,
) -> float:
    """Norm of d^2 (J^T unit) / d alpha^2 along the chord, by a second difference."""
    reach = min(_REACH, alpha, 1 - alpha)
    places = [alpha - reach, alpha, alpha + reach]
    states = torch.stack([(1 - a) * window.latents[0] + a * window.latents[-1] for a in places])
    levels = [(1 - a) * told[0] + a * told[-1] for a in places]
    return norm(products(states, levels, text, torch.stack([unit, -2 * unit, unit]))) / reach**2
