"""The comparison of long tables: joins, refusals, and what is printed at few seeds."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from jagg.errors import InputError
from jagg.records import PAIRED_DIFFERENCES, SCORES, read_table, write_table
from jagg.stats.compare import compare
from jagg.stats.dictionary_encoding import Coded, combined
from jagg.stats.join import read_scores

DEFAULT = {
    "backbone": "flux", "algorithm": "dancegrpo", "step": 10, "prompt_id": "a", "image_index": 0, "metric": "hpsv2",
    "unit": "cosine", "scorer": "hpsv2@1", "signature": "s", "environment": "e", "prompt_group": "g",
    "truncated": False,
}  # fmt: skip


def table(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist([DEFAULT | row for row in rows], schema=SCORES)


def by_seed(values: dict[str, dict[int, float]], **more: object) -> list[dict]:
    return [
        {"arm": arm, "seed": seed, "value": value, **more} for arm, run in values.items() for seed, value in run.items()
    ]


def by_prompt(differences: list[list[float]]) -> list[dict]:
    """Reference 0.3 everywhere; the arm's differences by seed and prompt."""
    return [
        {"arm": arm, "seed": seed, "prompt_id": f"p{p}", "value": 0.3 + (d if arm == "jagg" else 0.0)}
        for arm in ("baseline", "jagg")
        for seed, row in enumerate(differences)
        for p, d in enumerate(row)
    ]


def rows_of(scores: pa.Table, **options: object) -> list[dict]:
    return compare(scores, reference="baseline", **options).to_pylist()


def test_only_shared_seeds_count() -> None:
    (row,) = rows_of(table(by_seed({"baseline": {0: 0.300, 1: 0.340}, "jagg": {1: 0.330, 2: 0.360}})))
    assert row["difference"] == pytest.approx(-0.010)
    assert row["num_seeds"] == 1
    assert row["verdict"] == "not-estimable"
    assert (row["ci_low"], row["p_value"], row["sign_flip_p"], row["p_holm"]) == (None,) * 4
    assert "n = 1" in row["note"]
    assert "only in jagg: seeds 2" in row["note"]
    assert "only in baseline: seeds 0" in row["note"]


def test_disjoint_seeds_have_no_difference_at_all() -> None:
    (row,) = rows_of(table(by_seed({"baseline": {0: 0.3}, "jagg": {1: 0.4}})))
    assert (row["num_seeds"], row["difference"], row["mean_arm"], row["verdict"]) == (0, None, None, "not-estimable")
    assert "no shared seed" in row["note"]


def test_a_single_run_against_many_is_named() -> None:
    (row,) = rows_of(table(by_seed({"baseline": dict.fromkeys(range(5), 0.3), "jagg": {0: 0.4}})))
    assert (row["sd_difference"], row["ci_low"]) == (None, None)
    assert "jagg has a single seed" in row["note"]


def test_prompts_are_not_replicates() -> None:
    differences = [[0.016, 0.018, 0.017, 0.017], [0.006, 0.008, 0.007, 0.007], [-0.003, -0.001, -0.002, -0.002]]
    (row,) = rows_of(table(by_prompt(differences)))
    assert (row["num_seeds"], row["num_prompts"], row["num_images"]) == (3, 4, 4)
    assert row["difference"] == pytest.approx(0.00733, abs=1e-5)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((-0.01628, 0.03094), abs=1e-5)
    assert row["p_value"] == pytest.approx(0.313, abs=1e-3)
    assert row["sign_flip_p"] == 0.5
    assert (row["sign_flip_floor"], row["sign_flip_arrangements"]) == (0.25, 8)
    assert row["verdict"] == "inconclusive"


def test_prompts_added_in_copies_do_not_narrow_the_interval() -> None:
    differences = [[0.016, 0.018], [0.006, 0.008], [-0.003, -0.001]]
    (once,) = rows_of(table(by_prompt(differences)))
    (thrice,) = rows_of(table(by_prompt([row * 3 for row in differences])))
    assert (once["ci_low"], once["ci_high"]) == pytest.approx((thrice["ci_low"], thrice["ci_high"]))


def test_prompts_weigh_equally_whatever_their_images() -> None:
    rows = [
        {
            "arm": arm,
            "seed": seed,
            "prompt_id": prompt,
            "image_index": i,
            "value": 0.3 + (arm == "jagg") * effect + seed / 50,
        }
        for arm in ("baseline", "jagg")
        for seed in (0, 1)
        for prompt, images, effect in (("a", 3, 0.1), ("b", 1, 0.2))
        for i in range(images)
    ]
    assert rows_of(table(rows))[0]["difference"] == pytest.approx(0.15)


def random_scores(num_seeds: int = 4, effect: float = 0.01) -> pa.Table:
    rng = np.random.default_rng(0)
    return table(
        [
            {
                "backbone": backbone, "arm": arm, "seed": seed, "step": step, "prompt_id": f"p{p}", "metric": metric,
                "value": float(0.3 + effect * (arm == "jagg") * (step > 0) + 0.01 * rng.normal()),
            }
            for backbone in ("flux", "qwen_image")
            for arm in ("baseline", "jagg", "ablation")
            for seed in range(num_seeds)
            for step in (0, 10)
            for p in range(3)
            for metric in ("hpsv2", "pickscore")
        ]
    )  # fmt: skip


def test_row_order_changes_nothing() -> None:
    scores = random_scores()
    shuffled = scores.take(pa.array(np.random.default_rng(1).permutation(len(scores))))
    assert compare(scores, reference="baseline").equals(compare(shuffled, reference="baseline"))


def test_swapping_the_arms_flips_the_signs() -> None:
    scores = random_scores()
    forth = compare(scores, arms=["jagg"], reference="baseline", margins={"hpsv2": 0.02}).to_pylist()
    back = compare(scores, arms=["baseline"], reference="jagg", margins={"hpsv2": 0.02}).to_pylist()
    for a, b in zip(forth, back):
        assert (a["difference"], a["ci_low"], a["ci_high"]) == pytest.approx(
            (-b["difference"], -b["ci_high"], -b["ci_low"])
        )
        assert a["p_value"] == pytest.approx(b["p_value"])
        assert a["p_equivalence"] == pytest.approx(b["p_equivalence"])


def test_columns_roles_families_and_pooled_rows() -> None:
    result = compare(random_scores(), reference="baseline", optimised_metrics=["hpsv2"], margins={"hpsv2": 0.02})
    assert result.schema == PAIRED_DIFFERENCES
    rows = result.to_pylist()
    assert len(rows) == 2 * (2 + 1) * 2 * 2  # arms x (cells + pooled) x metrics x checkpoints
    assert {(row["metric"], row["role"]) for row in rows} == {("hpsv2", "optimised"), ("pickscore", "held_out")}
    for row in rows:
        pooled, optimised = row["backbone"] == "pooled", row["metric"] == "hpsv2"
        tier, size = ("primary", 1) if pooled and optimised else ("cells", 2) if optimised else ("secondary", 3)
        expected = (tier, size, 6) if row["step"] == 10 else ("exploratory", None, None)
        assert (row["family"], row["family_size"], row["family_tests"]) == expected
        assert (row["p_holm"] is None) == (row["ci_low_family"] is None) == (row["step"] == 0)
        assert (row["margin"] is None) == (row["metric"] == "pickscore")
        assert row["smallest_detectable"] > 0
    for row in (row for row in rows if row["backbone"] == "pooled"):
        place = ("arm", "metric", "step")
        cells = [r for r in rows if r["backbone"] != "pooled" and all(r[name] == row[name] for name in place)]
        assert row["difference"] == pytest.approx(np.mean([cell["difference"] for cell in cells]))
        assert row["ci_method"] == "t, paired by seed, of the mean over cells"


def test_arms_equal_at_step_0_are_not_estimable_and_not_zero_p() -> None:
    values = {0: 0.3, 1: 0.31, 2: 0.32}
    (row,) = rows_of(table(by_seed({"baseline": values, "jagg": values})))
    assert row["difference"] == 0.0
    assert (row["p_value"], row["ci_low"], row["verdict"]) == (None, None, "not-estimable")
    assert "no spread" in row["note"]


def test_a_score_that_is_not_finite_is_named() -> None:
    (row,) = rows_of(table(by_seed({"baseline": {0: 0.3, 1: 0.31}, "jagg": {0: 0.4, 1: float("nan")}})))
    assert (row["difference"], row["mean_arm"], row["verdict"]) == (None, None, "not-estimable")
    assert row["mean_reference"] == pytest.approx(0.305)
    assert "not finite in jagg: seeds 1" in row["note"]


def test_arms_of_unequal_length_are_compared_where_both_are() -> None:
    long = [r for step in (0, 150, 300) for r in by_seed({"baseline": {0: 0.3, 1: 0.31 + step / 1e4}}, step=step)]
    short = [r for step in (0, 150) for r in by_seed({"jagg": {0: 0.3, 1: 0.32}}, step=step)]
    rows = {row["step"]: row for row in rows_of(table(long + short))}
    assert (rows[300]["num_seeds"], rows[300]["difference"]) == (0, None)
    assert "no shared seed" in rows[300]["note"]
    assert rows[150]["family_size"] == 1
    assert rows[300]["family_size"] is None


def test_a_margin_out_of_reach_says_so_and_how_many_seeds_would_do() -> None:
    scores = table(by_seed({"baseline": {0: 0.3, 1: 0.31, 2: 0.32}, "jagg": {0: 0.31, 1: 0.30, 2: 0.325}}))
    (row,) = rows_of(scores, margins={"hpsv2": 0.005})
    assert row["seeds_needed"] > 3
    assert "cannot be expected to show equivalence within 0.005" in row["note"]


def expect_refusal(rows: list[dict], *texts: str, **options: object) -> None:
    with pytest.raises(InputError) as error:
        rows_of(table(rows), **options)
    for text in texts:
        assert text in str(error.value)


def test_unmatched_prompts_are_refused_by_name() -> None:
    rows = [
        {"arm": arm, "seed": 0, "prompt_id": prompt, "value": 0.3}
        for arm, prompts in (("baseline", "abc"), ("jagg", "bcd"))
        for prompt in prompts
    ]
    expect_refusal(rows, "only in baseline: a", "only in jagg: d", "seed 0")


def test_unmatched_images_are_refused_by_name() -> None:
    rows = by_seed({"baseline": {0: 0.3}, "jagg": {0: 0.3}}) + by_seed({"jagg": {0: 0.3}}, image_index=7)
    expect_refusal(rows, "only in jagg: a image 7")


def test_rows_that_stand_twice_are_refused() -> None:
    rows = by_seed({"baseline": {0: 0.3, 1: 0.2}, "jagg": {0: 0.3}})
    expect_refusal([*rows, rows[0]], "stand twice", "'seed': 0", "'arm': 'baseline'")


@pytest.mark.parametrize("name", ["scorer", "signature", "environment", "prompt_group"])
def test_mixed_provenance_is_refused(name: str) -> None:
    rows = by_seed({"baseline": {0: 0.3}}) + by_seed({"jagg": {0: 0.3}}, **{name: "other"})
    expect_refusal(rows, f"more than one {name}", DEFAULT[name], "other")


def test_sizes_are_never_averaged() -> None:
    """One arm was evaluated at two sizes, the other at one."""
    rows = by_seed({"baseline": {0: 0.3}, "jagg": {0: 0.3}}, signature="1024px")
    rows += by_seed({"jagg": {0: 0.4}}, signature="512px", image_index=1)
    expect_refusal(rows, "more than one signature", "1024px", "512px")


def test_provenance_of_an_arm_that_is_not_compared_does_not_matter() -> None:
    rows = by_seed({"baseline": {0: 0.3}, "jagg": {0: 0.3}}) + by_seed({"third": {0: 0.3}}, scorer="other")
    assert rows_of(table(rows), arms=["jagg"])


def test_a_cosine_on_another_scale_is_refused() -> None:
    expect_refusal(by_seed({"baseline": {0: 0.85}, "jagg": {0: 21.9}}), "outside the range", "21.9")


def test_an_unknown_arm_is_refused() -> None:
    rows = by_seed({"baseline": {0: 0.3}, "jagg": {0: 0.3}})
    expect_refusal(rows, "unknown arm 'jag'", "did you mean 'jagg'", arms=["jag"])
    expect_refusal(rows, "nothing to compare", arms=["baseline"])


def test_an_empty_key_is_refused() -> None:
    expect_refusal(
        [*by_seed({"baseline": {0: 0.3}, "jagg": {0: 0.3}}), {"arm": "jagg", "seed": None, "value": 0.1}], "column seed"
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_foreign_long_tables_need_only_the_columns_of_the_contract(tmp_path: Path, suffix: str) -> None:
    scores = table(by_seed({"baseline": {0: 0.3, 1: 0.31}, "jagg": {0: 0.32, 1: 0.35}}, prompt_id="007"))
    for arm in ("baseline", "jagg"):
        part = scores.filter(pa.compute.equal(scores["arm"], arm)).drop_columns(["signature", "environment"])
        write_table(tmp_path / f"{arm}.{suffix}", part)
    read = read_scores([tmp_path / f"baseline.{suffix}", tmp_path / f"jagg.{suffix}"])
    assert set(read["prompt_id"].to_pylist()) == {"007"}
    assert compare(read, reference="baseline").equals(compare(scores, reference="baseline"))


def test_the_table_survives_csv(tmp_path: Path) -> None:
    result = compare(random_scores(), reference="baseline")
    write_table(tmp_path / "t.csv", result)
    again = read_table(tmp_path / "t.csv", PAIRED_DIFFERENCES)
    assert again.schema == PAIRED_DIFFERENCES
    assert again["ci_low"].to_pylist() == pytest.approx(result["ci_low"].to_pylist(), rel=1e-9)
    assert again["verdict"].equals(result["verdict"])


def test_a_margin_of_an_unknown_metric_is_not_passed_over() -> None:
    scores = table(by_seed({"baseline": {0: 0.3, 1: 0.31}, "jagg": {0: 0.3, 1: 0.32}}))
    with pytest.raises(InputError, match="unknown metric 'hpsv'"):
        rows_of(scores, margins={"hpsv": 0.01})
    with pytest.raises(InputError, match="unknown metric 'hpsv'"):
        rows_of(scores, optimised_metrics=["hpsv"])


def test_a_table_without_rows() -> None:
    with pytest.raises(InputError, match="nothing to compare"):
        rows_of(table([]))


@pytest.mark.parametrize("num_seeds", [21, 100, 1100])
def test_more_seeds_than_sign_patterns_can_be_counted(num_seeds: int) -> None:
    rng = np.random.default_rng(0)
    runs = {arm: dict(enumerate(0.3 + 0.01 * rng.normal(size=num_seeds))) for arm in ("baseline", "jagg")}
    (row,) = rows_of(table(by_seed(runs)))
    assert (row["num_seeds"], row["sign_flip_p"], row["sign_flip_arrangements"]) == (num_seeds, None, None)
    assert "not enumerated" in row["note"]
    assert row["p_value"] > 0


@pytest.mark.filterwarnings("error")
def test_scores_that_overflow_are_not_finite() -> None:
    rows = [
        {"arm": arm, "seed": seed, "prompt_id": prompt, "value": 1.7e308, "unit": "points"}
        for arm in ("baseline", "jagg")
        for seed in (0, 1)
        for prompt in ("a", "b")
    ]
    rows += [row | {"image_index": 1} for row in rows]
    (row,) = rows_of(table(rows))
    assert row["verdict"] == "not-estimable"
    assert "not finite in jagg: seeds 0, 1" in row["note"]


def test_more_keys_than_integers_are_refused() -> None:
    names = [f"key_{number}" for number in range(6)]
    values = pa.array([str(number) for number in range(2000)])
    columns = {name: Coded.of(pa.table({name: values}), name) for name in names}
    assert len(set(combined(columns, names[:5]).tolist())) == 2000
    with pytest.raises(InputError, match="too many different keys") as caught:
        combined(columns, names)
    assert "key_5 (2000 values)" in str(caught.value)
