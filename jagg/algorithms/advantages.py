"""Advantages of groups of images (math.md 2)."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from jagg.errors import InputError


def verify_groups(prompt_ids: Sequence[str], group_size: int) -> None:
    """Check the batch that really came: every prompt has `group_size` images, side by side.

    Raises:
        InputError: a prompt has another number of images, or a group is torn apart.
    """
    counts = Counter(prompt_ids)
    wrong = {prompt: count for prompt, count in counts.items() if count != group_size}
    blocks = [prompt_ids[first : first + group_size] for first in range(0, len(prompt_ids), group_size)]
    torn = [] if wrong else sorted({prompt for block in blocks if len(set(block)) > 1 for prompt in block})
    if wrong or torn:
        raise InputError(
            "a batch does not hold whole groups",
            where="prompt ids of the batch",
            expected=f"{group_size} images of each prompt, side by side",
            got=", ".join(f"{prompt}: {count}" for prompt, count in wrong.items()) or "mixed: " + ", ".join(torn),
        )


def group_advantages(
    rewards: Float[Tensor, "batch"],
    group_size: int,
    *,
    deviation: Literal["group", "batch"] = "group",
    adv_clip: float = float("inf"),
    correction: int = 1,
) -> Float[Tensor, "batch"]:
    """A_i = (r_i - group mean) / (std + 1e-8), clamped to +- adv_clip; a group of equal rewards has A = 0.

    One reward a sample; images of a group lie side by side. `deviation`: the standard deviation of the group or of
    the whole batch; `correction`: 1 divides squares by n - 1, 0 by n (math.md 2).
    """
    groups = rewards.reshape(-1, group_size)
    spread = groups.std(dim=1, correction=correction, keepdim=True) if deviation == "group" else None
    if spread is None:
        spread = rewards.std(correction=correction)
    advantages = (groups - groups.mean(dim=1, keepdim=True)) / (spread + 1e-8)
    # The mean of equal numbers may be off by a rounding, which a zero deviation would blow up.
    advantages = torch.where(zero_spread(rewards, group_size)[:, None], 0.0, advantages)
    return advantages.clamp(-adv_clip, adv_clip).flatten()


def zero_spread(rewards: Float[Tensor, "batch"], group_size: int) -> torch.Tensor:
    """Which groups have equal rewards only, (groups,)."""
    groups = rewards.reshape(-1, group_size)
    return groups.amax(dim=1) == groups.amin(dim=1)
