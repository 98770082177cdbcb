"""What a published table alone can and cannot support."""

from pathlib import Path

import pytest

from jagg.errors import InputError
from jagg.forensics.published import FINDINGS, audit_published, half_unit, read_published

HEADER = ("source", "setting", "arm", "metric", "step", "value", "n", "sd", "ci_low", "ci_high", "ci_level",
          "statistic", "test", "df", "df2", "p", "items", "grain", "selected", "unit", "saved_share", "part_speedup",
          "note")  # fmt: skip
SHIPPED = Path(__file__).parents[2] / "configs" / "claims" / "jagg_published.csv"


def write(tmp_path: Path, *rows: dict) -> Path:
    path = tmp_path / "published.csv"
    default = {"source": "paper", "setting": "table 1", "arm": "new", "metric": "score", "n": 3}
    lines = [",".join(HEADER)] + [",".join(str((default | row).get(name, "")) for name in HEADER) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def findings(tmp_path: Path, check: str, *rows: dict) -> list[dict]:
    table = audit_published(read_published(write(tmp_path, *rows)))
    assert table.column_names == FINDINGS.names
    return [row for row in table.to_pylist() if row["check"] == check]


def words(tmp_path: Path, check: str, *rows: dict) -> list[str]:
    return [row["finding"] for row in findings(tmp_path, check, *rows)]


def test_a_comparison_of_single_seeds_gives_no_interval(tmp_path: Path) -> None:
    new, old = {"step": 80, "value": 0.3448}, {"arm": "old", "step": 80, "value": 0.3241}
    (found,) = findings(tmp_path, "seeds", new | {"n": 1}, old | {"n": 5})
    assert found["finding"] == "unsupported"
    assert "new (n = 1)" in found["reason"]
    assert "old" not in found["reason"]
    assert found["printed"].startswith("+0.0207")
    assert words(tmp_path, "seeds", new, old) == ["holds"]
    assert words(tmp_path, "seeds", new, old | {"setting": "table 2"}) == []
    assert words(tmp_path, "seeds", new | {"n": 1, "sd": "0.00"}) == ["impossible"]


@pytest.mark.parametrize(
    ("value", "items", "grain", "finding"),
    [
        ("5.19", 28, 1, "impossible"),  # Brown and Heathers' own example
        ("5.18", 28, 1, "holds"),
        ("0.333", 3, 1, "holds"),
        ("0.34", 3, 1, "impossible"),
        ("3.50", 10, 0.5, "holds"),
        ("3.52", 10, 0.5, "impossible"),
        ("3.5", 1000, 1, "holds"),
    ],
)
def test_a_mean_off_the_grid_of_its_counts_is_impossible(
    tmp_path: Path, value: str, items: int, grain: float, finding: str
) -> None:
    assert words(tmp_path, "grid", {"value": value, "items": items, "grain": grain}) == [finding]


@pytest.mark.parametrize(
    ("test", "statistic", "df", "p", "finding"),
    [
        ("t", "-4.062", 9, "0.0028", "holds"),  # R's sleep data
        ("t", "-4.062", 9, "0.0128", "impossible"),
        ("t", "2.10", 2, "0.04", "impossible"),
        ("z", "1.96", "", "0.05", "holds"),
        ("z", "1.96", "", "<0.05", "holds"),
        ("z", "1.90", "", "<0.05", "impossible"),
        ("chi2", "3.84", 1, "0.050", "holds"),
        ("f", "4.00", 1, "0.001", "impossible"),
    ],
)
def test_a_p_that_its_statistic_does_not_give_is_impossible(
    tmp_path: Path, test: str, statistic: str, df: object, p: str, finding: str
) -> None:
    row = {"value": 1, "test": test, "statistic": statistic, "df": df, "df2": 20, "p": p}
    (found,) = findings(tmp_path, "p_values", row)
    assert found["finding"] == finding


@pytest.mark.parametrize(
    ("p", "finding"),
    [
        ("n.s.", "holds"), (">0.05", "holds"), ("≥ 0.05", "holds"), ("p<0.05", "holds"), ("0.05*", "holds"),
        ("=0.04", "holds"), ("≤0.04", "impossible"), (">0.06", "impossible"), ("0", "impossible"),
        ("0.000", "impossible"), ("1", "impossible"),
    ],
)  # fmt: skip
def test_a_p_with_its_sign(tmp_path: Path, p: str, finding: str) -> None:
    """t = 2.1 on 20 degrees of freedom: p from 0.044 to 0.054."""
    row = {"value": 1, "test": "t", "statistic": "2.1", "df": 20, "p": p}
    assert words(tmp_path, "p_values", row) == [finding]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"n": 0}, "number of seeds below 1"),
        ({"n": -3}, "number of seeds below 1"),
        ({"sd": "-0.1"}, "deviation below 0"),
        ({"p": "1.2"}, "a p above 1"),
        ({"p": "<0"}, "a p above 1, or below 0"),
        ({"test": "f", "statistic": "-4.35", "df": 1, "p": "0.05"}, "statistic below 0"),
        ({"ci_low": "1.1", "ci_high": "0.9"}, "ends are swapped"),
        ({"unit": "saving", "value": "1.2"}, "more saved than there was"),
        ({"unit": "percent", "value": "120"}, "more saved than there was"),
    ],
)
def test_a_number_that_no_result_can_have(tmp_path: Path, row: dict, reason: str) -> None:
    (found,) = findings(tmp_path, "ranges", {"value": 1, "df2": 20} | row)
    assert found["finding"] == "impossible"
    assert reason in found["reason"]


@pytest.mark.parametrize(
    "row",
    [
        {"items": 0}, {"items": -3}, {"grain": 0}, {"grain": -1}, {"ci_level": 95}, {"ci_level": 1},
        {"saved_share": 60}, {"saved_share": -1}, {"part_speedup": 0}, {"part_speedup": "inf"},
        {"selected": "cherry"}, {"unit": "%"},
        {"p": "small"}, {"p": "-0.1"}, {"p": "nan"}, {"value": "17 %"}, {"value": "17-18"}, {"value": "1_0"},
        {"test": "t", "statistic": "2.1", "p": "0.04"}, {"test": "f", "statistic": "2.1", "df": 2, "p": "0.04"},
        {"test": "t", "statistic": "2.1", "df": 0, "p": "0.04"}, {"saved_share": 0.6, "part_speedup": 2},
    ],
)  # fmt: skip
def test_a_label_that_says_nothing_is_refused(tmp_path: Path, row: dict) -> None:
    with pytest.raises(InputError, match="row 1"):
        read_published(write(tmp_path, {"value": 1} | row))


def test_a_clean_table_meets_no_objection(tmp_path: Path) -> None:
    last = {"step": 300, "selected": "last", "n": 5}
    rows = (
        last | {"value": "0.3012", "sd": "0.0040", "ci_low": "0.2962", "ci_high": "0.3062"},
        last | {"value": "0.2991", "sd": "0.0035", "ci_low": "0.2948", "ci_high": "0.3034", "arm": "old"},
        {"metric": "difference", "value": "0.0021", "statistic": "2.35", "test": "t", "df": 4, "p": "0.079", "n": 5},
        {"metric": "passes", "value": "1.43", "unit": "x", "saved_share": 0.6, "part_speedup": 2, "n": 5},
        {"metric": "saved", "value": "30", "unit": "percent", "saved_share": 0.6, "part_speedup": 2, "n": 5},
        {"metric": "wins", "value": "0.583", "items": 24, "n": 5},
    )
    found = audit_published(read_published(write(tmp_path, *rows))).to_pylist()
    assert {row["finding"] for row in found} == {"holds"}
    assert {row["check"] for row in found} == {"seeds", "grid", "p_values", "intervals", "selection", "amdahl"}


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    row = {"value": 1, "n": 1, "ci_low": "0.9", "ci_high": "1.1"}
    assert words(tmp_path, "seeds", row) == ["impossible"]
    assert words(tmp_path, "intervals", row) == []


def test_a_row_is_not_compared_with_its_own_arm(tmp_path: Path) -> None:
    assert words(tmp_path, "seeds", {"value": 1, "n": 1}, {"value": 1, "n": 2}) == []


def test_a_changed_decision_is_said(tmp_path: Path) -> None:
    row = {"value": 1, "test": "t", "statistic": "2.10", "df": 2, "p": "0.04"}
    assert "decision at 0.05 changes" in findings(tmp_path, "p_values", row)[0]["reason"]
    below = row | {"p": "<0.05"}
    assert "decision at 0.05 changes" in findings(tmp_path, "p_values", below)[0]["reason"]


@pytest.mark.parametrize(
    ("low", "high", "sd", "finding"),
    [
        ("0.008", "0.012", "", "holds"),
        ("0.011", "0.012", "", "impossible"),
        ("0.0080", "0.0120", "0.00158", "holds"),  # five seeds: 2.776 sd / sqrt(5)
        ("0.0094", "0.0106", "0.00158", "unsupported"),  # as if prompts were the replicates
    ],
)
def test_intervals(tmp_path: Path, low: str, high: str, sd: str, finding: str) -> None:
    row = {"value": "0.0100", "n": 5, "ci_low": low, "ci_high": high, "sd": sd}
    assert words(tmp_path, "intervals", row) == [finding]


def test_a_checkpoint_picked_for_its_score(tmp_path: Path) -> None:
    assert words(tmp_path, "selection", {"step": 80, "value": 1, "selected": "best"}) == ["unsupported"]
    assert words(tmp_path, "selection", {"step": 80, "value": 1, "selected": "last"}) == ["holds"]
    one, other = {"step": 80, "value": 1}, {"arm": "old", "step": 60, "value": 2}
    assert words(tmp_path, "different_steps", one, other) == ["unsupported"]
    assert words(tmp_path, "different_steps", one, other, {"step": 60, "value": 1}) == []


@pytest.mark.parametrize(
    ("value", "unit", "share", "speedup", "finding"),
    [
        ("2", "x", 0.6, 2, "impossible"),  # 14 passes against 20 is 1.43x
        ("1.43", "x", 0.6, 2, "holds"),
        ("0.30", "saving", 0.5, 2, "impossible"),
        ("30", "percent", 0.5, 2, "impossible"),
        ("0.25", "saving", 0.5, 2, "holds"),
    ],
)
def test_a_saving_beyond_what_the_cheaper_part_allows_is_impossible(
    tmp_path: Path, value: str, unit: str, share: float, speedup: float, finding: str
) -> None:
    row = {"value": value, "unit": unit, "saved_share": share, "part_speedup": speedup}
    assert words(tmp_path, "amdahl", row) == [finding]


def test_one_label_with_two_values_is_refused_until_a_setting_tells_them_apart(tmp_path: Path) -> None:
    rows = ({"step": 80, "value": 0.373, "note": "table 2"}, {"step": 80, "value": 0.367, "note": "table 5"})
    with pytest.raises(InputError) as raised:
        read_published(write(tmp_path, *rows))
    assert all(word in str(raised.value) for word in ("0.373", "0.367", "table 2", "table 5", "rows 1 and 2"))
    read_published(write(tmp_path, rows[0], rows[1] | {"setting": "eta 0.7"}))


@pytest.mark.parametrize(
    ("row", "named"),
    [({"value": "high"}, "high"), ({"value": "inf"}, "inf"), ({"value": 1, "test": "u"}, "unknown test")],
)
def test_what_is_no_number_or_test_is_refused(tmp_path: Path, row: dict, named: str) -> None:
    with pytest.raises(InputError, match=named):
        read_published(write(tmp_path, row))


def test_an_unknown_or_missing_column_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {"value": 1})
    text = path.read_text()
    path.write_text(text.replace("part_speedup", "part_speed", 1))
    with pytest.raises(InputError, match="part_speedup"):
        read_published(path)
    path.write_text(text.replace("value,n,", "value,m,", 1))
    with pytest.raises(InputError, match="no n"):
        read_published(path)


def test_half_of_the_last_printed_digit() -> None:
    assert half_unit("0.30") == pytest.approx(0.005)
    assert half_unit("14") == pytest.approx(0.5)
    assert half_unit("1.5e-3") == pytest.approx(5e-5)


def test_the_shipped_table_of_the_papers_numbers() -> None:
    found = audit_published(read_published(SHIPPED)).to_pylist()
    by_check = {check: [row for row in found if row["check"] == check] for check in ("seeds", "selection", "amdahl")}
    assert [row["finding"] for row in by_check["seeds"]] == ["unsupported"] * 2
    assert all("step 50 the baseline is ahead" in row["reason"] for row in by_check["selection"])
    impossible = [row for row in by_check["amdahl"] if row["finding"] == "impossible"]
    assert [(row["printed"], row["possible"]) for row in impossible] == [("2x", "at most 1.429x")]
