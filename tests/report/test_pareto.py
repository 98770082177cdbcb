"""Quality against cost, from the tables of a simulated study."""

import pytest

from jagg.config import Study
from jagg.keys import StudyPaths
from jagg.records import BACKWARD_PASSES, PAIRED_DIFFERENCES, PARETO, read_table
from jagg.report.figures.pareto import side_by_side
from jagg.report.pareto import pareto


def test_every_compared_arm_has_its_last_difference_and_its_mean_costs(finished: tuple[Study, StudyPaths]) -> None:
    study, paths = finished
    rows = read_table(paths.table("pareto.csv"), PARETO).to_pylist()
    assert len(rows) == len(study.backbones) * len(study.algorithms) * len(study.scorers) * (len(study.arms) - 1)
    differences = read_table(paths.table("paired_differences.csv"), PAIRED_DIFFERENCES)
    passes = read_table(paths.table("backward_passes.csv"), BACKWARD_PASSES)
    (row,) = [
        r for r in rows
        if (r["backbone"], r["algorithm"], r["metric"], r["arm"]) == ("flux", "dancegrpo", "hpsv2", "jagg")
    ]  # fmt: skip
    assert row["step"] == study.training.checkpoints[-1]
    assert (row["backward_passes_per_trajectory"], row["ratio_to_baseline"]) == (14, pytest.approx(0.7))
    known = next(
        r for r in differences.to_pylist()
        if all(r[name] == row[name] for name in ("backbone", "algorithm", "metric", "step", "arm"))
    )  # fmt: skip
    assert (row["difference"], row["ci_low"]) == (known["difference"], known["ci_low"])
    times = [
        r["step_time_ratio"] for r in passes.to_pylist()
        if all(r[name] == row[name] for name in ("backbone", "algorithm", "arm"))
    ]  # fmt: skip
    assert row["step_time_ratio"] == pytest.approx(sum(times) / len(times))
    assert len(pareto(differences.slice(0, 0), passes)) == 0


def test_arms_of_equal_cost_stand_side_by_side_around_it() -> None:
    assert side_by_side([]) == []
    assert side_by_side([20.0]) == [20.0]
    alone, first, second = side_by_side([10.0, 20.0, 20.0])
    assert (alone, (first + second) / 2) == (10.0, 20.0)
    assert first < second
    assert side_by_side([10.0, 12.0, 20.0]) == [10.0, 12.0, 20.0]
