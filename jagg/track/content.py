"""What the files say that MLflow is to show: one entry a run, cell and study; nothing here imports MLflow."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from jagg.config import Study, canonical_json
from jagg.identity import flattened, run_settings
from jagg.keys import RunKey, RunPaths, StudyPaths, run_keys
from jagg.records import HISTORY, file_sha256, read_json, read_scores, read_table, text_sha256
from jagg.stats.join import join_scores

_NOT_METRICS = {"backbone", "algorithm", "arm", "seed", "step", "reward_parts", "noise_sha256"}
_LONGEST_SHOWN = 500
KEY_TAG, CONFIG_TAG, CONTENT_TAG = "jagg.key", "jagg.config_sha256", "jagg.content_sha256"


@dataclass(frozen=True)
class Point:
    """One value of one metric."""

    metric: str
    step: int
    value: float
    time_ms: int


@dataclass(frozen=True)
class Entry:
    """One MLflow run. `key` names it, whatever its display name; `parent` is the key of the run it is nested in.

    Entries with points never change: another configuration or content is another entry. Artifacts are files, or texts
    that exist nowhere else.
    """

    key: str
    parent: str | None
    tags: dict[str, str]
    artifacts: dict[str, Path | str]
    failed: bool = False
    params: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    start_ms: int = 0
    end_ms: int = 0

    @property
    def identity(self) -> tuple[str | None, str | None]:
        """Hashes of configuration and content."""
        return self.tags.get(CONFIG_TAG), self.tags.get(CONTENT_TAG)


def entries(study: Study, paths: StudyPaths) -> list[Entry]:
    """The study, its cells and its finished runs (diverged ones too), parents first.

    Raises:
        InputError: a file of a finished run is missing or damaged.
    """
    runs = [_run_entry(study, key, paths.run(key)) for key in run_keys(study) if paths.run(key).manifest.exists()]
    cells = dict.fromkeys(entry.parent for entry in runs)
    return [_study_entry(study, paths), *(_cell_entry(study, paths, str(cell)) for cell in cells), *runs]


def _study_entry(study: Study, paths: StudyPaths) -> Entry:
    files = {"report.html": paths.report, "config/study.json": paths.config}
    files |= {
        f"{folder.name}/{path.name}": path for folder in (paths.table(""), paths.figure("")) for path in _files(folder)
    }
    artifacts: dict[str, Path | str] = {name: path for name, path in files.items() if path.exists()}
    tags = {"jagg.level": "study", "mlflow.note.content": study.description}
    return _parent(study.study, None, tags, artifacts)


def _cell_entry(study: Study, paths: StudyPaths, cell: str) -> Entry:
    backbone, algorithm = cell.split("/")
    grid = paths.figure(f"images-{backbone}-{algorithm}.png")
    artifacts: dict[str, Path | str] = {grid.name: grid} if grid.exists() else {}
    tags = {"jagg.level": "cell", "jagg.backbone": backbone, "jagg.algorithm": algorithm}
    return _parent(cell, study.study, tags, artifacts)


def _parent(key: str, parent: str | None, tags: dict[str, str], artifacts: dict[str, Path | str]) -> Entry:
    content = text_sha256(canonical_json({name: artifact_sha256(source) for name, source in artifacts.items()}))
    return Entry(key, parent, {KEY_TAG: key, **tags, CONTENT_TAG: content}, artifacts)


def _run_entry(study: Study, key: RunKey, run: RunPaths) -> Entry:
    record = read_json(run.manifest)
    settings = run_settings(record["identity"])
    history = read_table(run.history, HISTORY)
    scores = [run.scores(step) for step in study.training.checkpoints if run.scores(step).exists()]
    start_ms, end_ms = (int(1000 * record[name]) for name in ("started", "finished"))
    points = list(_history_points(history, end_ms)) + list(_score_points(scores, study.comparison.aggregation, end_ms))
    last = max((point.step for point in points), default=0)
    finite = [point for point in points if math.isfinite(point.value)]
    failed = record["status"] == "diverged"
    finite.append(Point("non_finite_count", last, len(points) - len(finite), end_ms))
    finite.append(Point("diverged", last, float(failed), end_ms))
    content = {path.name: file_sha256(path) for path in (run.manifest, run.history, *scores)}
    tags = {
        KEY_TAG: str(key),
        "jagg.level": "run",
        **key.tags(),
        "jagg.status": record["status"],
        CONFIG_TAG: text_sha256(canonical_json(settings)),
        CONTENT_TAG: text_sha256(canonical_json(content)),
    }
    return Entry(
        key=str(key),
        parent=f"{key.backbone}/{key.algorithm}",
        tags=tags,
        artifacts={"run.json": run.manifest, "config.json": canonical_json(settings)},
        failed=failed,
        params={name: _shown(value) for name, value in flattened(settings).items()}
        | {"config_sha256": tags[CONFIG_TAG]},
        points=finite,
        start_ms=start_ms,
        end_ms=end_ms,
    )


def _history_points(history: pa.Table, end_ms: int) -> Iterator[Point]:
    """Training metrics by step; times are counted back from the end by the steps' own lengths."""
    rows = history.to_pylist()
    remaining = sum(row["step_s"] for row in rows if row["step_s"] is not None)
    for row in rows:
        remaining -= row["step_s"] or 0.0
        time_ms = end_ms - int(1000 * remaining)
        values = {name: row[name] for name in HISTORY.names if name not in _NOT_METRICS}
        for metric, parts in json.loads(row["reward_parts"] or "{}").items():
            values |= {f"{metric}_{part}": value for part, value in parts.items()}
        for name, value in values.items():
            if value is not None:
                yield Point(f"train/{name}", row["step"], float(value), time_ms)


def _score_points(scores: list[Path], aggregation: str, end_ms: int) -> Iterator[Point]:
    """Mean score of each checkpoint, as the comparison averages it."""
    for path in scores:
        table = read_scores(path)
        joined = join_scores(table, table.column("arm").unique().to_pylist(), aggregation) if len(table) else None
        for (_, metric, step, _), by_seed in joined.scores.items() if joined else ():
            for score in by_seed.values():
                yield Point(f"evaluation/{metric}", step, score.value, end_ms)


def _shown(value: Any) -> str:
    """A parameter as text for display, cut where it is long; identity is the hash, never this."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def artifact_sha256(source: Path | str) -> str:
    """SHA-256 of an artifact's content."""
    return file_sha256(source) if isinstance(source, Path) else text_sha256(source)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_file() and not path.name.startswith("."))
