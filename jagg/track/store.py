"""The MLflow store of a study: opened once under a lock, searched to the end, artifacts kept beside it."""

import fcntl
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.version import VERSION

from jagg.config import Study
from jagg.errors import InputError
from jagg.keys import StudyPaths
from jagg.records import file_sha256
from jagg.track.content import KEY_TAG, Entry, artifact_sha256

PARENT_TAG = "mlflow.parentRunId"
_METRICS_PER_BATCH, _PARAMS_PER_BATCH = 1000, 100
_SCHEME = "mlflow-artifacts:/"
# Makes MLflow's page open on runs and metrics rather than on traces of language models.
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
Item = TypeVar("Item")


class Store:
    """One experiment of a tracking store.

    A database store keeps artifacts under `<results>/mlartifacts` by a location that names no folder of this machine
    (`mlflow-artifacts:`), so results can be moved; a server keeps them where it likes.
    """

    def __init__(self, client: MlflowClient, experiment_id: str, artifacts: Path | None) -> None:
        self.client = client
        self.experiment_id = experiment_id
        self.artifacts = artifacts

    def runs(self, page_size: int = 1000) -> list[Run]:
        """Every active run of the experiment, page by page to the end."""
        runs: list[Run] = []
        token: str | None = None
        while True:
            page = self.client.search_runs(
                [self.experiment_id], run_view_type=ViewType.ACTIVE_ONLY, max_results=page_size, page_token=token
            )
            runs += page
            token = page.token
            if not token:
                return runs

    def create(self, entry: Entry, parent_id: str | None) -> str:
        """Write one run with all its params and metrics; its content tag comes last, so a torn run is never taken."""
        marks = dict(entry.tags)
        key = marks.pop(KEY_TAG)
        first = {KEY_TAG: key} | ({PARENT_TAG: parent_id} if parent_id else {})
        run = self.client.create_run(self.experiment_id, entry.start_ms or None, first, run_name=entry.key)
        run_id = run.info.run_id
        params = [Param(name, value) for name, value in sorted(entry.params.items())]
        metrics = [Metric(point.metric, point.value, point.time_ms, point.step) for point in entry.points]
        for some_params, some_metrics in zip_longest(
            batched(params, _PARAMS_PER_BATCH), batched(metrics, _METRICS_PER_BATCH), fillvalue=()
        ):
            self.client.log_batch(run_id, metrics=some_metrics, params=some_params)
        self.put_artifacts(run_id, run.info.artifact_uri, entry)
        self.client.set_terminated(run_id, "FAILED" if entry.failed else "FINISHED", entry.end_ms or None)
        self.client.log_batch(run_id, tags=[RunTag(name, value) for name, value in marks.items()])
        return run_id

    def set_tags(self, run: Run, tags: Mapping[str, str]) -> None:
        changed = [RunTag(name, value) for name, value in tags.items() if run.data.tags.get(name) != value]
        if changed:
            self.client.log_batch(run.info.run_id, tags=changed)

    def delete(self, run: Run) -> None:
        """Delete a run, and its artifacts where they lie here; MLflow itself keeps deleted runs until `mlflow gc`."""
        self.client.delete_run(run.info.run_id)
        folder = self._folder(run.info.artifact_uri)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def put_artifacts(self, run_id: str, artifact_uri: str, entry: Entry) -> None:
        """Make a run's artifacts those of the entry."""
        folder = self._folder(artifact_uri)
        if folder is None:
            self._upload(run_id, entry)
            return
        shutil.rmtree(folder, ignore_errors=True)
        for name, source in entry.artifacts.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, Path):
                shutil.copyfile(source, target)
            else:
                target.write_text(source, encoding="utf-8")

    def _upload(self, run_id: str, entry: Entry) -> None:
        for name, source in entry.artifacts.items():
            if isinstance(source, Path):
                self.client.log_artifact(run_id, str(source), name.rpartition("/")[0] or None)
            else:
                self.client.log_text(run_id, source, name)

    def artifacts_differ(self, artifact_uri: str, entry: Entry) -> list[str]:
        """Names of artifacts that lack or differ; empty where a server keeps them."""
        folder = self._folder(artifact_uri)
        if folder is None:
            return []
        return [
            name
            for name, source in entry.artifacts.items()
            if not (folder / name).is_file() or file_sha256(folder / name) != artifact_sha256(source)
        ]

    def _folder(self, artifact_uri: str) -> Path | None:
        if self.artifacts is None or not artifact_uri.startswith(_SCHEME):
            return None
        return self.artifacts / artifact_uri.removeprefix(_SCHEME)


def batched(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The items in order, at most `size` at a time: a store refuses longer batches."""
    return (items[start : start + size] for start in range(0, len(items), size))


@contextmanager
def opened(study: Study, paths: StudyPaths) -> Iterator[Store]:
    """The study's experiment; store and experiment are made once, and only one writer at a time has them.

    Raises:
        InputError: the store was made by another version of MLflow, or cannot be reached.
    """
    uri = study.tracking.uri or paths.tracking_uri
    remote = uri.startswith(("http://", "https://"))
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with _lock(paths.results / ".mlflow.lock"):
        try:
            client = MlflowClient(tracking_uri=uri)
            experiment_id = _experiment(client, study.study, None if remote else f"{_SCHEME}{study.study}")
        except MlflowException as error:
            raise InputError(
                "MLflow cannot open its store",
                where=uri,
                got=str(error).splitlines()[0],
                expected=f"a store that MLflow {VERSION} can read",
                fix="if another version made it, install that version, or move the store away: `jagg track` builds it "
                "again from the files",
            ) from error
        yield Store(client, experiment_id, None if remote else paths.artifacts)


def _experiment(client: MlflowClient, name: str, artifact_location: str | None) -> str:
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return str(client.create_experiment(name, artifact_location, _EXPERIMENT_TAGS))
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return str(experiment.experiment_id)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Wait for and hold a lock that the system takes back when its holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
