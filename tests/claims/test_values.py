"""Tables of results that cannot be what they say, and what is missing in them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from planted import claim_of, verdict_of
from test_verdicts import planted_results, quality

from jagg.claims.registry import load_claims
from jagg.claims.results import Results, read_results
from jagg.claims.verdicts import audit
from jagg.config import Study
from jagg.errors import InputError
from jagg.keys import StudyPaths
from jagg.records import BACKWARD_PASSES, SCORES, read_table, write_table

REGISTRIES = sorted((Path(__file__).parents[2] / "configs" / "claims").glob("*.yaml"))


def changed(table: pa.Table, column: str, value: object, row: int = 0) -> pa.Table:
    """A table with another value in one place."""
    values = table.column(column).to_pylist()
    values[row] = value
    place = table.column_names.index(column)
    return table.set_column(place, column, pa.array(values, table.schema.field(column).type))


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("paired_differences.csv", "sd_difference", -1.0),
        ("paired_differences.csv", "num_seeds", -3),
        ("paired_differences.csv", "difference", float("inf")),
        ("paired_differences.csv", "margin", -0.01),
        ("paired_differences.csv", "arm", None),
        ("gradient_quality.csv", "cosine_mean", 7.0),
        ("gradient_quality.csv", "cosine_sd", -0.1),
        ("gradient_quality.csv", "fraction_above_threshold", 1.5),
        ("gradient_quality.csv", "window", None),
    ],
)
def test_a_value_that_no_result_can_have_is_named(tmp_path: Path, name: str, column: str, value: object) -> None:
    table = {
        "paired_differences.csv": planted_results(0.0).tables["paired_differences.csv"],
        "gradient_quality.csv": quality([0.8, 0.7]),
    }[name]
    write_table(tmp_path / name, table)
    read_results(tmp_path)
    write_table(tmp_path / name, changed(table, column, value, row=1))
    with pytest.raises(InputError, match=rf"(?s)row 2, {column}"):
        read_results(tmp_path)


def test_a_row_that_stands_twice_is_refused(tmp_path: Path) -> None:
    table = planted_results(0.0).tables["paired_differences.csv"]
    write_table(tmp_path / "paired_differences.csv", pa.concat_tables([table, table.slice(3, 1)]))
    with pytest.raises(InputError, match="stand twice"):
        read_results(tmp_path)


@pytest.mark.parametrize(("column", "value"), [("sd_difference", 0.0), ("num_seeds", None)])
def test_a_row_without_a_spread_certifies_nothing(column: str, value: object) -> None:
    table = planted_results(0.0).tables["paired_differences.csv"]
    rows = [place for place, row in enumerate(table.to_pylist()) if row["step"] == 12 and row["backbone"] == "flux"]
    results = Results({"paired_differences.csv": changed(table, column, value, rows[0])})
    assert verdict_of(claim_of(relation="non-inferior"), results)["verdict"] == "inconclusive"


def test_rollouts_are_not_counted_as_seeds() -> None:
    claim = next(claim for _, claim in load_claims(REGISTRIES) if claim.id == "C4")
    for cosine, verdict in ((0.7, "reproduced"), (0.51, "inconclusive")):
        results = Results({"gradient_quality.csv": quality([0.85, cosine, 0.74, 0.63, 0.22], sd=0.2)})
        row = audit([("planted", claim)], results).to_pylist()[-1]
        assert row["verdict"] == verdict
        assert (row["num_seeds"], row["seeds_needed"]) == (None, None)
        assert "over 40 rollouts" in row["reason"]
    without = Results({"gradient_quality.csv": quality([0.85, 0.77, 0.74, 0.63, 0.22], sd=0.0)})
    assert audit([("planted", claim)], without).to_pylist()[-1]["verdict"] == "not-testable"


def test_a_gain_below_the_aa_floor_reproduces_no_claim_of_improvement() -> None:
    results = planted_results(0.03)
    table = results.tables["paired_differences.csv"]
    claim = claim_of(relation="superior")
    for floor, verdict in ((0.001, "reproduced"), (0.1, "not-testable")):
        place = table.column_names.index("aa_floor")
        floored = table.set_column(place, "aa_floor", pa.array([floor] * len(table), pa.float64()))
        row = verdict_of(claim, Results({"paired_differences.csv": floored}))
        assert row["verdict"] == verdict
    assert "other noise" in row["reason"]
    lower = planted_results(-0.03).tables["paired_differences.csv"]
    floored = lower.set_column(place, "aa_floor", pa.array([0.1] * len(lower), pa.float64()))
    assert verdict_of(claim, Results({"paired_differences.csv": floored}))["verdict"] == "contradicted"


def test_the_floor_is_measured_where_only_scores_are_there(finished_cell: tuple[Study, StudyPaths]) -> None:
    study, _ = finished_cell
    scores = planted_results(0.03).tables["scores.parquet"].to_pylist()
    again = [
        row | {"arm": "again", "value": row["value"] + (row["step"] > 0) * 0.2 * (row["seed"] % 2 - 0.4)}
        for row in scores
        if row["arm"] == "baseline"
    ]
    results = {"scores.parquet": pa.Table.from_pylist(scores + again, schema=SCORES)}
    claim = claim_of(relation="superior")
    assert verdict_of(claim, Results(results, study))["verdict"] == "reproduced"
    comparison = study.comparison.model_copy(update={"aa_arm": "again"})
    found = verdict_of(claim, Results(results, study.model_copy(update={"comparison": comparison})))
    assert found["verdict"] == "not-testable"
    assert "other noise" in found["reason"]


def test_a_time_that_is_not_known_is_said_and_leaves_no_seed_out(finished_cell: tuple[Study, StudyPaths]) -> None:
    study, paths = finished_cell
    table = read_table(paths.table("backward_passes.csv"), BACKWARD_PASSES)
    row = next(place for place, row in enumerate(table.to_pylist()) if row["arm"] == "jagg")
    claim = claim_of("time", stage="update", high=1.0)
    assert verdict_of(claim, Results({"backward_passes.csv": table}, study))["verdict"] == "reproduced"
    for value in (None, 0.0):
        results = Results({"backward_passes.csv": changed(table, "update_time_ratio", value, row)}, study)
        found = verdict_of(claim, results)
        assert found["verdict"] == "not-testable"
        assert "not known" in found["reason"]


def test_an_order_of_times_with_an_unknown_one_is_not_testable() -> None:
    rows = [
        dict.fromkeys(BACKWARD_PASSES.names)
        | {"backbone": "flux", "algorithm": algorithm, "arm": arm, "seed": seed, "trajectories": 48,
           "backward_passes": 480, "update_time_ratio": ratio}
        for algorithm in ("dancegrpo", "flow_grpo_fast")
        for seed in (0, 1)
        for arm, ratio in (("baseline", 1.0), ("jagg", None if seed else 0.8))
    ]  # fmt: skip
    claim = claim_of("time_order", stage="update", lower="dancegrpo", higher="flow_grpo_fast")
    found = verdict_of(claim, Results({"backward_passes.csv": pa.Table.from_pylist(rows, schema=BACKWARD_PASSES)}))
    assert found["verdict"] == "not-testable"
    assert "not known" in found["reason"]


def test_a_count_that_is_missing_keeps_a_claim_of_passes_from_being_reproduced(
    finished_cell: tuple[Study, StudyPaths],
) -> None:
    study, paths = finished_cell
    table = read_table(paths.table("backward_passes.csv"), BACKWARD_PASSES)
    row = next(place for place, row in enumerate(table.to_pylist()) if row["arm"] == "jagg")
    claim = claim_of("passes", quantity="reduction", low=1.4, high=1.5)
    assert verdict_of(claim, Results({"backward_passes.csv": table}, study))["verdict"] == "reproduced"
    for value in (None, 0):
        results = Results({"backward_passes.csv": changed(table, "backward_passes", value, row)}, study)
        assert verdict_of(claim, results)["verdict"] == "not-testable"


def test_many_claims_have_verdicts_that_hold_at_once() -> None:
    """Twenty claims whose p is about 0.02: each is reproduced alone, none of them in the family."""
    results = planted_results(0.0)
    table = results.tables["paired_differences.csv"]
    width = table.column("ci_high").to_numpy() - table.column("difference").to_numpy()
    close = 1.1 * float(np.nanmax(width))
    claim = claim_of(relation="non-inferior", margin=close)
    claims = [("planted", claim.model_copy(update={"id": f"P{number}"})) for number in range(20)]
    rows = audit(claims, results).to_pylist()
    assert {(row["verdict"], row["verdict_family"], row["family_claims"]) for row in rows} == {
        ("reproduced", "inconclusive", 20)
    }
    (alone,) = audit(claims[:1], results).to_pylist()
    assert (alone["verdict"], alone["verdict_family"], alone["family_claims"]) == ("reproduced", "reproduced", 1)


def test_exact_counts_and_claims_that_nothing_tests_do_not_widen_the_family(
    finished_cell: tuple[Study, StudyPaths],
) -> None:
    _, paths = finished_cell
    rows = audit(load_claims(REGISTRIES), read_results(paths.table(""))).to_pylist()
    counted = [row for row in rows if row["family_claims"] is not None]
    assert {row["family_claims"] for row in counted} == {len(counted)}
    exact = [row for row in rows if row["id"].startswith("C1-")]
    assert all(row["family_claims"] is None and row["verdict_family"] == row["verdict"] for row in exact)
    assert all(row["verdict_family"] == "not-testable" for row in rows if row["verdict"] == "not-testable")


@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_the_lower_end_of_a_ratio(finished_cell: tuple[Study, StudyPaths], low: float) -> None:
    _, paths = finished_cell
    if low < 0:
        with pytest.raises(ValueError, match="low"):
            claim_of("time", stage="update", low=low)
        return
    found = verdict_of(claim_of("time", stage="update", low=low), read_results(paths.table("")))
    assert found["verdict"] == "reproduced"
