"""How a run's prompts are averaged: all alike, or by groups (the styles of a prompt set) of equal weight."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float64, Int64

from jagg.errors import InputError, unknown_name

POOLED_PROMPTS, EQUAL_WEIGHT = "pooled", "equal_weight"
Codes = Int64[np.ndarray, "rows"]
Weights = Float64[np.ndarray, "rows"]


def _pooled(prompts: Codes, runs: Codes, groups: Sequence[str]) -> Weights:
    return np.ones(len(runs))


def _equal_weight(prompts: Codes, runs: Codes, groups: Sequence[str]) -> Weights:
    names = sorted(set(groups))
    place = runs * len(names) + np.array([names.index(name) for name in groups])[prompts]
    return 1 / np.bincount(place)[place]


AGGREGATIONS: dict[str, Callable[[Codes, Codes, Sequence[str]], Weights]] = {
    POOLED_PROMPTS: _pooled,
    EQUAL_WEIGHT: _equal_weight,
}
"""Name -> weights of a run's prompts. pooled: every prompt alike; equal_weight: every group alike, and every prompt
within its group."""


def prompt_weights(name: str, prompts: Codes, runs: Codes, groups: Sequence[str]) -> Weights:
    """Relative weight of each prompt in its run, one a row.

    Args:
        prompts, runs: codes of a row's prompt and run.
        groups: group of each prompt code, empty where it has none.

    Raises:
        InputError: an unknown name, or a prompt without a group where groups are weighted.
    """
    if name not in AGGREGATIONS:
        raise unknown_name("aggregation", name, AGGREGATIONS)
    return AGGREGATIONS[name](prompts, runs, groups)


def check_groups(name: str, prompts: Sequence[str], groups: Sequence[str]) -> None:
    """Check that every prompt has a group where groups are weighted.

    Raises:
        InputError: some have none.
    """
    lacking = [prompt for prompt, group in zip(prompts, groups) if not group]
    if name == EQUAL_WEIGHT and lacking:
        more = f" and {len(lacking) - 10} more" if len(lacking) > 10 else ""
        raise InputError(
            "prompts without a group cannot be averaged by groups",
            where="column prompt_group of the scores",
            expected="a group for every prompt",
            got=f"none for {', '.join(lacking[:10])}{more}",
            fix=f"name the groups, or aggregate the prompts as {POOLED_PROMPTS}",
        )


def group_sizes(groups: Iterable[str]) -> dict[str, int]:
    """Group -> number of its prompts, by name; empty where no prompt has a group."""
    return {name: count for name, count in sorted(Counter(groups).items()) if name}
