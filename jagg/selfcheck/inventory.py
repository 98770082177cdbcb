"""What stands around the runs: models and scorers are those that the runs name, and no file stands there unasked."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jagg.config import EmbeddedScorer, HubModel, Study
from jagg.keys import StudyPaths, probe_keys, run_keys
from jagg.prompts import SPLITS
from jagg.records import file_sha256, folder_sha256, read_json
from jagg.selfcheck.mismatch import mismatch


def check_models(study: Study, paths: StudyPaths) -> dict[str, dict[str, str]]:
    """Backbone -> the weights that every run of it must have been made with, as run.json names them."""
    labels = {metric: _scorer_label(study, paths, metric) for metric in study.scorers}
    scorers = {f"scorer {metric}": labels[metric] for metric in study.reward.weights}
    weights = {}
    for name, config in study.backbones.items():
        folder, source = paths.backbone(name), config.source
        _check_record(folder / "model.json", config.family, source)
        whole = f"{source.repo}@{source.revision}" if isinstance(source, HubModel) else folder_sha256(folder)
        weights[name] = {"backbone": whole, **scorers}
    return weights


def _scorer_label(study: Study, paths: StudyPaths, metric: str) -> str:
    config, path = study.scorers[metric], paths.scorer(metric) / "scorer.json"
    record = _check_record(path, config.family, config.source)
    label, found = str(record["label"]), record.get("weight_sha256")
    if found is None:
        return label
    if not label.endswith(f"@{found[:12]}"):
        mismatch("a scorer's label is not that of its weights", path, found[:12], label)
    if isinstance(config.source, EmbeddedScorer) and found not in map(file_sha256, _files(path.parent)):
        mismatch("the weights of a scorer were changed", path.parent, found, "no such file")
    return label


def _check_record(path: Path, family: str, source: Any) -> dict[str, Any]:
    """A model's record, which must be of the configured model."""
    record: dict[str, Any] = read_json(path)
    wanted = {"family": family, "source": source.model_dump(mode="json")}
    for name, value in wanted.items():
        found = record.get(name, value)
        same = found.items() <= value.items() if isinstance(found, dict) and isinstance(value, dict) else found == value
        if not same:
            mismatch(f"a model of another {name}", path, value, found)
    return record


def check_strays(study: Study, paths: StudyPaths, tables: Iterable[str]) -> None:
    """Runs, checkpoints, probes, prompts and tables that the study does not declare are not passed over.

    A run that was made and then left out of the configuration is a result that was left out.
    """
    keys = list(run_keys(study))
    steps = [f"step-{step}" for step in study.training.checkpoints]
    wanted = {paths.run(key).folder for key in keys}
    found = set(paths.root.glob("runs/*/*/*/*"))
    for key in keys:
        run = paths.run(key)
        if run.manifest.exists():
            wanted |= {run.folder / kind / step for kind in ("checkpoints", "images") for step in steps}
            wanted |= {run.folder / "scores" / f"{step}.parquet" for step in steps}
            found |= {path for kind in ("checkpoints", "images", "scores") for path in (run.folder / kind).glob("*")}
    wanted |= {paths.probe(key.backbone, key.algorithm, key.seed) for key in probe_keys(study)}
    wanted |= {paths.prompts(split) for split in SPLITS} | {paths.table(name) for name in tables}
    for pattern in ("probes/*/*/*", "prompts/*", "tables/*"):
        found |= set(paths.root.glob(pattern))
    strays = sorted(path for path in found - wanted if not path.name.startswith("."))
    if strays:
        mismatch("a file that the study does not declare", strays[0], "nothing there", f"{len(strays)} such path(s)")


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]
