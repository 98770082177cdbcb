"""Nodes and weights, routing, and the closed forms of the passes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from jagg.config import Arm, DanceGRPO, FlowGRPOFast, Routing
from jagg.cost.passes import Passes, passes_range
from jagg.cost.passes_table import ModelCost, passes_table
from jagg.errors import InputError
from jagg.flow.schedule import shifted_sigmas
from jagg.gradients import ESTIMATORS, estimator_of, schedule_of
from jagg.gradients.routing import is_exact, route
from jagg.gradients.window import Estimate, Window

DANCE = DanceGRPO(family="dancegrpo", sampling_steps=20, window=4, clip_range=1e-4)
JAGG = Arm(estimator="jagg", routing=Routing(jagg_frac={"dance": 0.6, "fast": 0.4}))
BASELINE = Arm(estimator="exact")


def window(sigmas: tuple[float, ...]) -> Window:
    states = torch.zeros(len(sigmas), 2, 3, 1)
    return Window(sigmas, states, states)


def estimate(name: str, sigmas: tuple[float, ...]) -> Estimate:
    return estimator_of(name).estimate(window(sigmas), torch.Generator())


lengths = st.integers(2, 20)


@settings(deadline=None)
@given(lengths, st.floats(0.5, 5.0))
def test_jagg_weights_share_each_signal_between_the_ends(length: int, shift: float) -> None:
    sigmas = shifted_sigmas(20, shift)[:length]
    made = estimate("jagg", sigmas)
    assert made.nodes == (0, length - 1)
    assert_close(made.weights.sum(dim=0), torch.ones(length, dtype=torch.float64))
    # Interpolation reproduces the noise level itself.
    ends = torch.tensor([sigmas[0], sigmas[-1]], dtype=torch.float64)
    assert_close(ends @ made.weights, torch.tensor(sigmas, dtype=torch.float64))


@settings(deadline=None)
@given(lengths)
def test_every_estimator_takes_the_nodes_that_its_closed_form_says(length: int) -> None:
    for name, estimator in ESTIMATORS.items():
        made = estimate(name, shifted_sigmas(20, 3.0)[:length])
        assert len(made.nodes) == len(set(made.nodes))
        assert made.weights.shape[:2] == (len(made.nodes), length)
        assert estimator.mean_nodes(window(shifted_sigmas(20, 3.0)[:length])) == pytest.approx(
            estimator.expected_nodes(length)
        )


def test_in_a_window_of_two_the_estimators_with_both_ends_are_one() -> None:
    for name in set(ESTIMATORS) - {"midpoint", "kriging"}:
        assert_close(estimate(name, (0.9, 0.7)).weights, torch.eye(2, dtype=torch.float64))


def test_weights_may_differ_between_samples() -> None:
    signals = torch.randn(3, 4, 5, 2, dtype=torch.float64)
    shared = torch.randn(2, 3, dtype=torch.float64)
    each = shared[:, :, None].repeat(1, 1, 6)
    each[:, :, 0] = 0.0
    wanted = Estimate((0, 2), shared).node_signals(signals, slice(0, 4))
    assert_close(Estimate((0, 2), each).node_signals(signals, slice(2, 6)), wanted)
    assert Estimate((0, 2), each).node_signals(signals, slice(0, 4))[:, 0].abs().max() == 0


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean 'endpoint_only'"):
        estimator_of("endpoints_only")
    with pytest.raises(InputError, match="unknown schedule 'nativ'"):
        schedule_of("nativ")


@pytest.mark.parametrize(("start", "approximate"), [(0, True), (8, True), (11, True), (12, False), (16, False)])
def test_routing_goes_by_the_place_in_the_trajectory(start: int, approximate: bool) -> None:
    assert is_exact(route(estimator_of("jagg"), start, 4, 20, 0.6)) is not approximate


def test_a_short_window_is_routed_to_exact() -> None:
    assert is_exact(route(estimator_of("jagg"), 0, 1, 20, 1.0))


def expected_passes(algorithm: DanceGRPO | FlowGRPOFast, arm: Arm, name: str, evaluations: int = 1) -> Passes:
    """Passes of an arm under its own schedule where the states have no say."""
    fewest, most = passes_range(algorithm, arm, name, arm.schedule, evaluations)
    assert fewest == most
    return most


def test_fourteen_passes_against_twenty() -> None:
    jagg, baseline = expected_passes(DANCE, JAGG, "dance"), expected_passes(DANCE, BASELINE, "dance")
    assert (jagg.windows_approximate, jagg.windows_exact) == (3, 2)
    assert (jagg.backward_passes, baseline.backward_passes) == (14, 20)
    # Native: the rollout's 20 forwards, then every transition again, the nodes with gradients.
    assert (jagg.forward_passes_grad, jagg.forward_passes_nograd) == (14, 26)
    assert (baseline.forward_passes_grad, baseline.forward_passes_nograd) == (20, 20)


def test_two_branch_guidance_doubles_every_pass() -> None:
    one, two = expected_passes(DANCE, JAGG, "dance"), expected_passes(DANCE, JAGG, "dance", 2)
    assert (two.backward_passes, two.forward_passes_grad, two.forward_passes_nograd) == (28, 28, 52)
    assert two.windows_exact == one.windows_exact


def test_the_dropped_last_transition_costs_no_pass() -> None:
    dropped = DANCE.model_copy(update={"drop_last": True})
    assert expected_passes(dropped, BASELINE, "dance").backward_passes == 19
    assert expected_passes(dropped, JAGG, "dance").backward_passes == 3 * 2 + 4 + 3


def test_counts_follow_the_resolved_list_of_trained_steps() -> None:
    fast = FlowGRPOFast(
        family="flow_grpo_fast", sampling_steps=16, window=4, clip_range=1e-4, sde_window_size=9,
        sde_window_range=(0, 16),
    )  # fmt: skip
    assert 8 * 12 * expected_passes(fast, BASELINE, "fast").backward_passes == 864


def test_the_fast_window_is_routed_by_where_it_was_drawn() -> None:
    fast = FlowGRPOFast(
        family="flow_grpo_fast", sampling_steps=10, window=4, clip_range=1e-4, sde_window_size=4,
        sde_window_range=(0, 10),
    )  # fmt: skip
    # Seven places; those that start at 0, 1, 2 and 3 lie before 0.4.
    assert expected_passes(fast, JAGG, "fast").backward_passes == pytest.approx((4 * 2 + 3 * 4) / 7)
    assert expected_passes(fast, JAGG, "fast").windows_approximate == pytest.approx(4 / 7)


def test_the_table_of_a_study() -> None:
    from analytic import analytic_study

    cost = ModelCost(10**12, 10**12, 2 * 10**12, activation_bytes=10**9, gradient_bytes=10**8)
    lines = passes_table(analytic_study(), {"flux": cost}).splitlines()
    assert lines[1].split() == ["flux", "dance", "baseline", "3", "0", "10", "20", "1", "40"]
    assert lines[3].split() == ["flux", "dance", "jagg", "3", "2", "6", "20", "1.667", "32"]
    assert len([line for line in lines if line.startswith("flux")]) == 6 + 6 * 4
    chosen = {tuple(line.split()[1:4]): line.split()[4:] for line in lines if line.startswith("flux")}
    # T = 10, windows of 4, 4 and 2, the first two approximated; 12 images that go through together.
    assert chosen["dance", "jagg", "native*"] == ["20", "6", "32", "1.25", "12", "0.1"]
    assert chosen["dance", "jagg", "reuse"] == ["16", "6", "28", "1.429", "12", "0.1"]
    assert chosen["dance", "jagg", "retain"] == ["10", "6", "22", "1.818", "72", "0.1"]
    assert chosen["dance", "jagg", "reweight"] == ["10", "6", "22", "1.818", "24", "1.3"]
    assert chosen["dance", "baseline", "reweight"][-2:] == ["48", "1.3"]
    assert passes_table(analytic_study(), {}).splitlines()[1].split()[-1] == "unknown"


COST = ModelCost(10**12, 10**12, 2 * 10**12, activation_bytes=10**9, gradient_bytes=10**8)
CONFIDENT = {"estimator": "jagg", "routing": {"jagg_frac": 0.6, "router": "confidence", "max_residual": 0.1}}
PROXY = {"estimator": "debiased", "debiased": {"draw": "proxy"}, "routing": {"jagg_frac": 0.6}}
BY_RESIDUAL = {"estimator": "debiased", "debiased": {"full_residual": 0.1}, "routing": {"jagg_frac": 0.6}}


def table_cells(arm: dict, **changes: object) -> dict[tuple[str, ...], list[str]]:
    from analytic import analytic_study

    study = analytic_study(arms={"baseline": {"estimator": "exact"}, "arm": arm}, **changes)
    lines = [line.split() for line in passes_table(study, {"flux": COST}).splitlines() if line.startswith("flux")]
    return {tuple(line[1:-6]): line[-6:] for line in lines}


@pytest.mark.parametrize(("arm", "approximate", "backward", "ratio", "flops"), [
    # T = 10, windows of 4, 4 and 2, the first two by the estimator: 2 or 4 nodes; 2.025 to 2.5 nodes.
    (CONFIDENT, "0-2", "6-10", "1-1.667", "32-40"),
    (BY_RESIDUAL, "2", "6.05-7", "1.429-1.653", "32.1-34"),
    (PROXY, "2", "7", "1.429", "34"),
])  # fmt: skip
def test_passes_that_the_states_decide_are_a_range(
    arm: dict, approximate: str, backward: str, ratio: str, flops: str
) -> None:
    assert table_cells(arm)["dance", "arm"] == ["3", approximate, backward, "20", ratio, flops]


@pytest.mark.parametrize(("arm", "graphs"), [
    # 12 images that go through together; a window decided by its states makes all of its graphs.
    (CONFIDENT, {"native": 12, "reuse": 12, "retain": 120, "reweight": 48}),
    (BY_RESIDUAL, {"native": 12, "reuse": 12, "retain": 96, "reweight": 48}),
    (PROXY, {"native": 12, "reuse": 12, "retain": 96, "reweight": 48}),
])  # fmt: skip
def test_memory_is_that_of_the_states_that_need_most(arm: dict, graphs: dict[str, int]) -> None:
    cells = table_cells(arm)
    found = {name: cells["dance", "arm", name + "*" * (name == "native")][-2] for name in graphs}
    assert found == {name: str(count) for name, count in graphs.items()}


def test_an_arm_that_gives_way_to_native_is_shown_as_trained() -> None:
    from analytic import analytic_study

    study = analytic_study(
        arms__jagg__schedule="retain",
        arms__jagg__off_policy="native",
        training__optimizer_steps_per_rollout=3,
        training__micro_batch_size=4,
    )
    text = passes_table(study, {"flux": COST})
    rows = [line.split() for line in text.splitlines() if line.startswith("flux")]
    assert {row[3] for row in rows if len(row) == 10} == {"native*"}
    assert next(row for row in rows if row[1:3] == ["dance", "jagg"])[-1] == "32"
    assert "jagg: by native instead of retain, which 3 optimizer steps a rollout do not allow" in text
