"""The mix of the reward and its parts."""

import numpy as np
import pytest

from jagg.config import Reward
from jagg.errors import InputError
from jagg.train.rewards import mixed

PARTS = {"hps": np.array([0.30, 0.31, 0.32, 0.33]), "pick": np.array([22.0, 21.0, 20.0, 19.0])}
WEIGHTS = {"hps": 1.0, "pick": 1.0}


def test_a_raw_sum_is_led_by_the_metric_with_the_larger_spread() -> None:
    rewards = mixed(PARTS, Reward(mix="raw_weighted_sum", weights=WEIGHTS))
    assert np.corrcoef(rewards.total, PARTS["pick"])[0, 1] == pytest.approx(1.0)
    assert np.corrcoef(rewards.total, PARTS["hps"])[0, 1] == pytest.approx(-1.0)
    summary = rewards.summary()
    assert summary["hps"] == {"mean": pytest.approx(0.315), "std": pytest.approx(0.0129099, rel=1e-5)}
    assert summary["pick"]["std"] == pytest.approx(1.290994, rel=1e-5)


def test_a_standardised_sum_weighs_both_alike() -> None:
    rewards = mixed(PARTS, Reward(mix="standardised_weighted_sum", weights=WEIGHTS))
    assert rewards.total == pytest.approx(np.zeros(4), abs=1e-12)
    doubled = mixed(PARTS, Reward(mix="standardised_weighted_sum", weights={"hps": 2.0, "pick": 1.0}))
    assert np.corrcoef(doubled.total, PARTS["hps"])[0, 1] == pytest.approx(1.0)


def test_a_metric_without_spread_adds_nothing_when_standardised() -> None:
    flat = PARTS | {"pick": np.full(4, 20.1)}
    rewards = mixed(flat, Reward(mix="standardised_weighted_sum", weights=WEIGHTS))
    assert rewards.total == pytest.approx(np.array([-1.161895, -0.387298, 0.387298, 1.161895]), rel=1e-5)


def test_weights_apply() -> None:
    rewards = mixed(PARTS, Reward(weights={"hps": 0.5, "pick": 0.25}))
    assert rewards.total == pytest.approx(0.5 * PARTS["hps"] + 0.25 * PARTS["pick"])


def test_an_unnamed_mix_is_refused() -> None:
    with pytest.raises(InputError, match="unknown reward mix"):
        mixed(PARTS, Reward.model_construct(mix="sum", weights=WEIGHTS))
