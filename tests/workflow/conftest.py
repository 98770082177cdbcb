"""The finished smoke study, run once for all workflow tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from study_project import Project

SMOKE = "configs/smoke.yaml"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project with its smoke study complete; tests that change it take a twin."""
    project = Project.copied_to(tmp_path_factory.mktemp("study") / "project")
    process = project.jagg("study", "run", SMOKE, "--cores", "2")
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-6000:]
    assert "open it:" in process.stdout
    return project
