"""An empty MLflow store, made once by MLflow itself and copied for each test."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_study import simulated_study

from jagg.keys import StudyPaths
from jagg.track.store import opened


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = simulated_study(tmp_path_factory.mktemp("store"))
    paths = StudyPaths.of(study)
    with opened(study, paths):
        pass
    return paths.results / "mlflow.db"


@pytest.fixture
def results(tmp_path: Path, empty_store: Path) -> Path:
    """A results folder with an empty store."""
    folder = tmp_path / "results"
    folder.mkdir()
    shutil.copyfile(empty_store, folder / "mlflow.db")
    return folder


@pytest.fixture
def rows(results: Path) -> Callable[[str], list[tuple]]:
    """Rows of an SQL query on the store."""

    def query(sql: str) -> list[tuple]:
        with sqlite3.connect(results / "mlflow.db") as connection:
            return connection.execute(sql).fetchall()

    return query
