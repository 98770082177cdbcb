"""One window's estimates held against its exact gradient (math.md 3 and 5)."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from jagg.flow.rollout import Rollout
from jagg.gradients.routing import route
from jagg.gradients.schedules.windows import window_of
from jagg.gradients.window import Estimate, Estimator
from jagg.probe.bound import ErrorParts, error_parts
from jagg.probe.vjp import Gradient, Products, distance, dot, norm

ZERO_EXACT, ZERO_ESTIMATE = "the exact gradient is zero", "the estimate is zero"


class Comparison(NamedTuple):
    """An estimate against the exact gradient; None is unknown."""

    cosine: float | None
    norm_ratio: float | None
    relative_error: float | None
    note: str = ""


def compare_gradients(estimate: Gradient, exact: Gradient) -> Comparison:
    """Cosine, ratio of norms, and error in units of the exact norm, all summed in float64."""
    of_exact, of_estimate = norm(exact), norm(estimate)
    if of_exact == 0:
        return Comparison(None, None, None, ZERO_EXACT)
    error = distance(estimate, exact) / of_exact
    if of_estimate == 0:
        return Comparison(None, 0.0, error, ZERO_ESTIMATE)
    return Comparison(dot(estimate, exact) / (of_estimate * of_exact), of_estimate / of_exact, error)


def mean_comparison(draws: list[tuple[float, Comparison]]) -> Comparison:
    """Mean cosine and norm ratio over draws, and root mean square error, by their probabilities.

    The mean of what is unknown for one draw is unknown.
    """
    if len(draws) == 1:
        return draws[0][1]

    def mean(values: list[float | None], power: int = 1) -> float | None:
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        return float(sum(p * v**power for (p, _), v in zip(draws, known)) ** (1 / power))

    compared = [comparison for _, comparison in draws]
    return Comparison(
        mean([c.cosine for c in compared]),
        mean([c.norm_ratio for c in compared]),
        mean([c.relative_error for c in compared], power=2),
        next((c.note for c in compared if c.note), ""),
    )


def measure_window(
    products: Products,
    rollout: Rollout,
    transitions: tuple[int, ...],
    samples: slice,
    signals: Float[Tensor, "window batch tokens channels"],
    estimators: Mapping[str, Estimator],
    bound: bool,
) -> list[dict[str, Any]]:
    """A row of measures for each estimator; two gradient vectors are held at a time, three for the bound."""
    window = window_of(rollout, transitions, samples)
    told = tuple(rollout.plan.model_sigmas[j] for j in transitions)
    text = rollout.text[samples]
    every = slice(0, signals.shape[1])

    def gradient(estimate: Estimate) -> Gradient:
        nodes = list(estimate.nodes)
        upstream = estimate.node_signals(signals, every)
        return products(window.latents[nodes], [told[node] for node in nodes], text, upstream)

    exact = products(window.latents, told, text, signals)
    rows = []
    for name, estimator in estimators.items():
        routed = route(estimator, transitions[0], len(transitions), rollout.plan.sampling_steps, 1.0)
        draws, parts = [], None
        for probability, estimate in routed.outcomes(window):
            made = gradient(estimate)
            draws.append((probability, compare_gradients(made, exact)))
            if name == "jagg" and bound and len(window) > 1:
                parts = error_parts(products, window, told, text, signals, exact, made)
        rows.append(
            {
                "estimator": name,
                "nodes": routed.mean_nodes(window),
                **mean_comparison(draws)._asdict(),
                **_relative(parts, norm(exact)),
                "velocity_residual": window.velocity_residual(),
            }
        )
    return rows


def _relative(parts: ErrorParts | None, size: float) -> dict[str, float | None]:
    if parts is None or size == 0:
        return {"bound": None, "path_error": None, "curve_error": None}
    return {"bound": parts.bound / size, "path_error": parts.path / size, "curve_error": parts.curve / size}
