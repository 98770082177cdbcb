"""Whether the raw files of a study are what its configuration says and agree with each other."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

from jagg.config import HPDv2Prompts, Study, canonical_json
from jagg.evaluate.signature import evaluation_signature
from jagg.keys import IMAGES_MANIFEST, RunKey, RunPaths, StudyPaths
from jagg.prompts import SPLITS, Prompt, build_prompts, prompts_sha256, read_prompts
from jagg.records import (
    HISTORY,
    file_sha256,
    folder_sha256,
    lock_sha256,
    read_json,
    read_scores,
    read_table,
    text_sha256,
)
from jagg.report.tables import COMPLETE, DIVERGED, last_attempts
from jagg.selfcheck.mismatch import mismatch

Row = dict[str, Any]


class TrajectoryPasses(Protocol):
    """Passes of one trajectory by the closed form (math.md 3 and 4)."""

    @property
    def backward_passes(self) -> float: ...
    @property
    def forward_passes_grad(self) -> float: ...
    @property
    def forward_passes_nograd(self) -> float: ...
    @property
    def windows_exact(self) -> float: ...
    @property
    def windows_approximate(self) -> float: ...


ClosedForm = Callable[[Study, RunKey, tuple[int, ...]], TrajectoryPasses | None]
"""From a run and the transitions that it trains, None where states or draws decide; given by the caller, since the
estimators need torch."""


def check_prompts(study: Study, paths: StudyPaths) -> dict[str, list[Prompt]]:
    """The prompt files are those of the configuration and disjoint; those of a hub are not fetched again."""
    found = {split: read_prompts(paths.prompts(split)) for split in SPLITS}
    if not isinstance(study.prompts.source, HPDv2Prompts):
        for split, prompts in build_prompts(study).items():
            if found[split] != prompts:
                both = zip_longest(prompts, found[split])
                expected, got = next((one, other) for one, other in both if one != other)
                mismatch("other prompts than the configuration's", paths.prompts(split), expected, got)
    shared = {prompt.text for prompt in found["train"]} & {prompt.text for prompt in found["evaluation"]}
    if shared:
        mismatch("a training prompt is evaluated on", paths.prompts("evaluation"), "disjoint sets", sorted(shared)[0])
    return found


@dataclass(frozen=True)
class CheckedRun:
    """What pairs of runs must share."""

    made_in: tuple[str, ...]
    """Interpreter and packages of training and of each checkpoint's images, and how many parameters were trained."""
    noise: tuple[str, ...]
    transitions: tuple[tuple[int, ...], ...]
    scored: frozenset[tuple[str, ...]]
    untouched: dict[tuple[str, str, int], float]
    """(metric, prompt, image) -> score of the untouched model."""


def check_run(
    study: Study,
    paths: StudyPaths,
    key: RunKey,
    prompts: dict[str, list[Prompt]],
    weights: dict[str, str],
    closed_form: ClosedForm,
) -> CheckedRun:
    """A finished run: record, ledger, checkpoints, images and scores; `weights` as its record must name them."""
    run = paths.run(key)
    record = read_json(run.manifest)
    _check_record(study, run, key, record, weights)
    model = paths.backbone(key.backbone) / "model.json"
    label = read_json(model)["label"]
    if record.get("model", label) != label:
        mismatch("a run of another model", run.manifest, label, record["model"])
    made_in = [_checked_environment(run.manifest, record), str(record.get("parameters_trained", ""))]
    identity = text_sha256(canonical_json(record["identity"]))
    if identity != record["identity_sha256"]:
        mismatch("the recorded identity was changed", run.manifest, record["identity_sha256"], identity)
    if record["prompts_sha256"] != prompts_sha256(prompts["train"]):
        mismatch("trained on other prompts", run.manifest, prompts_sha256(prompts["train"]), record["prompts_sha256"])
    history = last_attempts(read_table(run.history, HISTORY)).to_pylist()
    transitions = _transitions(run, record, len(history))
    _check_totals(run, record, history)
    for row, trained in zip(history, transitions):
        _check_ledger(study, run, key, row, closed_form(study, key, trained))
    scored: set[tuple[str, ...]] = set()
    untouched: dict[tuple[str, str, int], float] = {}
    if record["status"] == COMPLETE:
        for step in study.training.checkpoints:
            _check_checkpoint(run, record, step)
            made_in.append(_check_images(study, run, key, step, prompts["evaluation"], model))
            rows = _check_scores(study, paths, run, key, step, prompts["evaluation"])
            scored |= {(row["metric"], row["unit"], row["scorer"], row["environment"]) for row in rows}
            if step == 0:
                untouched = {(row["metric"], row["prompt_id"], row["image_index"]): row["value"] for row in rows}
    noise = tuple(row["noise_sha256"] for row in history)
    return CheckedRun(tuple(made_in), noise, transitions, frozenset(scored), untouched)


def _check_record(study: Study, run: RunPaths, key: RunKey, record: Row, weights: dict[str, str]) -> None:
    """The record is of this run and of these models."""
    wanted: Row = {**key.row(), "weights": weights}
    if record["status"] == COMPLETE:
        wanted |= {"diverged": None, "trained_steps": study.training.trained_steps}
    for name, value in wanted.items():
        if record[name] != value:
            mismatch(f"a record of another {name}", run.manifest, value, record[name])
    if record["status"] not in (COMPLETE, DIVERGED) or (record["status"] == DIVERGED and not record["diverged"]):
        mismatch("a record without a status", run.manifest, f"{COMPLETE}, or {DIVERGED} and where", record["status"])


def _checked_environment(where: Path, record: Row) -> str:
    """Interpreter and packages that a record names."""
    environment = record["environment"]
    lock = lock_sha256(environment["packages"])
    if environment["lock_sha256"] != lock:
        mismatch("the recorded packages are not those of the lock", where, lock, environment["lock_sha256"])
    return f"Python {environment['python']}, packages {lock}"


def _transitions(run: RunPaths, record: Row, steps: int) -> tuple[tuple[int, ...], ...]:
    """Trained transitions of each training step, from the record."""
    by_step = {step: tuple(entry["transitions"]) for entry in record["trained_transitions"] for step in entry["steps"]}
    if sorted(by_step) != list(range(1, steps + 1)) or record["trained_steps"] != steps:
        mismatch("training steps are missing", run.history, f"{record['trained_steps']} steps", f"{steps} rows")
    return tuple(by_step[step] for step in range(1, steps + 1))


def _check_totals(run: RunPaths, record: Row, history: list[Row]) -> None:
    for name, total in record["totals"].items():
        if name not in HISTORY.names:
            continue
        found = math.fsum(row[name] for row in history)
        if not math.isclose(found, total, rel_tol=1e-12):
            mismatch(f"the total of {name} is not the sum of its steps", run.history, total, found)


def _check_ledger(study: Study, run: RunPaths, key: RunKey, row: Row, passes: TrajectoryPasses | None) -> None:
    where = f"{run.history}, training step {row['step']}"
    images = study.training.prompts_per_step * study.training.group_size
    if row["images"] != images or row["optimizer_steps"] != study.training.optimizer_steps_per_rollout:
        mismatch("another batch than the configuration's", where, f"{images} images", row["images"])
    if passes is None:
        return
    expected = {
        "windows_exact": round(passes.windows_exact),
        "windows_approximate": round(passes.windows_approximate),
        "backward_passes_expected": round(images * passes.backward_passes),
        **{
            name: images * getattr(passes, name)
            for name in ("backward_passes", "forward_passes_grad", "forward_passes_nograd")
        },
    }
    for name, count in expected.items():
        if row[name] != count:
            mismatch(f"{name} is not the closed form of {key}", where, count, row[name])


def _check_checkpoint(run: RunPaths, record: Row, step: int) -> None:
    folder = run.checkpoint(step)
    checkpoint = read_json(folder / "checkpoint.json")
    inputs = [
        canonical_json(record["identity"]),
        record["prompts_sha256"],
        *map(str, sorted(record["weights"].items())),
    ]
    made_by = text_sha256("\n".join(inputs))
    if (checkpoint["step"], checkpoint["run"]) != (step, made_by):
        mismatch("a checkpoint of another run or step", folder, f"step {step} of {made_by}", checkpoint)
    files = sorted(folder.glob("*.safetensors"))
    if ("sha256" in checkpoint) != (len(files) == 1):
        mismatch("a checkpoint without its weights", folder, "one file, where its record names one", len(files))
    for path in files:
        found = file_sha256(path)
        if found != checkpoint.get("sha256"):
            mismatch("the weights of a checkpoint were changed", path, checkpoint.get("sha256"), found)


def _check_images(study: Study, run: RunPaths, key: RunKey, step: int, prompts: list[Prompt], model: Path) -> str:
    """A checkpoint's images are those of their manifest; returns the environment that it names."""
    folder = run.images(step)
    manifest = read_json(folder / IMAGES_MANIFEST)
    wanted = {
        "key": key.row(),
        "step": step,
        "signature": evaluation_signature(study, key.backbone, prompts),
        "images": len(prompts) * study.evaluation.images_per_prompt,
        "images_sha256": folder_sha256(folder, lambda path: path.suffix == ".png"),
    }
    for name, value in wanted.items():
        if manifest.get(name) != value:
            mismatch(f"images of another {name}", folder / IMAGES_MANIFEST, value, manifest.get(name))
    traced = {
        "checkpoint_sha256": folder_sha256(run.checkpoint(step)),
        "model_sha256": file_sha256(model),
        "signature": wanted["signature"],
    }
    made_from = manifest.get("made_from", {}) | {"run_status": manifest.get("run_status", COMPLETE)}
    for name, value in (traced | {"run_status": COMPLETE}).items():
        if made_from.get(name, value) != value:
            mismatch(f"images of another {name}", folder, value, made_from[name])
    return _checked_environment(folder / IMAGES_MANIFEST, manifest) if "environment" in manifest else ""


def _check_scores(
    study: Study, paths: StudyPaths, run: RunPaths, key: RunKey, step: int, prompts: list[Prompt]
) -> list[Row]:
    path = run.scores(step)
    rows: list[Row] = read_scores(path).to_pylist()
    signature = evaluation_signature(study, key.backbone, prompts)
    labels = {metric: read_json(paths.scorer(metric) / "scorer.json")["label"] for metric in study.scorers}
    for number, row in enumerate(rows, start=1):
        place = f"{path}, row {number}"
        if {name: row[name] for name in key.row()} != key.row() or row["step"] != step:
            mismatch("scores of another run", place, f"{key}, step {step}", f"{row['arm']}, seed {row['seed']}")
        if row["scorer"] != labels.get(row["metric"]):
            mismatch("a score of another scorer", place, labels.get(row["metric"]), row["scorer"])
        if row["signature"] != signature:
            mismatch("a score of other images", place, signature, row["signature"])
    items = [(row["metric"], row["prompt_id"], row["image_index"]) for row in rows]
    wanted = {
        (metric, prompt.id, index)
        for metric in study.scorers
        for prompt in prompts
        for index in range(study.evaluation.images_per_prompt)
    }
    if len(items) != len(wanted) or set(items) != wanted:
        mismatch("scores are missing or stand twice", path, f"{len(wanted)} scores", f"{len(items)} rows")
    return rows


def check_pairs(study: Study, paths: StudyPaths, runs: dict[RunKey, CheckedRun]) -> None:
    """Runs of one seed share environment, noise, transitions, scorers and untouched model; seeds do not share noise."""
    reference = study.comparison.reference
    for key, run in runs.items():
        partner = runs.get(RunKey(key.backbone, key.algorithm, reference, key.seed))
        if partner is None or key.arm == reference:
            continue
        where = paths.run(key).folder
        steps = min(len(run.noise), len(partner.noise))
        for theirs, ours in zip(partner.made_in, run.made_in):
            if theirs != ours:
                mismatch(f"another environment than {reference}'s run of this seed", where, theirs, ours)
        shares_noise = not study.arms[key.arm].noise_streams
        if shares_noise and (
            run.noise[:steps] != partner.noise[:steps] or run.transitions[:steps] != partner.transitions[:steps]
        ):
            mismatch(
                f"other prompts, noise or windows than {reference}'s run of this seed", where, "equal", "different"
            )
        if run.scored and partner.scored and run.scored != partner.scored:
            differing = sorted(run.scored ^ partner.scored)
            mismatch(f"scored otherwise than {reference}'s run of this seed", where, "one scoring", differing[:2])
        _check_untouched(where, run, partner)
    _check_seeds(paths, runs)


def _check_untouched(where: Path, run: CheckedRun, partner: CheckedRun) -> None:
    """Arms start from one model, so their scores at step 0 are equal, up to rounding of an accelerator."""
    for item in run.untouched.keys() & partner.untouched.keys():
        if abs(run.untouched[item] - partner.untouched[item]) > 1e-4:
            mismatch(f"the untouched model differs between arms ({item})", where, partner.untouched[item],
                     run.untouched[item])  # fmt: skip


def _check_seeds(paths: StudyPaths, runs: dict[RunKey, CheckedRun]) -> None:
    first: dict[tuple[str, str, str, str], RunKey] = {}
    for key, run in runs.items():
        for noise in run.noise[:1]:
            other = first.setdefault((key.backbone, key.algorithm, key.arm, noise), key)
            if other.seed != key.seed:
                mismatch("two seeds saw the same noise", paths.run(key).history, "other noise", str(other))


def check_base_scores(study: Study, rows: Iterable[tuple[str, str, int]]) -> None:
    """The untouched model has scores for every backbone and metric: absolute gaps can be told from effects."""
    found = {(backbone, metric) for backbone, metric, step in rows if step == 0}
    for backbone in study.backbones:
        for metric in study.scorers:
            if (backbone, metric) not in found:
                mismatch("no scores of the untouched model", "tables/scores.parquet", f"{backbone}, {metric}", "none")
