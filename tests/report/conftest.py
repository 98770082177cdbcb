"""One simulated study, aggregated once for the tests that only read it."""

from pathlib import Path

import pytest
from simulated_study import simulated_study, write_runs

from jagg.config import Study
from jagg.keys import StudyPaths
from jagg.report.tables import aggregate


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, StudyPaths]:
    """A finished study with its tables; not to be changed."""
    results: Path = tmp_path_factory.mktemp("results")
    study = simulated_study(results)
    paths = write_runs(study)
    aggregate(study, paths)
    return study, paths
