"""What a published table alone can and cannot support."""

from pathlib import Path

import pytest

from jagg.audit.published import FINDINGS, audit_published, half_unit, read_published
from jagg.errors import InputError

HEADER = ("source", "setting", "arm", "metric", "step", "value", "n", "sd", "ci_low", "ci_high", "statistic", "test",
          "df", "df2", "p", "items", "grain", "selected", "unit", "saved_share", "part_speedup", "note")  # fmt: skip
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


def test_a_changed_decision_is_said(tmp_path: Path) -> None:
    row = {"value": 1, "test": "t", "statistic": "2.10", "df": 2, "p": "0.04"}
    assert "decision at 0.05 changes" in findings(tmp_path, "p_values", row)[0]["reason"]


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
