"""One unit a metric, and prompts averaged alike or by groups."""

from pathlib import Path

import pytest
from test_compare import by_seed, expect_refusal, rows_of, table

from jagg.errors import InputError
from jagg.records import write_table
from jagg.stats.compare import compare_files
from jagg.stats.design import Design
from jagg.stats.preference import with_win_probability
from jagg.units import UNITS

CLIPSCORE = {"metric": "clipscore", "scorer": "clip@1"}


@pytest.mark.parametrize(("unit", "value"), [("cosine", 0.22), ("x100", 22.0), ("logit/26", 0.846154), ("x2.5", 0.55)])
def test_one_cosine_in_every_unit(unit: str, value: float) -> None:
    assert UNITS[unit].per_cosine * 0.22 == pytest.approx(value, abs=1e-6)


def test_units_that_convert_become_cosines() -> None:
    rows = by_seed({"baseline": {0: 0.775, 1: 0.8}}, unit="x2.5", **CLIPSCORE)
    rows += by_seed({"jagg": {0: 31.0, 1: 33.0}}, unit="x100", **CLIPSCORE)
    (row,) = rows_of(table(rows), margins={"clipscore": 0.02})
    assert (row["mean_reference"], row["mean_arm"]) == pytest.approx((0.315, 0.32), abs=1e-9)
    assert (row["unit"], row["difference"]) == ("cosine", pytest.approx(0.005, abs=1e-9))
    assert "values in x100 and x2.5 converted to cosine" in row["note"]
    (one,) = rows_of(table([row for row in rows if row["seed"] == 0]))
    assert (one["mean_reference"], one["mean_arm"]) == (pytest.approx(0.31, abs=1e-9), pytest.approx(0.31, abs=1e-9))


@pytest.mark.parametrize("unit", ["x100", "points"])
def test_a_metric_in_one_unit_keeps_it(unit: str) -> None:
    (row,) = rows_of(table(by_seed({"baseline": {0: 22.0, 1: 21.0}, "jagg": {0: 21.9, 1: 21.5}}, unit=unit)))
    assert (row["unit"], row["mean_reference"]) == (unit, 21.5)
    assert "converted" not in row["note"]


@pytest.mark.parametrize("unit", ["cosine", "logit/26", "x2.5", "x100"])
def test_values_of_two_scales_under_one_unit_are_refused(unit: str) -> None:
    """0.85 is a logit over 26 and 21.9 a logit; the range of `x100` holds both."""
    values = {"baseline": {0: 0.85}, "jagg": {0: 21.9}}
    expect_refusal(by_seed(values, unit=unit), "21.9", f"unit {unit}")


def test_unknown_units_are_refused_with_those_that_are_known() -> None:
    rows = by_seed({"baseline": {0: 0.3}, "jagg": {0: 0.3}}, unit="x10")
    expect_refusal(rows, "unknown unit 'x10'", "x100", "logit/26", "x2.5", "cosine")


def test_a_win_probability_is_another_metric() -> None:
    rows = by_seed({"baseline": {0: 0.22}}, unit="cosine") + by_seed({"jagg": {0: 0.731059}}, unit="probability")
    expect_refusal(rows, "more than one unit", "a metric name of its own")
    expect_refusal(by_seed({"baseline": {0: 0.5}, "jagg": {0: 1.2}}, unit="probability"), "1.2", "0 to 1")


def test_how_probably_a_preference_model_picks_an_image(tmp_path: Path) -> None:
    """Logits 22 and 21: the first is picked with probability 1 / (1 + 1/e)."""
    pickscore = {"metric": "pickscore", "unit": "x100"}
    rows = by_seed({"baseline": {0: 21.0, 1: 21.0}, "jagg": {0: 22.0, 1: 21.0}}, **pickscore)
    write_table(tmp_path / "scores.csv", table(rows))
    compared = compare_files([tmp_path / "scores.csv"], Design("baseline"), picked_by="pickscore")
    score, win = compared.differences().to_pylist()
    assert (score["metric"], score["unit"], score["difference"]) == ("pickscore", "x100", 0.5)
    assert (win["metric"], win["unit"]) == ("pickscore_win_probability", "probability")
    assert win["mean_reference"] == 0.5
    assert win["mean_arm"] == pytest.approx((0.731059 + 0.5) / 2, abs=1e-6)
    one = with_win_probability(table(rows[:1] + rows[2:3]), "pickscore", "baseline").to_pylist()
    assert [row["value"] for row in one[2:]] == [0.5, pytest.approx(0.731059, abs=1e-6)]
    cosines = [row | {"value": row["value"] / 100, "unit": "cosine"} for row in rows]
    again = with_win_probability(table(cosines), "pickscore", "baseline").to_pylist()
    assert sorted(row["value"] for row in again[4:]) == pytest.approx([0.5, 0.5, 0.5, 0.731059], abs=1e-6)
    with pytest.raises(InputError, match="did you mean 'pickscore'"):
        with_win_probability(table(rows), "pickscor", "baseline")
    with pytest.raises(InputError, match="no win probability follows"):
        with_win_probability(table([row | {"unit": "points"} for row in rows]), "pickscore", "baseline")


STYLES = {"X": ([0.30] * 4, "abcd"), "Y": ([0.20], "e")}


def styled(shift: float = 0.01, seeds: tuple[int, ...] = (0, 1, 2)) -> list[dict]:
    """Style X has four prompts at .30, style Y one at .20; the arm gains more in Y, and other amounts by seed."""
    return [
        {
            "arm": arm, "seed": seed, "prompt_id": prompt, "prompt_group": style,
            "value": value + (arm == "jagg") * shift * (1 + seed) * (2 if style == "Y" else 1),
        }
        for arm in ("baseline", "jagg")
        for seed in seeds
        for style, (values, names) in STYLES.items()
        for value, prompt in zip(values, names)
    ]  # fmt: skip


@pytest.mark.parametrize(("aggregation", "mean", "gain"), [("pooled", 0.280, 6 / 5), ("equal_weight", 0.250, 3 / 2)])
def test_prompts_pooled_or_by_groups_of_equal_weight(aggregation: str, mean: float, gain: float) -> None:
    (row,) = rows_of(table(styled()), aggregation=aggregation)
    assert row["mean_reference"] == pytest.approx(mean, abs=1e-12)
    assert row["difference"] == pytest.approx(0.02 * gain)
    assert (row["aggregation"], row["prompt_groups"]) == (aggregation, "X 4, Y 1")
    # Mean squares of prompts say nothing of a mean in which prompts count differently.
    assert (row["ci_low_crossed"] is None) == (aggregation == "equal_weight")
    assert ("no crossed interval" in row["note"]) == (aggregation == "equal_weight")


def test_groups_of_equal_size_average_as_pooled_prompts() -> None:
    rows = [row for row in styled() if row["prompt_id"] in "ae"]
    (pooled,), (equal,) = (rows_of(table(rows), aggregation=name) for name in ("pooled", "equal_weight"))
    assert equal["ci_low_crossed"] is not None
    for name in ("difference", "ci_low", "ci_high", "ci_low_crossed"):
        assert equal[name] == pytest.approx(pooled[name])


def test_the_mean_over_cells_keeps_the_groups() -> None:
    rows = styled() + [row | {"backbone": "qwen_image"} for row in styled()]
    *_, pooled = rows_of(table(rows), aggregation="equal_weight")
    assert (pooled["backbone"], pooled["prompt_groups"], pooled["ci_low_crossed"]) == ("pooled", "X 4, Y 1", None)


def test_groups_that_are_missing_or_unknown_are_refused() -> None:
    lacking = [row | ({"prompt_group": ""} if row["prompt_id"] == "b" else {}) for row in styled()]
    expect_refusal(lacking, "none for b", aggregation="equal_weight")
    expect_refusal(styled(), "did you mean 'equal_weight'", aggregation="equal_weigth")
    two = [row | ({"prompt_group": "Y"} if row["prompt_id"] == "b" and row["seed"] else {}) for row in styled()]
    expect_refusal(two, "more than one prompt_group", "prompt_id b")


def test_tables_without_groups_are_pooled(tmp_path: Path) -> None:
    write_table(tmp_path / "scores.csv", table(styled()).drop_columns(["prompt_group"]))
    compared = compare_files([tmp_path / "scores.csv"], Design("baseline"))
    (row,) = compared.differences().to_pylist()
    assert (row["aggregation"], row["prompt_groups"]) == ("pooled", "")
    assert row["mean_reference"] == pytest.approx(0.280)
