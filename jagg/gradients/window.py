"""What an estimator sees of a window, and what it answers: nodes and weights (math.md 3)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Float64
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

    @property
    def alphas(self) -> Float64[Tensor, "window"]:
        """Place of each transition between the window's ends by its noise level: alpha_j, from 0 to 1 (math.md 3)."""
        t = torch.tensor(self.sigmas, dtype=torch.float64)
        return (t[0] - t) / (t[0] - t[-1])

    def velocity_residuals(self) -> Float[Tensor, "window batch"]:
        """||v_j - (1-alpha_j) v_0 - alpha_j v_{W-1}|| / ||v_j||: the router's free proxy (math.md 5), 0 at the ends."""
        alpha = self.alphas.to(self.velocities)[:, None, None, None]
        off = self.velocities - ((1 - alpha) * self.velocities[0] + alpha * self.velocities[-1])
        sizes = self.velocities.flatten(2).norm(dim=2)
        residuals = off.flatten(2).norm(dim=2) / sizes.clamp_min(torch.finfo(sizes.dtype).tiny)
        # The ends are interpolated exactly; what is left there is rounding.
        residuals[0] = residuals[-1] = 0.0
        return residuals

    def velocity_residual(self) -> float:
        """Mean velocity residual over inner transitions and samples; 0 without inner transitions."""
        return float(self.velocity_residuals()[1:-1].mean()) if len(self) > 2 else 0.0


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


class Outcome(NamedTuple):
    """One of the estimates that an estimator may draw."""

    probability: float
    estimate: Estimate


@dataclass(frozen=True)
class Estimator:
    """A gradient estimator: a finite distribution over nodes and weights, and how many nodes it takes on average."""

    outcomes: Callable[[Window], list[Outcome]]
    """Every estimate that may be drawn for a window, with probabilities adding up to 1; one if nothing is random."""
    expected_nodes: Callable[[int], float]
    """Expected nodes of a window of a given length, at least 2: the closed form that the ledger is held against."""
    fewest_nodes: Callable[[int], float] | None = None
    """Where the states decide how many nodes there are, the fewest that can be expected; `expected_nodes`: the most."""
    which_depends_on_states: bool = False
    """Whether which nodes are drawn depends on the states, so that no schedule knows them during the rollout."""

    @classmethod
    def certain(cls, estimate: Callable[[Window], Estimate], expected_nodes: Callable[[int], float]) -> "Estimator":
        """A deterministic estimator."""
        return cls(lambda window: [Outcome(1.0, estimate(window))], expected_nodes)

    @property
    def depends_on_states(self) -> bool:
        """Whether the number of nodes depends on the states."""
        return self.fewest_nodes is not None

    def estimate(self, window: Window, generator: torch.Generator) -> Estimate:
        """Draw an estimate; the generator is this window's own, and a deterministic estimator leaves it alone."""
        outcomes = self.outcomes(window)
        if len(outcomes) == 1:
            return outcomes[0].estimate
        probabilities = torch.tensor([outcome.probability for outcome in outcomes], dtype=torch.float64)
        return outcomes[int(torch.multinomial(probabilities, 1, generator=generator))].estimate

    def mean_nodes(self, window: Window) -> float:
        """Nodes that a draw for this very window takes on average."""
        return math.fsum(outcome.probability * len(outcome.estimate.nodes) for outcome in self.outcomes(window))


class WindowNodes(NamedTuple):
    """What was done, or is to be expected, in one window of each trajectory."""

    nodes: float
    length: int
    exact: bool
    """Whether the window was routed to the exact gradient."""
    expected: float
    """Mean of `nodes` over the draws."""
    graphs: float | None = None
    """Transitions whose graph was made, where a schedule made more than it used; None: the nodes'."""
