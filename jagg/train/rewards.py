"""The training reward: a named mix of scorers, its parts kept apart."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, UInt8

from jagg.config import Reward
from jagg.errors import unknown_name
from jagg.scorers.protocol import Scorer, score_bytes

Values = Float64[np.ndarray, "batch"]


def raw_weighted_sum(parts: Mapping[str, Values], weights: Mapping[str, float]) -> Values:
    """Weights apply to the raw cosines; the metric with the larger spread leads."""
    return np.sum([weight * parts[metric] for metric, weight in weights.items()], axis=0)


def standardised_weighted_sum(parts: Mapping[str, Values], weights: Mapping[str, float]) -> Values:
    """Weights apply to each metric less its mean, over its standard deviation (n - 1) among the step's images."""
    return np.sum([weight * _standardised(parts[metric]) for metric, weight in weights.items()], axis=0)


def _standardised(values: Values) -> Values:
    if values.max() == values.min():
        return np.zeros_like(values)
    return (values - values.mean()) / values.std(ddof=1)


MIXES: dict[str, Callable[[Mapping[str, Values], Mapping[str, float]], Values]] = {
    "raw_weighted_sum": raw_weighted_sum,
    "standardised_weighted_sum": standardised_weighted_sum,
}


@dataclass(frozen=True)
class Rewards:
    """Rewards of a step's images and the raw values of each metric."""

    total: Values
    parts: dict[str, Values]

    def summary(self) -> dict[str, dict[str, float]]:
        """Metric -> mean and standard deviation (n - 1) over the images."""
        return {
            metric: {"mean": float(values.mean()), "std": float(values.std(ddof=1))}
            for metric, values in self.parts.items()
        }


def mixed(parts: dict[str, Values], reward: Reward) -> Rewards:
    """The mix of parts.

    Raises:
        InputError: unknown mix.
    """
    if reward.mix not in MIXES:
        raise unknown_name("reward mix", reward.mix, MIXES, where="reward.mix")
    return Rewards(MIXES[reward.mix](parts, reward.weights), parts)


def score_images(
    images: UInt8[np.ndarray, "batch height width 3"],
    prompts: Sequence[str],
    scorers: Mapping[str, Scorer],
    reward: Reward,
) -> Rewards:
    """Score images against their prompts by every scorer of the reward, and mix."""
    parts = {metric: score_bytes(scorers[metric], images=images, prompts=list(prompts)) for metric in reward.weights}
    return mixed({metric: np.asarray(values, dtype=np.float64) for metric, values in parts.items()}, reward)
