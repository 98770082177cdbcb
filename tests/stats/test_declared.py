"""What a design declares: margins by side, tiers of tests, pooling, the A/A arm, seeds planned."""

import numpy as np
import pyarrow as pa
import pytest
from test_compare import by_prompt, by_seed, expect_refusal, rows_of, table

from jagg.stats.compare import compare_arms
from jagg.stats.design import Design
from jagg.stats.equivalence import Margin, also, equivalence_p, verdict
from jagg.stats.estimates import Estimate, at_level, paired_t
from jagg.stats.plan import seed_plan
from jagg.stats.power import seeds_for_equivalence

D = np.array([0.0041, 0.0049, 0.0045, 0.0047, 0.0043])


def test_tost_with_asymmetric_margins() -> None:
    """Bounds -0.002 and 0.005: the upper test decides; -0.002 and 0.004: not shown, although 0.004 < 0.0041."""
    estimate = paired_t(D)
    assert equivalence_p(estimate, -0.002, 0.005) == pytest.approx(0.0120551, rel=1e-5)
    assert verdict(estimate, Margin(-0.002, 0.005)) == "equivalent"
    assert also(estimate, Margin(-0.002, 0.005)) == "different from 0 (above) and equivalent between -0.002 and 0.005"
    assert equivalence_p(estimate, -0.002, 0.004) > 0.98
    assert verdict(estimate, Margin(-0.002, 0.004)) == "superior"
    assert verdict(paired_t(-D), Margin(-0.002, 0.005)) == "inferior"


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (-0.002, 0.02, "non-inferior"),
        (-0.002, -0.001, "non-inferior"),
        (0.001, 9.0, "superior"),
        (-0.02, -0.001, "inferior"),
    ],
)
def test_a_one_sided_margin_never_gives_equivalence(low: float, high: float, word: str) -> None:
    estimate = Estimate((low + high) / 2, 1.0, 1.0, 2, low, high)
    assert verdict(estimate, Margin(-0.01, float("inf"))) == word
    assert ("non-inferior within 0.01" in also(estimate, Margin(-0.01, float("inf")))) == (word == "non-inferior")


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 0.0), (0.1, 0.2), (float("-inf"), 1.0), (float("nan"), 1.0)])
def test_bounds_that_are_no_margin(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="margin"):
        Margin(*bounds)


def cells(effects: dict[str, list[float]], seeds: dict[str, range] | None = None, **more: object) -> list[dict]:
    """Backbone -> the arm's differences over seeds from a reference at 0.3."""
    rows = []
    for backbone, differences in effects.items():
        names = (seeds or {}).get(backbone, range(len(differences)))
        runs = {"baseline": dict.fromkeys(names, 0.3), "jagg": {s: 0.3 + d for s, d in zip(names, differences)}}
        rows += by_seed(runs, backbone=backbone, **more)
    return rows


def pooled(rows: list[dict], **options: object) -> dict:
    (row,) = (row for row in rows_of(table(rows), **options) if row["backbone"] == "pooled")
    return row


A, B = [0.010, 0.012, 0.008, 0.011], [0.020, 0.024, 0.016, 0.022]


def test_pooled_rows_take_the_mean_over_cells_within_a_seed() -> None:
    row = pooled(cells({"flux": A, "qwen_image": B}))
    expected = paired_t((np.array(A) + np.array(B)) / 2)
    assert (row["ci_low"], row["ci_high"], row["df"]) == pytest.approx((expected.ci_low, expected.ci_high, 3))
    assert row["num_seeds"] == 4


def test_pooled_rows_use_seeds_that_every_cell_has() -> None:
    row = pooled(cells({"flux": A, "qwen_image": B[:3]}))
    assert row["num_seeds"] == 3
    assert row["difference"] == pytest.approx((np.mean(A[:3]) + np.mean(B[:3])) / 2)
    assert "not in every cell: seeds 3" in row["note"]


def test_disjoint_or_independent_cells_add_their_variances() -> None:
    disjoint = pooled(cells({"flux": A, "qwen_image": B}, {"flux": range(4), "qwen_image": range(4, 8)}))
    declared = pooled(cells({"flux": A, "qwen_image": B}), independent_cells=True)
    error = np.sqrt(np.var(A, ddof=1) / 4 + np.var(B, ddof=1) / 4) / 2
    for row in (disjoint, declared):
        assert row["ci_method"] == "Welch-Satterthwaite t over cells"
        assert row["standard_error"] == pytest.approx(error)
        assert (row["num_seeds"], row["sign_flip_p"]) == (8, None)
        assert row["mean_reference"] == pytest.approx(0.3)


def test_independent_cells_need_their_seeds_in_every_cell() -> None:
    """Four seeds in each of two cells are not the eight that each would need."""
    rows = cells({"flux": A, "qwen_image": B}, {"flux": range(4), "qwen_image": range(4, 8)})
    spread = np.linalg.norm([np.std(A, ddof=1), np.std(B, ddof=1)]) / 2
    margin = next(m for m in np.arange(0.002, 0.02, 1e-5) if seeds_for_equivalence(spread, m) == 6)
    row = pooled(rows, margins={"hpsv2": float(margin)})
    assert (row["num_seeds"], row["seeds_needed"]) == (8, 6)
    assert "these 4 seeds of a cell cannot be expected" in row["note"]
    assert "6 could" in row["note"]


def test_crossed_interval_of_cells_joins_prompts_by_name() -> None:
    rows = by_prompt([[0.01, 0.02], [0.03, 0.01], [0.02, 0.05]])
    other = [row | {"backbone": "qwen_image"} for row in rows]
    renamed = [row | {"prompt_id": {"p0": "p8", "p1": "p9"}[row["prompt_id"]]} for row in other]
    assert pooled(rows + other)["ci_low_crossed"] is not None
    assert pooled(rows + renamed)["ci_low_crossed"] is None


def two_metrics(p_like: dict[str, float]) -> pa.Table:
    """Two cells and metrics; a larger factor gives a smaller p."""
    rows = []
    for metric, factor in p_like.items():
        base = np.array([0.9, 1.1, 1.05, 0.95])
        spread = base - 1 + 1 / factor
        rows += cells({"flux": list(0.01 * spread), "qwen_image": list(0.01 * spread[::-1])}, metric=metric)
    return table(rows)


def test_tiers_hold_each_other_up() -> None:
    rows = rows_of(two_metrics({"hpsv2": 1.0, "pickscore": 2.0}), primary_metric="hpsv2", optimised_metrics=["hpsv2"])
    by_tier = {tier: [row for row in rows if row["family"] == tier] for tier in ("primary", "cells", "secondary")}
    assert {tier: len(members) for tier, members in by_tier.items()} == {"primary": 1, "cells": 2, "secondary": 3}
    (primary,) = by_tier["primary"]
    assert primary["p_holm"] == primary["p_value"]
    assert all(row["p_holm"] == pytest.approx(2 * row["p_value"]) for row in by_tier["cells"])
    for row in rows:
        assert row["ci_low_family"] < row["ci_low"]
        estimate = Estimate(row["difference"], 0.0, row["standard_error"], row["df"])
        assert at_level(estimate, 1 - 0.05 / 6) == pytest.approx((row["ci_low_family"], row["ci_high_family"]))
    closed = rows_of(two_metrics({"hpsv2": 500.0, "pickscore": 1.0}), primary_metric="hpsv2")
    gate = max(row["p_holm"] for row in closed if row["family"] != "secondary")
    assert gate > 0.5
    assert all(row["p_holm"] >= gate for row in closed if row["family"] == "secondary")


def test_a_test_that_could_not_be_done_counts_and_closes_the_gate() -> None:
    rows = cells({"flux": [0.01, 0.01, 0.01], "qwen_image": A[:3]}) + cells(
        {"flux": A, "qwen_image": B}, metric="other"
    )
    found = rows_of(table(rows), primary_metric="hpsv2")
    in_cells = {row["backbone"]: row for row in found if row["family"] == "cells"}
    assert in_cells["flux"]["p_holm"] is None
    assert in_cells["qwen_image"]["p_holm"] == pytest.approx(2 * in_cells["qwen_image"]["p_value"])
    assert {row["p_holm"] for row in found if row["family"] == "secondary"} == {1.0}


def test_sensitivity_columns() -> None:
    runs = {"baseline": {0: 0.30, 1: 0.32, 2: 0.31, 9: 0.35}, "jagg": {0: 0.31, 1: 0.34, 2: 0.31}}
    (row,) = rows_of(table(by_seed(runs)))
    assert (row["leave_one_seed_out_low"], row["leave_one_seed_out_high"]) == pytest.approx((0.005, 0.015))
    assert row["seed_correlation"] == pytest.approx(np.corrcoef([0.30, 0.32, 0.31], [0.31, 0.34, 0.31])[0, 1])
    centre = (row["ci_low_unpaired"] + row["ci_high_unpaired"]) / 2
    assert centre == pytest.approx(0.32 - 0.32)  # the unpaired means use every run, seed 9 too


def test_a_margin_beyond_what_training_gained_is_flagged() -> None:
    start = by_seed({"baseline": {0: 0.30, 1: 0.31, 2: 0.30}, "jagg": {0: 0.30, 1: 0.31, 2: 0.30}}, step=0)
    end = by_seed({"baseline": {0: 0.305, 1: 0.315, 2: 0.305}, "jagg": {0: 0.3055, 1: 0.315, 2: 0.3045}})
    wide = {row["step"]: row for row in rows_of(table(start + end), margins={"hpsv2": 0.02})}
    assert wide[10]["verdict"] == "equivalent"
    assert wide[10]["reference_gain"] == pytest.approx(0.005)
    assert "equivalent within 0.02" in wide[10]["note"]
    assert "margin exceeds what training gained (0.005)" in wide[10]["note"]
    assert wide[0]["reference_gain"] is None
    narrow = {row["step"]: row for row in rows_of(table(start + end), margins={"hpsv2": 0.004})}
    assert "margin exceeds" not in narrow[10]["note"]


def test_a_gain_below_the_aa_floor_is_not_called_an_improvement() -> None:
    runs = {
        "baseline": dict.fromkeys(range(3), 0.30), "again": {0: 0.304, 1: 0.296, 2: 0.301},
        "jagg": {0: 0.304, 1: 0.305, 2: 0.3045}, "strong": {0: 0.400, 1: 0.405, 2: 0.402},
    }  # fmt: skip
    rows = {row["arm"]: row for row in rows_of(table(by_seed(runs)), aa_arm="again")}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "again": "inconclusive", "jagg": "inconclusive", "strong": "superior",
    }  # fmt: skip
    assert rows["jagg"]["ci_low"] > 0
    assert rows["jagg"]["verdict_family"] == "inconclusive"
    assert rows["jagg"]["aa_floor"] == max(-rows["again"]["ci_low"], rows["again"]["ci_high"])
    with_margin = rows_of(table(by_seed(runs)), aa_arm="again", margins={"hpsv2": 0.005}, arms=["jagg"])
    assert [row["verdict"] for row in with_margin] == ["non-inferior"]
    assert "not an improvement" in rows["jagg"]["note"]
    assert "not an improvement" not in rows["strong"]["note"]
    assert "the reference with other noise" in rows["again"]["note"]
    expect_refusal(by_seed(runs), "unknown arm 'agin'", aa_arm="agin")


def test_a_loss_below_the_aa_floor_stays_a_loss_and_a_floor_that_is_not_there_is_named() -> None:
    runs = {
        "baseline": dict.fromkeys(range(3), 0.30), "again": {0: 0.304, 1: 0.296, 2: 0.301},
        "jagg": {0: 0.296, 1: 0.295, 2: 0.2955},
    }  # fmt: skip
    (row,) = rows_of(table(by_seed(runs)), aa_arm="again", arms=["jagg"])
    assert row["verdict"] == "inferior"
    assert "no larger than what other noise does" in row["note"]
    assert "improvement" not in row["note"]
    single = runs | {"again": {0: 0.304}, "jagg": {0: 0.304, 1: 0.305, 2: 0.3045}}
    (row,) = rows_of(table(by_seed(single)), aa_arm="again", arms=["jagg"])
    assert (row["verdict"], row["aa_floor"]) == ("superior", None)
    assert "no A/A floor here" in row["note"]


def test_families_of_several_arms_say_that_each_counts_its_own_tests() -> None:
    runs = {arm: {0: 0.3 + shift, 1: 0.31, 2: 0.32} for shift, arm in enumerate(("baseline", "jagg", "other"))}
    rows = rows_of(table(by_seed(runs, unit="points")))
    assert all("tests of this arm alone, of 2 arms" in row["note"] for row in rows)
    (alone,) = rows_of(table(by_seed(runs, unit="points")), arms=["jagg"])
    assert "arms" not in alone["note"]


def test_bands_hold_for_all_checkpoints_at_once() -> None:
    rng = np.random.default_rng(0)
    rows = by_seed({"baseline": dict.fromkeys(range(4), 0.3), "jagg": dict.fromkeys(range(4), 0.3)}, step=0)
    for step in (10, 20):
        rows += by_seed(
            {"baseline": dict.fromkeys(range(4), 0.3), "jagg": dict(enumerate(rng.normal(0.3, 0.01, 4)))}, step=step
        )
    compared = compare_arms(table(rows), Design("baseline"))
    bands = compared.curves().to_pylist()
    (differences,) = compared.arms.values()
    assert [band["num_checkpoints"] for band in bands] == [2, 2, 2]
    assert bands[0]["band_low"] is None
    for band, comparison in zip(bands[1:], differences[1:]):
        assert (band["band_low"], band["band_high"]) == pytest.approx(at_level(comparison.estimate, 0.975))


@pytest.mark.parametrize(("tests", "seeds"), [(3, 7), (6, 8), (12, 9)])
def test_the_planner_names_seeds_by_method(tests: int, seeds: int) -> None:
    flips, t, equivalence = seed_plan(tests, sd=0.004, difference=0.006, margins={"hpsv2": Margin(-0.01, 0.01)})
    assert flips["seeds"] == seeds
    one = seed_plan(1, sd=0.004, difference=0.006, margins={"hpsv2": 0.01})
    assert (t["seeds"], equivalence["seeds"]) > (one[1]["seeds"], one[2]["seeds"])
    scaled = seed_plan(tests, sd=4.0, difference=6.0, margins={"hpsv2": 10.0})
    assert [row["seeds"] for row in scaled] == [flips["seeds"], t["seeds"], equivalence["seeds"]]
