"""Simulated studies, aggregated once for the tests that only read them."""

from pathlib import Path

import pytest
from simulated_probes import falling, write_probes
from simulated_study import only, simulated_study, write_runs

from jagg.config import Study
from jagg.keys import StudyPaths
from jagg.report import build_report
from jagg.report.tables import aggregate

DATE = "2026-01-02"
PROBE = {
    "estimators": ["jagg", "endpoint_only", "debiased"],
    "calibration": {"seeds": [0], "checkpoints": [0], "prompts": 2},
    "holdout": {"seeds": [1], "checkpoints": [0, 12], "prompts": 2},
}
STRESS = {"windows": [4, 10], "sampling_steps": [20, 40], "precisions": ["float32", "bfloat16"]}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, StudyPaths]:
    """A finished study with its tables: four cells, three arms, three metrics; not to be changed."""
    results: Path = tmp_path_factory.mktemp("results")
    study = simulated_study(results)
    paths = write_runs(study)
    aggregate(study, paths)
    return study, paths


@pytest.fixture(scope="session")
def page(finished: tuple[Study, StudyPaths]) -> str:
    """The report of `finished`."""
    build_report(*finished, date=DATE)
    return finished[1].report.read_text(encoding="utf-8")


def small_probed(results: Path) -> Study:
    """One cell, one metric, two arms, two seeds, and a probe with stress."""
    study = simulated_study(results, seeds=(0, 1), probe=PROBE | {"stress": STRESS})
    return only(
        study, backbones=["flux"], algorithms=["dancegrpo"], arms=["baseline", "jagg"], scorers=["hpsv2", "pickscore"]
    )


@pytest.fixture(scope="session")
def probed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, StudyPaths]:
    """A small finished study with its report, whose cosines fall below the threshold; not to be changed."""
    study = small_probed(tmp_path_factory.mktemp("probed"))
    paths = write_runs(study)
    write_probes(study, falling)
    aggregate(study, paths)
    build_report(study, paths, date=DATE)
    return study, paths
