"""Each verdict, from tables whose truth is known."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import METRICS, claim_of, results_of, scores_of, verdict_of

from jagg.claims.evidence import All, AnyOf, Quantity, certify, refute
from jagg.claims.registry import Claim, load_claims
from jagg.claims.results import GRADIENT_QUALITY, Results, read_results
from jagg.claims.verdicts import audit, pointers
from jagg.config import Study
from jagg.errors import InputError
from jagg.keys import StudyPaths
from jagg.records import BACKWARD_PASSES, CLAIMS, read_table, write_table

REGISTRIES = sorted((Path(__file__).parents[2] / "configs" / "claims").glob("*.yaml"))
PLACES = [(backbone, metric) for backbone in ("flux", "qwen_image") for metric in METRICS]


def planted_results(effect: float, num_seeds: int = 5, sd: float = 0.0005, late: float | None = None) -> Results:
    truth = (effect, effect if late is None else late)
    return results_of(scores_of(dict.fromkeys(PLACES, truth), num_seeds, sd, np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("effect", "sd", "relation", "verdict"),
    [
        (0.0, 0.0005, "non-inferior", "reproduced"),
        (0.0, 0.0005, "equivalent", "reproduced"),
        (-0.03, 0.0005, "non-inferior", "contradicted"),
        (0.03, 0.0005, "equivalent", "contradicted"),
        (0.03, 0.0005, "non-inferior", "reproduced"),
        (0.0, 0.05, "non-inferior", "inconclusive"),
        (0.03, 0.0005, "superior", "reproduced"),
        (-0.03, 0.0005, "superior", "contradicted"),
        (-0.03, 0.0005, "inferior", "reproduced"),
    ],
)
def test_a_verdict_follows_from_the_intervals(effect: float, sd: float, relation: str, verdict: str) -> None:
    row = verdict_of(claim_of(relation=relation), planted_results(effect, sd=sd))
    assert row["verdict"] == verdict
    assert row["ci_low"] < row["estimate"] < row["ci_high"]
    assert row["num_tests"] == 4
    assert (row["seeds_needed"] is not None) == (verdict == "inconclusive")


def test_one_seed_makes_no_claim() -> None:
    row = verdict_of(claim_of(relation="non-inferior"), planted_results(0.0, num_seeds=1))
    assert row["verdict"] == "not-testable"
    assert "n = 1" in row["reason"]
    assert row["ci_low"] is None


@pytest.mark.parametrize(("num_seeds", "verdict"), [(3, "reproduced"), (2, "contradicted")])
def test_runs_that_equal_the_reference_have_enough_seeds_and_no_interval(num_seeds: int, verdict: str) -> None:
    """An arm whose routing leaves nothing to approximate is the reference again, bit for bit."""
    test = {"estimand": "seed_coverage", "min_seeds": 3}
    claim = Claim.model_validate({"id": "R1", "statement": "planted", "scope": {}, "tests": [test]})
    results = planted_results(0.0, num_seeds, sd=0.0)
    assert results.tables["paired_differences.csv"].column("ci_low").null_count > 0
    assert verdict_of(claim, results)["verdict"] == verdict


def test_a_claim_of_sameness_without_a_margin_is_not_testable() -> None:
    results = planted_results(0.0)
    table = results.tables["paired_differences.csv"]
    empty = pa.nulls(len(table), pa.float64())
    for name in ("margin", "margin_high"):
        table = table.set_column(table.column_names.index(name), name, empty)
    row = verdict_of(claim_of(relation="equivalent"), Results({"paired_differences.csv": table}))
    assert row["verdict"] == "not-testable"
    assert "no margin" in row["reason"]


def test_a_missing_cell_keeps_a_claim_from_being_reproduced_and_not_from_being_contradicted() -> None:
    def without_a_row(effect: float) -> Results:
        table = planted_results(effect).tables["paired_differences.csv"]
        keep = [not (r["metric"] == "hpsv2" and r["backbone"] == "flux" and r["step"] == 12) for r in table.to_pylist()]
        return Results({"paired_differences.csv": table.filter(pa.array(keep))})

    good = verdict_of(claim_of(relation="non-inferior"), without_a_row(0.0))
    assert good["verdict"] == "inconclusive"
    assert "no such row" in good["reason"]
    assert verdict_of(claim_of(relation="non-inferior"), without_a_row(-0.03))["verdict"] == "contradicted"


@pytest.mark.parametrize(
    ("scope", "named"),
    [
        ({"metrics": ["beauty"]}, "beauty"),
        ({"algorithms": ["ppo"]}, "ppo"),
        ({"setting": {"window": 4}}, "settings are not known"),
        ({"models": ["FLUX.1-dev"]}, "FLUX.1-dev"),
    ],
)
def test_an_impossible_scope_is_not_testable_and_says_why(scope: dict, named: str) -> None:
    rows = audit([("planted", claim_of(relation="superior", scope=scope))], planted_results(0.03)).to_pylist()
    assert rows[0]["verdict"] == "not-testable"
    assert named in rows[0]["reason"]


def test_a_claim_about_a_published_model_is_never_answered_by_another() -> None:
    claim = claim_of(relation="superior", scope={"models": ["FLUX.1-dev"]})
    published, counterpart = audit([("planted", claim)], planted_results(0.03)).to_pylist()
    assert (published["kind"], published["verdict"]) == ("published models", "not-testable")
    assert published["estimate"] is None
    assert counterpart["verdict"] == "reproduced"
    assert counterpart["id"] == "P-counterpart"
    assert "not FLUX.1-dev" in counterpart["scope"]


def test_models_at_a_pinned_revision_answer_for_themselves(finished_cell: tuple[Study, StudyPaths]) -> None:
    study, paths = finished_cell
    source = {"kind": "hub", "repo": "black-forest-labs/FLUX.1-dev", "revision": "0" * 40}
    content = study.model_dump(mode="json")
    content["backbones"]["flux"]["source"] = source
    results = read_results(paths.table(""))
    full = Results(results.tables, Study.model_validate(content), {"flux": "black-forest-labs/FLUX.1-dev@000000000000"})
    claim = claim_of(relation="non-inferior", scope={"models": ["FLUX.1-dev"]})
    (row,) = audit([("planted", claim)], full).to_pylist()
    assert (row["kind"], row["verdict"]) == ("published models", "reproduced")
    both = claim_of(relation="non-inferior", scope={"models": ["FLUX.1-dev", "Qwen-Image"]})
    (row,) = audit([("planted", both)], full).to_pylist()
    assert row["verdict"] == "inconclusive"
    assert "Qwen-Image" in row["reason"]
    content["backbones"]["flux"]["source"] = {"kind": "folder", "path": "models/FLUX.1-dev"}
    local = Results(results.tables, Study.model_validate(content))
    assert audit([("planted", claim)], local).to_pylist()[0]["verdict"] == "not-testable"


def test_the_shipped_claims_on_a_finished_study(finished_cell: tuple[Study, StudyPaths]) -> None:
    _, paths = finished_cell
    table = read_table(paths.table("claims.csv"), CLAIMS)
    rows = {row["id"]: row for row in table.to_pylist()}
    assert rows["C1-count"]["verdict"] == "reproduced"
    assert rows["C1-window"]["estimate"] == 2
    assert (rows["C1-abstract"]["verdict"], rows["C1-abstract"]["ci_low"]) == ("contradicted", None)
    assert rows["C1-abstract"]["estimate"] == pytest.approx(20 / 14)
    assert rows["C6-last"]["verdict"] == rows["C4"]["verdict"] == "not-testable"
    assert rows["C6-last-counterpart"]["verdict"] == "reproduced"
    assert rows["C2-step-counterpart"]["verdict"] == "reproduced"
    assert rows["R1"]["verdict"] == rows["R6"]["verdict"] == "reproduced"
    assert rows["R4"]["verdict"] == "contradicted"
    for name in ("C3-cosine-counterpart", "C4-counterpart", "C5", "R2", "R3", "R5"):
        assert "gradient_quality.csv" in rows[name]["reason"]
    for name in ("C7-counterpart", "L1-retain-counterpart", "L2-retain", "L3-speed-counterpart", "C10", "C9"):
        assert rows[name]["verdict"] == "not-testable"
        assert rows[name]["reason"]


def test_evidence_points_to_rows_that_are_there(finished_cell: tuple[Study, StudyPaths]) -> None:
    _, paths = finished_cell
    for row in read_table(paths.table("claims.csv"), CLAIMS).to_pylist():
        found = pointers(row["evidence"] or "")
        assert found or row["verdict"] == "not-testable"
        for table, number in found:
            assert paths.table(table).exists()
            if table.endswith(".csv"):
                assert 1 <= number < len(paths.table(table).read_text().splitlines())
    assert pointers("a.csv#1-3,7; b.parquet") == [
        ("a.csv", 1),
        ("a.csv", 2),
        ("a.csv", 3),
        ("a.csv", 7),
        ("b.parquet", 0),
    ]


def quality(cosines: list[float], sd: float = 0.05, residual: float = 0.1, error: float = 0.3) -> pa.Table:
    rows = [
        {
            "backbone": "flux", "algorithm": "dancegrpo", "estimator": "jagg", "step": 0, "split": split,
            "window": window, "sigma_start": 1.0, "sigma_end": 0.8, "num_rollouts": 40, "cosine_mean": cosine,
            "cosine_sd": sd, "fraction_above_threshold": 0.9, "fraction_ci_low": 0.8, "fraction_ci_high": 0.95,
            "norm_ratio_mean": 1.0 + 4 * window / 4, "relative_error_mean": error, "bound_mean": 1.0,
            "velocity_residual_mean": residual,
        }
        for split in ("calibration", "holdout")
        for window, cosine in enumerate(cosines)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=GRADIENT_QUALITY)


@pytest.mark.parametrize(
    ("cosines", "sd", "verdict"),
    [
        ([0.85, 0.77, 0.74, 0.63, 0.22], 0.1, "reproduced"),
        ([0.85, 0.40, 0.74, 0.63, 0.22], 0.1, "contradicted"),
        ([0.85, 0.51, 0.74, 0.63, 0.22], 0.3, "inconclusive"),
    ],
)
def test_the_cosine_of_the_first_windows(cosines: list[float], sd: float, verdict: str) -> None:
    claim = next(claim for _, claim in load_claims(REGISTRIES) if claim.id == "C4")
    results = Results({"gradient_quality.csv": quality(cosines, sd)})
    rows = audit([("planted", claim)], results).to_pylist()
    assert [row["verdict"] for row in rows] == ["not-testable", verdict]
    assert rows[1]["num_tests"] == 3


def test_claims_about_windows_and_demands_on_them() -> None:
    claims = {claim.id: claim for _, claim in load_claims(REGISTRIES)}

    def last(name: str, table: pa.Table) -> dict:
        return audit([("planted", claims[name])], Results({"gradient_quality.csv": table})).to_pylist()[-1]

    falling = quality([0.85, 0.77, 0.74, 0.63, 0.22])
    assert last("C3-cosine", falling)["verdict"] == "reproduced"
    assert last("C3-cosine", quality([0.2, 0.5, 0.9]))["verdict"] == "contradicted"
    assert last("C3-norm", falling)["verdict"] == "not-testable"  # the table has no spread of the norm ratio
    assert last("C5", falling)["verdict"] == "not-testable"
    assert "velocity_residual_mean below 1e-06" in last("C5", falling)["reason"]
    assert all(last(name, falling)["verdict"] == "reproduced" for name in ("R2", "R3", "R5"))
    calibrated = falling.filter(pa.array([row["split"] == "calibration" for row in falling.to_pylist()]))
    assert last("R3", calibrated)["verdict"] == "contradicted"


def test_late_changes_need_no_checkpoint_picked_from_the_data() -> None:
    def curve(baseline: list[float], jagg: list[float]) -> Results:
        rng = np.random.default_rng(3)
        table = scores_of(dict.fromkeys(PLACES, (0.0, 0.0)), 5, 1e-4, rng)
        means = {"baseline": baseline, "jagg": jagg}
        values = [
            row["value"] + means[row["arm"]][(0, 6, 12).index(row["step"])] + 1e-4 * rng.normal()
            for row in table.to_pylist()
        ]
        curves = table.set_column(table.column_names.index("value"), "value", pa.array(values))
        return Results(results_of(table).tables | {"scores.parquet": curves})

    claim = claim_of("late_change")
    assert verdict_of(claim, curve([0, 0.1, 0.05], [0, 0.1, 0.15]))["verdict"] == "reproduced"
    assert verdict_of(claim, curve([0, 0.1, 0.2], [0, 0.1, 0.15]))["verdict"] == "contradicted"
    assert verdict_of(claim, curve([0, 0.1, 0.1], [0, 0.1, 0.1]))["verdict"] == "inconclusive"


def test_the_first_step_of_another_schedule(finished_cell: tuple[Study, StudyPaths]) -> None:
    finished = dict(read_results(finished_cell[1].table("")).tables)
    history = finished["history.parquet"]

    def against(change: float) -> str:
        rows = [row | {"loss": 0.5, "grad_norm": 1.0 + change * (row["arm"] == "jagg")} for row in history.to_pylist()]
        table = pa.Table.from_pylist(rows, schema=history.schema)
        results = Results(finished | {"history.parquet": table})
        return str(verdict_of(claim_of("same_start"), results)["verdict"])

    assert against(0.0) == "reproduced"
    assert against(1e-9) == "contradicted"
    assert against(float("nan")) != "reproduced"


def test_an_empty_count_is_not_a_count(finished_cell: tuple[Study, StudyPaths]) -> None:
    results = read_results(finished_cell[1].table(""))
    rows = [row | {"backward_passes": None} for row in results.tables["backward_passes.csv"].to_pylist()]
    table = pa.Table.from_pylist(rows, schema=results.tables["backward_passes.csv"].schema)
    blank = Results({"backward_passes.csv": table}, results.study)
    claims = {claim.id: claim for _, claim in load_claims(REGISTRIES)}
    for name in ("C1-count", "C1-window"):
        assert verdict_of(claims[name], blank)["verdict"] == "not-testable"
    assert verdict_of(claims["R6"], blank)["verdict"] != "reproduced"


def test_a_window_sweep_is_proportional_or_not(finished_cell: tuple[Study, StudyPaths]) -> None:
    study, paths = finished_cell
    content = study.model_dump(mode="json")
    content["algorithms"]["wide"] = content["algorithms"]["dancegrpo"] | {"window": 8}
    wide = Study.model_validate(content)
    rows = read_table(paths.table("backward_passes.csv"), BACKWARD_PASSES).to_pylist()

    def against(gain: float) -> str:
        more = [
            row | {"algorithm": "wide"}
            | ({"backward_passes": round(20 / gain * row["trajectories"])} if row["arm"] == "jagg" else {})
            for row in rows
        ]  # fmt: skip
        table = pa.Table.from_pylist([*rows, *more], schema=BACKWARD_PASSES)
        return str(verdict_of(claim_of("window_sweep"), Results({"backward_passes.csv": table}, wide))["verdict"])

    assert against(2 * 20 / 14) == "reproduced"
    assert against(20 / 14) == "contradicted"


def test_a_window_sweep_over_arms(finished_cell: tuple[Study, StudyPaths]) -> None:
    study, paths = finished_cell
    content = study.model_dump(mode="json")
    content["arms"]["wide"] = content["arms"]["jagg"] | {"window": 8}
    content["arms"]["other"] = {"estimator": "endpoint_only", "window": 8}  # another estimator: no part of the sweep
    swept = Study.model_validate(content)
    rows = read_table(paths.table("backward_passes.csv"), BACKWARD_PASSES).to_pylist()
    passes = {"wide": 7, "other": 20}
    more = [
        row | {"arm": name, "backward_passes": count * row["trajectories"]}
        for row in rows
        for name, count in passes.items()
        if row["arm"] == "jagg"
    ]
    table = pa.Table.from_pylist([*rows, *more], schema=BACKWARD_PASSES)
    row = verdict_of(claim_of("window_sweep"), Results({"backward_passes.csv": table}, swept))
    assert (row["verdict"], row["estimate"]) == ("reproduced", 1.0)


@pytest.mark.parametrize(
    ("estimator", "excess", "verdict"),
    [
        ("jagg", 0, "reproduced"),
        ("jagg", 1, "contradicted"),
        ("debiased", 1, "reproduced"),
        ("debiased", 0.9, "reproduced"),
        ("debiased", 1.1, "contradicted"),
    ],
)
def test_drawn_passes_may_differ_from_their_expectation(
    finished_cell: tuple[Study, StudyPaths], estimator: str, excess: float, verdict: str
) -> None:
    study, paths = finished_cell
    content = study.model_dump(mode="json")
    content["arms"]["jagg"] = {"estimator": estimator}
    rows = read_table(paths.table("backward_passes.csv"), BACKWARD_PASSES).to_pylist()
    for row in (row for row in rows if row["arm"] == "jagg"):
        images = row["trajectories"] / row["trained_steps"]
        # Hoeffding: as many draws of 0 or 1 as windows and steps; at most 1e-4 of all counts lie further off.
        reach = images * math.sqrt(row["windows_approximate"] / images * math.log(2e4) / 2)
        passes = excess if excess == round(excess) else round(excess * reach)
        row["backward_passes"] = row["backward_passes_expected"] + passes
    table = pa.Table.from_pylist(rows, schema=BACKWARD_PASSES)
    results = Results({"backward_passes.csv": table}, Study.model_validate(content))
    claim = Claim(id="P", statement="planted", scope={}, tests=[{"estimand": "ledger"}])  # type: ignore[arg-type]
    assert verdict_of(claim, results)["verdict"] == verdict


def test_no_tables_and_damaged_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tables"):
        read_results(tmp_path)
    path = tmp_path / "paired_differences.csv"
    write_table(path, planted_results(0.0).tables["paired_differences.csv"])
    assert read_results(tmp_path).cells == [("flux", "dancegrpo"), ("qwen_image", "dancegrpo")]
    text = path.read_text()
    path.write_text(text.replace("num_seeds", "seeds", 1))
    with pytest.raises(InputError, match="num_seeds"):
        read_results(tmp_path)
    path.write_text(text[: len(text) // 2])
    with pytest.raises(InputError, match="paired_differences"):
        read_results(tmp_path)


def quantity(mean: float, low: float = -math.inf, high: float = math.inf, error: float | None = 1.0) -> Quantity:
    return Quantity("q", mean, low, high, error, 4, 5)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=6), st.floats(0.001, 0.2))
def test_nothing_is_both_certified_and_refuted(means: list[float], alpha: float) -> None:
    parts = tuple(quantity(mean, 0.0, 10.0) for mean in means)
    for claim in (All(parts), AnyOf(parts), AnyOf((All(parts), All(parts[:1])))):
        assert certify(claim, alpha) is None or refute(claim, alpha) is None


@given(st.floats(-50, 50), st.floats(0.001, 0.1))
def test_more_alternatives_and_more_conditions_cost_evidence(mean: float, alpha: float) -> None:
    one, far = quantity(mean, low=0.0), quantity(-1000.0, low=0.0)
    if certify(AnyOf((one, far)), alpha):
        assert certify(one, alpha)
    if refute(All((one, quantity(1000.0, low=0.0))), alpha):
        assert refute(one, alpha)


def test_exact_counts_have_no_interval_and_no_doubt() -> None:
    assert certify(quantity(14.0, 14.0, 14.0, error=None), 0.05)
    assert refute(quantity(15.0, 14.0, 14.0, error=None), 0.05)
