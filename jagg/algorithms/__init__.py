"""Algorithms by family: which transitions are stochastic and trained; advantages and objective."""

from collections.abc import Callable
from typing import Any

from jagg.algorithms.dancegrpo import dancegrpo_plans
from jagg.algorithms.flow_grpo_fast import flow_grpo_fast_plans
from jagg.config import Algorithm
from jagg.errors import unknown_name
from jagg.flow.schedule import TransitionPlan

ALGORITHMS: dict[str, Callable[[Any], tuple[TransitionPlan, ...]]] = {
    "dancegrpo": dancegrpo_plans,
    "flow_grpo_fast": flow_grpo_fast_plans,
}
"""Family -> the equally likely plans of a training step; the step's stream draws one."""


def plans(config: Algorithm) -> tuple[TransitionPlan, ...]:
    """The equally likely transition plans of an algorithm's training step.

    Raises:
        InputError: unknown family.
    """
    family = getattr(config, "family", type(config).__name__)
    if family not in ALGORITHMS:
        raise unknown_name("algorithm family", family, ALGORITHMS)
    return ALGORITHMS[family](config)
