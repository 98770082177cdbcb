"""Noise schedules, diffusion coefficients, and the plan of one trajectory (math.md 1); plain numbers, no tensors."""

import math
from dataclasses import dataclass


def shifted_sigmas(sampling_steps: int, shift: float) -> tuple[float, ...]:
    """sigmas[0..T] from 1 to 0: sigma' = s sigma / (1 + (s - 1) sigma) on an even grid (math.md 1)."""
    even = [(sampling_steps - j) / sampling_steps for j in range(sampling_steps + 1)]
    # The same number as in the formula, written so that 1 stays exactly 1 for every shift.
    return tuple(shift * sigma / (shift * sigma + (1 - sigma)) for sigma in even)


def constant_diffusion(sigmas: tuple[float, ...], eta: float) -> tuple[float, ...]:
    """DanceGRPO's coefficient of every transition: g = eta (math.md 1)."""
    return (eta,) * (len(sigmas) - 1)


def flow_grpo_diffusion(sigmas: tuple[float, ...], noise_level: float) -> tuple[float, ...]:
    """Flow-GRPO's coefficient: g = a sqrt(sigma / (1 - sigma)), with 1 - sigmas[1] where sigma is 1 (math.md 1)."""
    return tuple(noise_level * math.sqrt(sigma / (1 - (sigmas[1] if sigma == 1 else sigma))) for sigma in sigmas[:-1])


def quantised(sigma: float) -> float:
    """The timestep that the reference DanceGRPO code feeds the transformer: int(1000 sigma) / 1000."""
    return int(1000 * sigma) / 1000


@dataclass(frozen=True)
class TransitionPlan:
    """Which transitions of a trajectory are stochastic, which are trained, and how these form windows."""

    sigmas: tuple[float, ...]
    """Noise levels 0..T."""
    diffusion: tuple[float, ...]
    """g of transitions 0..T-1; 0 is an ODE step."""
    model_sigmas: tuple[float, ...]
    """What the transformer is told the noise level is, 0..T-1."""
    trained: tuple[int, ...]
    """Trained transitions, increasing."""
    windows: tuple[tuple[int, ...], ...]
    """The trained transitions in contiguous windows of at most W."""

    @property
    def sampling_steps(self) -> int:
        return len(self.sigmas) - 1


def transition_plan(
    sigmas: tuple[float, ...],
    diffusion: tuple[float, ...],
    trained: tuple[int, ...],
    *,
    window: int,
    quantise_timestep: bool,
) -> TransitionPlan:
    """A plan whose contiguous trained transitions are cut into windows of `window`; the last may be shorter."""
    assert list(trained) == list(range(trained[0], trained[-1] + 1)), trained
    assert all(diffusion[j] > 0 for j in trained), "only a stochastic transition has a log-probability"
    return TransitionPlan(
        sigmas=sigmas,
        diffusion=diffusion,
        model_sigmas=tuple(quantised(sigma) if quantise_timestep else sigma for sigma in sigmas[:-1]),
        trained=trained,
        windows=tuple(trained[first : first + window] for first in range(0, len(trained), window)),
    )
