"""Which transitions are stochastic, trained and grouped."""

import pytest

from jagg.algorithms import ALGORITHMS, plans
from jagg.config import Algorithm, DanceGRPO, FlowGRPOFast
from jagg.errors import InputError


def dance(**changes: object) -> DanceGRPO:
    return DanceGRPO(**({"family": "dancegrpo", "sampling_steps": 20, "window": 4, "clip_range": 1e-4} | changes))


def fast(**changes: object) -> FlowGRPOFast:
    settings = {
        "family": "flow_grpo_fast", "sampling_steps": 10, "window": 4, "clip_range": 1e-4, "sde_window_size": 4,
        "sde_window_range": (0, 10),
    }  # fmt: skip
    return FlowGRPOFast(**(settings | changes))


def test_dancegrpo_trains_every_transition_in_windows() -> None:
    (plan,) = plans(dance())
    assert plan.trained == tuple(range(20))
    assert plan.diffusion == (0.3,) * 20
    assert plan.windows == tuple(tuple(range(start, start + 4)) for start in range(0, 20, 4))


def test_drop_last_leaves_a_short_last_window_and_keeps_the_noise() -> None:
    (plan,) = plans(dance(drop_last=True))
    assert plan.trained == tuple(range(19))
    assert plan.windows[-1] == (16, 17, 18)
    assert plan.diffusion[19] == 0.3


def test_the_fast_window_takes_every_place_of_its_range_once() -> None:
    each = plans(fast(sde_window_range=(2, 9)))
    assert [plan.trained for plan in each] == [(2, 3, 4, 5), (3, 4, 5, 6), (4, 5, 6, 7), (5, 6, 7, 8)]
    for plan in each:
        assert [j for j, g in enumerate(plan.diffusion) if g > 0] == list(plan.trained)
        assert [j for window in plan.windows for j in window] == list(plan.trained)


def test_a_wide_fast_window_is_cut_into_windows() -> None:
    plan = plans(fast(sde_window_size=9))[1]
    assert plan.windows == ((1, 2, 3, 4), (5, 6, 7, 8), (9,))


def test_quantised_timesteps_are_an_option() -> None:
    (plan,) = plans(dance(quantise_timestep=True, sampling_steps=14))
    assert plan.model_sigmas[1] == int(1000 * plan.sigmas[1]) / 1000 != plan.sigmas[1]
    (plan,) = plans(dance())
    assert plan.model_sigmas == plan.sigmas[:-1]


def test_an_unknown_family_is_refused() -> None:
    class Other(Algorithm):
        family: str = "dancegrp"

    with pytest.raises(InputError, match="did you mean 'dancegrpo'"):
        plans(Other(sampling_steps=4, window=2, clip_range=0.1))
    assert set(ALGORITHMS) == {"dancegrpo", "flow_grpo_fast"}
