"""One training run from start or interruption to its manifest."""

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jagg.backbones.protocol import Backbone
from jagg.config import HubModel, Study
from jagg.errors import InputError
from jagg.identity import train_identity
from jagg.keys import RunKey, RunPaths
from jagg.prompts import Prompt, prompts_sha256, read_prompts
from jagg.records import HISTORY, folder_sha256, read_json, table_of, text_sha256, write_json, write_table
from jagg.scorers.protocol import Scorer
from jagg.train.checkpoint import RECORD, write_checkpoint
from jagg.train.lock import RunLock, run_lock
from jagg.train.manifest import discard_outputs, run_manifest
from jagg.train.state import Attempts, RunState
from jagg.train.step import DivergedError, Trainer

Note = Callable[[str], None]


@dataclass(frozen=True)
class Models:
    """The networks of a run and what identifies their weights."""

    backbone: Backbone
    scorers: dict[str, Scorer]
    backbone_sha256: str

    def hashes(self) -> dict[str, str]:
        """Name -> what identifies the weights."""
        return {
            "backbone": self.backbone_sha256,
            **{f"scorer {metric}": scorer.name for metric, scorer in self.scorers.items()},
        }


def load_models(study: Study, key: RunKey, backbone_folder: Path, scorer_folders: Mapping[str, Path]) -> Models:
    """Load the backbone and the reward's scorers onto the accelerator, if there is one.

    Raises:
        InputError: a model is missing, damaged, or does not fit its configuration.
    """
    import torch

    from jagg.backbones import load_backbone
    from jagg.scorers import load_scorer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = study.backbones[key.backbone]
    backbone = load_backbone(config, backbone_folder, device)
    scorers = {
        metric: load_scorer(study.scorers[metric], scorer_folders[metric], device) for metric in study.reward.weights
    }
    source = config.source
    # The hub's revision fixes the weights; tens of gigabytes are not read again for a hash.
    weights = f"{source.repo}@{source.revision}" if isinstance(source, HubModel) else folder_sha256(backbone_folder)
    return Models(backbone, scorers, weights)


def train_run(
    study: Study,
    key: RunKey,
    *,
    backbone_folder: Path,
    scorer_folders: Mapping[str, Path],
    prompts_path: Path,
    out: Path,
    note: Note = print,
) -> dict[str, Any]:
    """Train one run into `out`, continuing from its own state; returns the content of run.json.

    A run whose latents, reward, loss or gradient are not finite, or whose images are all black, ends with status
    `diverged` and what it has so far.

    Raises:
        InputError: a model or the prompts are at fault, or another process works on this run.
    """
    prompts = read_prompts(prompts_path)
    return run_training(
        study, key, prompts, out, lambda: load_models(study, key, backbone_folder, scorer_folders), note=note
    )


def run_training(
    study: Study,
    key: RunKey,
    prompts: list[Prompt],
    out: Path,
    load: Callable[[], Models],
    *,
    note: Note = print,
    on_step: Callable[[int, Backbone], None] | None = None,
) -> dict[str, Any]:
    """`train_run` with models from `load`; `on_step` is called after every complete step.

    Raises:
        InputError: fewer prompts than a step needs, or another process works on this run.
    """
    needed = study.training.prompts_per_step
    if len(prompts) < needed:
        raise InputError(
            "too few training prompts",
            where="training.prompts_per_step",
            expected=f"at most {len(prompts)}",
            got=needed,
        )
    paths = RunPaths(out)
    with run_lock(out) as lock:
        if lock.taken_over:
            note(f"{key}: took over the lock of a dead process: {lock.taken_over}")
        done = _finished(paths, text_sha256(train_identity(study, key)), prompts)
        if done:
            note(f"{key}: complete already")
            return done
        return _Run(study, key, prompts, paths, load(), lock, note).finish(on_step)


def _finished(paths: RunPaths, identity_sha256: str, prompts: list[Prompt]) -> dict[str, Any] | None:
    """The manifest of a run that ended under the same identity and prompts."""
    if not paths.manifest.exists():
        return None
    manifest = read_json(paths.manifest)
    same = manifest["identity_sha256"] == identity_sha256 and manifest["prompts_sha256"] == prompts_sha256(prompts)
    return manifest if same else None


class _Run:
    """One attempt at a run."""

    def __init__(
        self,
        study: Study,
        key: RunKey,
        prompts: list[Prompt],
        paths: RunPaths,
        models: Models,
        lock: RunLock,
        note: Note,
    ) -> None:
        self.study, self.key, self.prompts, self.paths = study, key, prompts, paths
        self.models, self.lock, self.note = models, lock, note
        self.identity = train_identity(study, key)
        parts = [self.identity, prompts_sha256(prompts), *map(str, sorted(models.hashes().items()))]
        # Weights and prompts are inputs: a state made with others is not this run's.
        self.digest = text_sha256("\n".join(parts))
        self.state = RunState.of(paths.state, self.digest)
        self.trainer = Trainer(study, key, models.backbone, models.scorers, prompts)
        self.history: list[dict[str, Any]] = []

    def finish(self, on_step: Callable[[int, Backbone], None] | None) -> dict[str, Any]:
        """Train what is left and write history and manifest, the manifest last."""
        last = self.study.training.trained_steps
        first = self._resume() + 1
        attempts = Attempts.begin(self.state, first - 1)
        diverged = None
        for step in _progress(range(first, last + 1), self.key, self.history, self.note):
            self.lock.verify()
            try:
                self.history.append(self.trainer.step(step, attempts.current))
            except DivergedError as error:
                diverged = error
                self.note(f"{self.key}: diverged at {error}; the run ends here")
                break
            self._keep(step)
            attempts.done(step)
            if on_step:
                on_step(step, self.models.backbone)
        write_table(self.paths.history, table_of(self.history, HISTORY))
        manifest = run_manifest(self.study, self.key, self.identity, self.history, attempts.entries, diverged) | {
            "model": self.models.backbone.label,
            "weights": self.models.hashes(),
            "prompts_sha256": prompts_sha256(self.prompts),
            "parameters_trained": sum(p.numel() for p in self.trainer.trained.parameters.values()),
            "lock_taken_over": self.lock.taken_over,
            "stale_states": self.state.stale(),
        }
        write_json(self.paths.manifest, manifest)
        shutil.rmtree(self.paths.state, ignore_errors=True)
        return manifest

    def _resume(self) -> int:
        """Bring back the saved state; returns the last step it holds, 0 for a new start."""
        for name in self.state.stale():
            self.note(f"{self.key}: state {name} belongs to other settings, code or models and is not used")
        saved = self.state.load()
        if saved and self._checkpoints_are_there(saved["step"]):
            self.trainer.trained.restore(saved["trained"])
            self.history = saved["history"]
            self.note(f"{self.key}: continues after step {saved['step']}")
            return saved["step"]
        discard_outputs(self.paths)
        self.state.discard()
        self._checkpoint(0)
        return 0

    def _checkpoints_are_there(self, step: int) -> bool:
        wanted = [self.paths.checkpoint(k) / RECORD for k in self.study.training.checkpoints if k <= step]
        return all(path.exists() and read_json(path)["run"] == self.digest for path in wanted)

    def _keep(self, step: int) -> None:
        training = self.study.training
        if step in training.checkpoints:
            self._checkpoint(step)
        if step % training.save_state_every == 0 and step < training.trained_steps:
            self.state.save(step, self.trainer.trained.state(), self.history)

    def _checkpoint(self, step: int) -> None:
        transformer = self.models.backbone.transformer
        write_checkpoint(self.paths.checkpoint(step), transformer, self.trainer.trained, step, self.digest)


def _progress(steps: range, key: RunKey, history: list[dict[str, Any]], note: Note) -> Any:
    """Steps with a bar on a terminal, and about twenty plain lines elsewhere."""
    if sys.stderr.isatty():
        from tqdm import tqdm

        yield from tqdm(steps, desc=str(key), unit="step")
        return
    every = max(1, len(steps) // 20)
    started = time.perf_counter()
    for done, step in enumerate(steps, start=1):
        yield step
        if (done % every == 0 or done == len(steps)) and history:
            left_s = (time.perf_counter() - started) / done * (len(steps) - done)
            reward = history[-1]["reward_mean"]
            note(f"{key}: step {step}/{steps[-1]}, reward {reward:.4f}, about {left_s:.0f} s left")
