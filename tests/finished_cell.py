"""A small finished study with its claims table and report, made once; tests that change it take a copy."""

import shutil
from pathlib import Path

import pytest
from simulated_study import simulated_study, write_runs

from jagg.claims.registry import load_claims
from jagg.claims.results import read_results
from jagg.claims.verdicts import audit
from jagg.config import Study, load_study
from jagg.keys import StudyPaths
from jagg.records import write_table
from jagg.report import build_report
from jagg.report.tables import aggregate

REGISTRIES = sorted((Path(__file__).parents[1] / "configs" / "claims").glob("*.yaml"))


def one_cell(results: Path) -> Study:
    """One backbone, one algorithm, two arms, two metrics, three seeds."""
    study = simulated_study(results)
    content = study.model_dump(mode="json")
    hpsv2, pickscore = (content["scorers"][name] for name in ("hpsv2", "pickscore"))
    return simulated_study(
        results,
        backbones={"flux": content["backbones"]["flux"]},
        algorithms={"dancegrpo": content["algorithms"]["dancegrpo"]},
        arms={"baseline": {"estimator": "exact"}, "jagg": {"estimator": "jagg", "routing": {"jagg_frac": 0.6}}},
        scorers={"hpsv2": hpsv2, "pickscore": pickscore},
        reward={"mix": "raw_weighted_sum", "weights": {"hpsv2": 1.0}},
        comparison={"reference": "baseline", "margins": {"hpsv2": 0.05, "pickscore": 0.05}},
    )


@pytest.fixture(scope="session")
def finished_cell(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, StudyPaths]:
    """A finished study of one cell; not to be changed."""
    study = one_cell(tmp_path_factory.mktemp("audited"))
    paths = write_runs(study)
    study = load_study(paths.config)
    aggregate(study, paths)
    write_table(paths.table("claims.csv"), audit(load_claims(REGISTRIES), read_results(paths.table(""))))
    build_report(study, paths, "2026-01-01")
    return study, paths


@pytest.fixture
def copied(finished_cell: tuple[Study, StudyPaths], tmp_path: Path) -> tuple[Study, StudyPaths]:
    """A copy of the finished study, to be damaged."""
    study, paths = finished_cell
    shutil.copytree(paths.root, tmp_path / study.study)
    return study.model_copy(update={"results": str(tmp_path)}), StudyPaths(tmp_path, study.study)
