"""Vector-Jacobian products of the trained parameters, one gradient vector at a time."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from jagg.backbones.protocol import TextFeatures
from jagg.flow.rollout import VelocityField

Gradient = tuple[Tensor, ...]
"""One tensor a trained parameter, in the parameters' number format."""


class Products:
    """J^T s of a velocity field by its trained parameters."""

    def __init__(self, field: VelocityField, parameters: Sequence[Tensor], batch_size: int) -> None:
        self._field, self._parameters, self._batch_size = field, tuple(parameters), batch_size

    def __call__(
        self,
        latents: Float[Tensor, "places batch tokens channels"],
        told: Sequence[float],
        text: TextFeatures,
        signals: Float[Tensor, "places batch tokens channels"],
    ) -> Gradient:
        """sum over places and samples of J(z, t)^T s; `told` is the noise level that the network is told, by place."""
        places, batch = latents.shape[:2]
        sigma = latents.new_tensor(list(told)).repeat_interleave(batch)
        repeated = text[list(range(batch)) * places]
        flat, upstream = latents.flatten(0, 1), signals.flatten(0, 1)
        total: Gradient | None = None
        for first in range(0, len(flat), self._batch_size):
            part = slice(first, first + self._batch_size)
            with torch.enable_grad():
                velocity = self._field.velocity(flat[part], sigma[part], repeated[part])
            made = torch.autograd.grad(velocity, self._parameters, upstream[part], materialize_grads=True)
            total = made if total is None else tuple(a.add_(b) for a, b in zip(total, made))
        assert total is not None, "a window has a transition"
        return total


def dot(a: Gradient, b: Gradient) -> float:
    """Inner product in float64, parameter by parameter."""
    return sum(float(x.double().flatten() @ y.double().flatten()) for x, y in zip(a, b))


def norm(a: Gradient) -> float:
    """Euclidean norm in float64."""
    return math.hypot(*(float(torch.linalg.vector_norm(x, dtype=torch.float64)) for x in a))


def distance(a: Gradient, b: Gradient) -> float:
    """Euclidean norm of the difference in float64, without the difference of large squares."""
    return math.hypot(*(float(torch.linalg.vector_norm(x.double() - y)) for x, y in zip(a, b)))
