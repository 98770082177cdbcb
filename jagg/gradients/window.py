"""What an estimator sees of a window, and what it answers: nodes and weights (math.md 3)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Window:
    """Consecutive trained transitions of a batch of trajectories."""

    sigmas: tuple[float, ...]
    """Noise level at which each transition starts; the t of the interpolation."""
    latents: Float[Tensor, "window batch tokens channels"]
    """State at which each transition starts."""
    velocities: Float[Tensor, "window batch tokens channels"]
    """Velocity of each transition at rollout."""

    def __len__(self) -> int:
        return len(self.sigmas)


@dataclass(frozen=True)
class Estimate:
    """g_hat = sum_k J_k^T (sum_j M[k, j] s_j): nodes to back-propagate through, and the weights M."""

    nodes: tuple[int, ...]
    """Distinct places in the window."""
    weights: Float[Tensor, "nodes window"] | Float[Tensor, "nodes window batch"]
    """M, one for all samples or one for each."""

    def node_signals(
        self, signals: Float[Tensor, "window batch tokens channels"], samples: slice
    ) -> Float[Tensor, "nodes batch tokens channels"]:
        """sum_j M[k, j] s_j for each node; `samples` are those of the batch that the signals belong to."""
        weights = self.weights.to(signals)
        if weights.dim() == 2:
            return torch.einsum("kj,j...->k...", weights, signals)
        return torch.einsum("kjb,jb...->kb...", weights[:, :, samples], signals)


@dataclass(frozen=True)
class Estimator:
    """A gradient estimator: a function of the window, and how many nodes it takes on average."""

    estimate: Callable[[Window, torch.Generator], Estimate]
    """The generator belongs to this window alone; a deterministic estimator leaves it untouched."""
    expected_nodes: Callable[[int], float]
    """Expected nodes of a window of a given length, at least 2: the closed form that the ledger is held against."""
