"""Bringing MLflow up to date with the files."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mlflow.entities import Run
from mlflow.version import VERSION

from jagg.config import Study
from jagg.errors import InputError
from jagg.keys import StudyPaths
from jagg.records import read_json, write_json
from jagg.track.content import CONFIG_TAG, CONTENT_TAG, KEY_TAG, Entry, entries
from jagg.track.store import PARENT_TAG, Store, opened


@dataclass(frozen=True)
class Summary:
    """What one call changed: numbers of MLflow runs; or why it left the store alone."""

    added: int = 0
    replaced: int = 0
    updated: int = 0
    unchanged: int = 0
    left_alone: str = ""


def track(study: Study, paths: StudyPaths) -> Summary:
    """Make the store show what the files say; repeating it adds nothing. Writes `tracking.json` last.

    Study, cell and run are nested runs. A run whose configuration or content has changed is deleted and written anew,
    since metrics cannot be taken back, and so is one that was being written when its writer died; else the study's and
    the cells' artifacts are brought up to date in place. A store that another version of MLflow wrote is left alone:
    the files hold everything, and a store that two versions wrote may be read by neither.

    Raises:
        InputError: a file of a finished run is damaged, the store cannot be opened, it holds two runs of one key, or it
            does not show all runs that were written.
    """
    wanted = entries(study, paths)
    record = read_json(paths.tracking_record) if paths.tracking_record.exists() else {}
    other_version = _other_version(record, paths)
    if other_version:
        write_json(paths.tracking_record, record | {"left_alone": other_version})
        return Summary(left_alone=other_version)
    counts: dict[str, int] = defaultdict(int)
    ids: dict[str, str] = {}
    with opened(study, paths) as store:
        found = by_key(store.runs(), paths)
        for entry in wanted:
            parent_id = ids[entry.parent] if entry.parent else None
            ids[entry.key], change = _bring(store, entry, found.get(entry.key), parent_id)
            counts[change] += 1
        _check_complete(ids, {run.info.run_id for run in store.runs()})
        write_json(paths.tracking_record, _record(study, wanted, ids, store))
    return Summary(counts["added"], counts["replaced"], counts["updated"], counts["unchanged"])


def _other_version(record: dict[str, Any], paths: StudyPaths) -> str:
    """Why the store must be left alone, or an empty text."""
    made_by = record.get("mlflow_version", VERSION)
    if made_by == VERSION:
        return ""
    return (
        f"MLflow {made_by} wrote the store and {VERSION} is installed: the store stays as it is, the study's files are "
        f"complete. Install MLflow {made_by}, or remove {paths.tracking_record} to let this version write the store"
    )


def _check_complete(ids: Mapping[str, str], stored: Collection[str]) -> None:
    missing = sorted(key for key, run_id in ids.items() if run_id not in stored)
    if missing:
        raise InputError(
            "MLflow does not show all runs that were written",
            expected=f"{len(ids)} runs",
            got=f"{len(missing)} missing: {', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}",
        )


def by_key(runs: list[Run], paths: StudyPaths) -> dict[str, Run]:
    """The store's runs by their key; of two runs with one key the recorded id decides.

    Raises:
        InputError: two runs have one key and neither is recorded.
    """
    recorded = set(read_json(paths.tracking_record)["runs"].values()) if paths.tracking_record.exists() else set()
    grouped: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if KEY_TAG in run.data.tags:
            grouped[run.data.tags[KEY_TAG]].append(run)
    chosen = {}
    for key, candidates in grouped.items():
        kept = [run for run in candidates if run.info.run_id in recorded] if len(candidates) > 1 else candidates
        if len(kept) != 1:
            raise InputError(
                "MLflow holds more than one run of a key",
                where=key,
                expected="one run",
                got=", ".join(sorted(run.info.run_id for run in candidates)),
                fix="delete all but one of them in MLflow",
            )
        chosen[key] = kept[0]
    return chosen


def _bring(store: Store, entry: Entry, run: Run | None, parent_id: str | None) -> tuple[str, str]:
    """The id of the run that now shows the entry, and what was done."""
    if run is None:
        return store.create(entry, parent_id), "added"
    same = (run.data.tags.get(CONFIG_TAG), run.data.tags.get(CONTENT_TAG)) == entry.identity
    torn = CONTENT_TAG not in run.data.tags
    if torn or (not same and entry.points):
        store.delete(run)
        return store.create(entry, parent_id), "replaced"
    stale = store.artifacts_differ(run.info.artifact_uri, entry)
    if not same or stale:
        store.put_artifacts(run.info.run_id, run.info.artifact_uri, entry)
    store.set_tags(run, entry.tags | ({PARENT_TAG: parent_id} if parent_id else {}))
    return run.info.run_id, "unchanged" if same and not stale else "updated"


def _record(study: Study, wanted: list[Entry], ids: dict[str, str], store: Store) -> dict[str, object]:
    return {
        "experiment": study.study,
        "experiment_id": store.experiment_id,
        "mlflow_version": VERSION,
        "runs": ids,
        "num_runs": len(wanted),
        "num_metric_points": sum(len(entry.points) for entry in wanted),
        "num_params": sum(len(entry.params) for entry in wanted),
        "num_artifacts": sum(len(entry.artifacts) for entry in wanted),
    }
