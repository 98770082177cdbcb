"""Ratios of costs, quality at equal cost, and runs that are missing."""

import numpy as np
import pytest
from test_compare import by_seed, table

from jagg.records import table_of
from jagg.stats.attrition import attrition_rows
from jagg.stats.compare import Compared, compare_arms
from jagg.stats.costs import COUNTS, EXACT, LOG_T, TIMES, cost_rows, log_ratio
from jagg.stats.design import Design
from jagg.stats.equal_cost import equal_cost_rows, read_at
from jagg.stats.tables import ATTRITION, COSTS, EQUAL_COST

CELL = ("flux", "dancegrpo")
DESIGN = Design("baseline", margins={"hpsv2": 0.05})


def test_log_ratio_is_equivariant_and_inverts() -> None:
    arm, reference = np.array([8.0, 8.4, 7.9]), np.array([10.0, 10.1, 10.3])
    forth, back, minutes = log_ratio(arm, reference), log_ratio(reference, arm), log_ratio(60 * arm, 60 * reference)
    assert (1 / back.ci_high, 1 / back.ci_low) == pytest.approx((forth.ci_low, forth.ci_high))
    assert (minutes.ci_low, minutes.ci_high) == pytest.approx((forth.ci_low, forth.ci_high))
    assert forth.mean == pytest.approx(np.exp(np.mean(np.log(arm / reference))))
    assert not log_ratio(np.array([0.0, 1.0]), np.array([1.0, 1.0])).estimable


def costs(passes: dict[str, list[int]], seconds: dict[str, list[float]]) -> dict:
    return {
        (CELL, arm, seed): dict.fromkeys(COUNTS, count) | dict.fromkeys(TIMES, seconds[arm][seed])
        for arm, counts in passes.items()
        for seed, count in enumerate(counts)
    }


def test_counts_have_an_exact_ratio_and_times_an_interval() -> None:
    given = costs(
        {"baseline": [2000] * 3, "jagg": [1400] * 3}, {"baseline": [10.0, 11.0, 10.5], "jagg": [8.0, 8.9, 8.2]}
    )
    rows = {row["quantity"]: row for row in table_of(cost_rows(given, ["jagg"], DESIGN), COSTS).to_pylist()}
    assert set(rows) == {*COUNTS, *TIMES}
    passes, seconds = rows["backward_passes"], rows["update_s"]
    assert (passes["ratio"], passes["ratio_low"], passes["ci_level"], passes["method"]) == (0.7, None, None, EXACT)
    assert seconds["ratio_low"] < seconds["ratio"] < seconds["ratio_high"] < 1
    assert seconds["method"] == LOG_T


def test_counts_that_vary_by_seed_say_so_and_one_run_has_no_interval() -> None:
    given = costs({"baseline": [100, 100], "jagg": [50, 100]}, {"baseline": [1.0, 1.0], "jagg": [0.5, 0.5]})
    rows = {row["quantity"]: row for row in cost_rows(given, ["jagg"], DESIGN)}
    assert rows["backward_passes"]["ratio"] == 0.75
    assert "0.5 to 1 over seeds" in rows["backward_passes"]["note"]
    assert (rows["step_s"]["ratio"], rows["step_s"]["ratio_low"]) == (0.5, None)
    assert "no spread" in rows["step_s"]["note"]
    unknown = {key: value | {"update_s": None} for key, value in given.items()}
    (row,) = (row for row in cost_rows(unknown, ["jagg"], DESIGN) if row["quantity"] == "update_s")
    assert row["ratio"] is None
    assert "unknown cost" in row["note"]


def compared(values: dict[int, dict[str, dict[int, float]]]) -> Compared:
    return compare_arms(table([row for step, runs in values.items() for row in by_seed(runs, step=step)]), DESIGN)


CURVE = {
    0: {"baseline": {0: 0.30, 1: 0.30, 2: 0.30}, "jagg": {0: 0.30, 1: 0.30, 2: 0.30}},
    10: {"baseline": {0: 0.40, 1: 0.42, 2: 0.38}, "jagg": {0: 0.39, 1: 0.40, 2: 0.38}},
    20: {"baseline": {0: 0.50, 1: 0.54, 2: 0.46}, "jagg": {0: 0.48, 1: 0.50, 2: 0.46}},
}


def spent(passes: dict[str, int]) -> dict:
    """Every run spends the same at each training step."""
    return {
        (CELL, arm, seed): {
            "trained_steps": {step: float(step) for step in range(21)},
            "backward_passes": {step: float(each * step) for step in range(21)},
            "wall_clock_s": {step: float(step) for step in range(21)} if seed < 2 else {},
        }
        for arm, each in passes.items()
        for seed in range(3)
    }


def test_both_arms_are_read_where_they_have_spent_the_same() -> None:
    result = compared(CURVE)
    rows = table_of(equal_cost_rows(result.joined, spent({"baseline": 20, "jagg": 14}), ["jagg"], DESIGN), EQUAL_COST)
    found = {(row["budget"], row["step"]): row for row in rows.to_pylist()}
    by_steps, by_passes = found["trained_steps", 20], found["backward_passes", 20]
    assert by_steps["difference"] == pytest.approx(np.mean([-0.02, -0.04, 0.0]))
    assert by_steps["note"] == ""
    assert (by_passes["spent_low"], by_passes["spent_high"]) == (280, 280)
    # 280 passes are 14 of the baseline's steps: 0.4 of the way from its checkpoint 10 to 20
    reference = [0.40 + 0.4 * 0.10, 0.42 + 0.4 * 0.12, 0.38 + 0.4 * 0.08]
    assert by_passes["mean_reference"] == pytest.approx(np.mean(reference))
    assert by_passes["difference"] == pytest.approx(0.48 - np.mean(reference))
    assert by_passes["note"].startswith("baseline: between checkpoints")
    unknown = found["wall_clock_s", 20]
    assert (unknown["difference"], unknown["note"]) == (None, "not estimable: cost not known for seeds 2")


def test_no_score_is_read_outside_the_checkpoints() -> None:
    curve = (np.array([10.0, 20.0]), np.array([0.3, 0.4]))
    assert read_at(curve, 15.0) == pytest.approx(0.35)
    assert np.isnan(read_at(curve, 9.9))
    assert np.isnan(read_at(curve, 20.1))
    late = compared({step: runs for step, runs in CURVE.items() if step})
    rows = equal_cost_rows(late.joined, spent({"baseline": 20, "jagg": 14}), ["jagg"], DESIGN)
    (row,) = (row for row in rows if (row["budget"], row["step"]) == ("backward_passes", 10))
    assert row["difference"] is None
    assert "outside a run's checkpoints" in row["note"]


def statuses(**lost: str) -> dict:
    found = {(CELL, arm, seed): "complete" for arm in ("baseline", "jagg") for seed in range(4)}
    return found | {(CELL, name.split("_")[0], int(name.split("_")[1])): status for name, status in lost.items()}


def test_runs_that_are_missing_have_a_worst_and_a_best_case() -> None:
    runs = {
        0: {"baseline": dict.fromkeys(range(4), 0.30), "jagg": dict.fromkeys(range(3), 0.30)},
        20: {"baseline": {0: 0.40, 1: 0.41, 2: 0.42, 3: 0.41}, "jagg": {0: 0.41, 1: 0.42, 2: 0.431}},
    }
    result = compared(runs)
    args = (result.arms, result.joined, statuses(jagg_3="diverged"), DESIGN)
    (row,) = table_of(attrition_rows(*args), ATTRITION).to_pylist()
    assert (row["attempted_arm"], row["finished_arm"], row["diverged_arm"], row["excluded_reference"]) == (4, 3, 1, 1)
    assert (row["num_seeds"], row["num_imputed"], row["step"]) == (3, 1, 20)
    assert row["worst_difference"] == pytest.approx((0.01 + 0.01 + 0.011 + (0.30 - 0.41)) / 4)
    assert row["best_difference"] == pytest.approx((0.01 + 0.01 + 0.011 + (0.431 - 0.41)) / 4)
    assert (row["verdict"], row["worst_case_verdict"]) == ("equivalent", "inconclusive")


def test_a_gain_below_the_aa_floor_is_no_improvement_in_the_account_of_runs_either() -> None:
    again, ours = {0: 0.304, 1: 0.296, 2: 0.301}, {0: 0.304, 1: 0.305, 2: 0.3045}
    runs = table(by_seed({"baseline": dict.fromkeys(range(3), 0.30), "again": again, "jagg": ours}))
    design = Design("baseline", aa_arm="again")
    result = compare_arms(runs, design, ["jagg"])
    (row,) = attrition_rows(result.arms, result.joined, {}, design)
    assert row["ci_low"] > 0
    assert (row["verdict"], row["worst_case_verdict"]) == ("inconclusive", "inconclusive")


def test_with_all_runs_there_the_worst_case_is_the_case() -> None:
    result = compared(CURVE)
    complete = {key: status for key, status in statuses().items() if key[2] < 3}
    (row,) = attrition_rows(result.arms, result.joined, complete, DESIGN)
    assert (row["worst_ci_low"], row["worst_ci_high"]) == (row["ci_low"], row["ci_high"])
    assert row["worst_case_verdict"] == row["verdict"]
    assert row["note"] == "no run is missing"
