"""Comparing MLflow with the files."""

from collections.abc import Iterator

from mlflow.entities import Run

from jagg.config import Study
from jagg.keys import StudyPaths
from jagg.track.content import KEY_TAG, Entry, entries
from jagg.track.store import PARENT_TAG, Store, opened
from jagg.track.sync import by_key


def verify(study: Study, paths: StudyPaths) -> list[str]:
    """Every way in which the store differs from the files, one line each; empty if they agree.

    Compared are runs, nesting, tags, status, params, every metric value at every step, and artifacts.

    Raises:
        InputError: a file of a finished run is damaged, the store cannot be opened, or it holds two runs of one key.
    """
    wanted = entries(study, paths)
    with opened(study, paths) as store:
        runs = store.runs()
        found = by_key(runs, paths)
        ids = {key: run.info.run_id for key, run in found.items()}
        lines = [line for entry in wanted for line in _differences(store, entry, found.get(entry.key), ids)]
        known = {entry.key for entry in wanted}
        lines = _missing(known, set(found)) + lines
        extra = [run for run in runs if run.data.tags.get(KEY_TAG) not in known]
        return lines + [
            f"{run.info.run_name}: in MLflow ({run.info.run_id}) but not in the study's files" for run in extra
        ]


def _missing(wanted: set[str], found: set[str]) -> list[str]:
    number, total = len(wanted - found), len(wanted)
    return [f"{number} missing: the files have {total} runs, MLflow {total - number} of them"] if number else []


def _differences(store: Store, entry: Entry, run: Run | None, ids: dict[str, str]) -> Iterator[str]:
    if run is None:
        yield f"{entry.key}: not in MLflow"
        return
    tags = entry.tags | ({PARENT_TAG: ids.get(entry.parent, "none")} if entry.parent else {})
    for name, value in tags.items():
        if run.data.tags.get(name) != value:
            yield f"{entry.key}: tag {name} is {run.data.tags.get(name)}, the files say {value}"
    status = "FAILED" if entry.failed else "FINISHED"
    if run.info.status != status:
        yield f"{entry.key}: status is {run.info.status}, the files say {status}"
    if run.data.params != entry.params:
        names = sorted(name for name, _ in set(run.data.params.items()) ^ set(entry.params.items()))
        yield f"{entry.key}: params differ: {', '.join(dict.fromkeys(names))}"
    yield from _metric_differences(store, entry, run)
    for name in store.artifacts_differ(run.info.artifact_uri, entry):
        yield f"{entry.key}: artifact {name} is missing or differs"


def _metric_differences(store: Store, entry: Entry, run: Run) -> Iterator[str]:
    wanted = sorted((point.metric, point.step, point.value) for point in entry.points)
    names = {metric for metric, _, _ in wanted} | set(run.data.metrics)
    history = (store.client.get_metric_history(run.info.run_id, name) for name in names)
    stored = sorted((point.key, point.step, point.value) for points in history for point in points)
    if stored == wanted:
        return
    for metric, step, value in sorted(set(wanted) - set(stored)):
        yield f"{entry.key}: {metric} at step {step} is not {value!r} in MLflow"
    for metric, step, value in sorted(set(stored) - set(wanted)):
        yield f"{entry.key}: {metric} at step {step} is {value!r} in MLflow only"
    if len(stored) != len(set(stored)):
        yield f"{entry.key}: metric values stand twice"
