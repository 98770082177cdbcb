"""Advantages: which deviation divides, on how many rewards, and what happens without spread."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from jagg.algorithms.advantages import group_advantages, verify_groups, zero_spread
from jagg.errors import InputError

TWO_PROMPTS = torch.tensor([1, 2, 3, 10, 20, 30], dtype=torch.float64)


def test_group_deviation_and_batch_deviation_differ() -> None:
    group = group_advantages(TWO_PROMPTS, 3, correction=0)
    batch = group_advantages(TWO_PROMPTS, 3, deviation="batch", correction=0)
    assert group.tolist() == pytest.approx([-1.22474, 0, 1.22474] * 2, abs=1e-5)
    assert batch.tolist() == pytest.approx([-0.09339, 0, 0.09339, -0.93386, 0, 0.93386], abs=1e-5)
    assert TWO_PROMPTS.std(correction=0).item() == pytest.approx(10.70825, abs=1e-5)


def test_the_deviation_is_of_one_reward_a_sample_and_not_of_copies() -> None:
    rewards = torch.tensor([0.30, 0.32, 0.34, 0.36], dtype=torch.float64)
    for correction, deviation in ((1, 0.0258199), (0, 0.0223607)):
        advantages = group_advantages(rewards, 4, correction=correction)
        assert ((rewards - rewards.mean()) / advantages).tolist() == pytest.approx([deviation] * 4, rel=1e-5)
    assert rewards.repeat_interleave(10).std() / rewards.std() == pytest.approx(0.87706, rel=1e-5)


@pytest.mark.parametrize("deviation", ["group", "batch"])
def test_a_group_without_spread_has_no_advantage(deviation: str) -> None:
    # The mean of three 0.1 is not 0.1 in binary.
    rewards = torch.tensor([0.1, 0.1, 0.1, 0.1, 0.2, 0.3], dtype=torch.float32)
    advantages = group_advantages(rewards, 3, deviation=deviation)
    assert advantages[:3].tolist() == [0.0, 0.0, 0.0]
    assert advantages[3:].abs().max() > 0.5
    assert zero_spread(rewards, 3).tolist() == [True, False]


def test_advantages_are_clamped() -> None:
    rewards = torch.tensor([0.0] * 99 + [1.0], dtype=torch.float64)
    assert group_advantages(rewards, 100, adv_clip=5.0).max() == 5.0
    assert group_advantages(rewards, 100).max() > 9.0


# Rewards on a grid: differences far below the 1e-8 of the formula would not survive a shift.
grid = st.lists(st.integers(-1000, 1000), min_size=12, max_size=12)


@settings(deadline=None)
@given(grid, st.permutations(range(4)), st.integers(1, 50), st.integers(-50, 50))
def test_order_inside_a_group_scale_and_shift_change_nothing(
    values: list[int], order: list[int], scale: int, shift: int
) -> None:
    rewards = torch.tensor(values, dtype=torch.float64)
    advantages = group_advantages(rewards, 4)
    indices = torch.cat([torch.tensor(order) + 4 * group for group in range(3)])
    assert_close(group_advantages(rewards[indices], 4), advantages[indices])
    assert_close(group_advantages(scale * rewards + shift, 4), advantages, atol=1e-6, rtol=1e-6)
    assert advantages.reshape(3, 4).sum(dim=1).abs().max() < 1e-9


def test_whole_groups_pass() -> None:
    verify_groups([prompt for prompt in "abc" for _ in range(8)], 8)


def test_a_batch_of_nine_eight_and_seven_is_refused_with_its_prompts() -> None:
    with pytest.raises(InputError) as fault:
        verify_groups(["a"] * 9 + ["b"] * 8 + ["c"] * 7, 8)
    assert "a: 9, c: 7" in str(fault.value)


def test_right_counts_in_a_wrong_order_are_refused() -> None:
    with pytest.raises(InputError, match="mixed: a, b"):
        verify_groups(["a", "b"] * 8, 8)
