"""A study's files with known effects, written through the real writers; no model is trained or run."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from jagg.config import Study, load_study, resolve
from jagg.evaluate.signature import evaluation_signature
from jagg.identity import train_identity
from jagg.keys import RunKey, RunPaths, StudyPaths, image_name, run_keys
from jagg.prompts import Prompt, build_prompts, prompts_sha256, write_prompts
from jagg.records import (
    HISTORY,
    SCORES,
    file_sha256,
    folder_sha256,
    lock_sha256,
    table_of,
    text_sha256,
    write_json,
    write_table,
)

EFFECTS = {"baseline": 0.0, "jagg": 0.001, "ablation": -0.02}
"""True difference of an arm from the baseline at the last checkpoint, the same for every metric and cell; of any other
arm it is 0."""

PACKAGES = {"torch": "0.0"}
_UPDATE_S = {"baseline": 1.3, "jagg": 1.0, "ablation": 0.9}


def simulated_study(results: Path, seeds: tuple[int, ...] = (0, 1, 2), **changes: Any) -> Study:
    """The study of simulated.yaml with its results under `results`."""
    study = load_study(Path(__file__).with_name("simulated.yaml"))
    content = study.model_dump(mode="json") | {"results": str(results), "seeds": list(seeds)} | changes
    return Study.model_validate(content)


def only(study: Study, **kept: Iterable[str]) -> Study:
    """The study with these backbones, algorithms, arms or scorers alone, for tests that need no more."""
    content = study.model_dump(mode="json")
    for part, names in kept.items():
        content[part] = {name: content[part][name] for name in names}
    for settings in (content["reward"]["weights"], content["comparison"]["margins"]):
        for metric in settings.keys() - content["scorers"].keys():
            del settings[metric]
    for arm in content["arms"].values():
        share = arm["routing"]["jagg_frac"]
        if isinstance(share, dict):
            arm["routing"]["jagg_frac"] = {name: share[name] for name in content["algorithms"]}
    return Study.model_validate(content)


def study_like(name: str, results: Path, **changes: Any) -> Study:
    """The simulated study with the arms, algorithms, backbones and probe of configs/<name>.yaml."""
    content = load_study(Path(__file__).parents[1] / "configs" / f"{name}.yaml").model_dump(mode="json")
    parts = {part: content[part] for part in ("description", "arms", "algorithms", "probe")}
    backbones = {
        label: backbone | {"source": {"kind": "embedded", "autoencoder_steps": 1, "flow_steps": 1}}
        for label, backbone in content["backbones"].items()
    }
    if content["probe"] is not None:
        parts["probe"]["holdout"]["checkpoints"] = [0, 12]
    return simulated_study(results, **{**parts, "study": name, "backbones": backbones, **changes})


def write_runs(study: Study, diverged: tuple[RunKey, ...] = ()) -> StudyPaths:
    """Write models, scorers, prompts and every run that is not there yet; diverged runs stop half-way."""
    paths = StudyPaths.of(study)
    write_json(paths.config, study.model_dump(mode="json"))
    for name in study.backbones:
        family = study.backbones[name].family
        record = {"family": family, "label": f"embedded {name} (0.47 M parameters)", "source": {"kind": "embedded"}}
        write_json(paths.backbone(name) / "model.json", record)
    for name in study.scorers:
        record = {"family": name, "label": f"embedded-{name}-simulated@0123456789ab", "source": {"kind": "embedded"}}
        write_json(paths.scorer(name) / "scorer.json", record)
    prompts = build_prompts(study)
    for split, members in prompts.items():
        write_prompts(paths.prompts(split), members)
    for key in run_keys(study):
        if not paths.run(key).manifest.exists():
            write_run(study, paths, key, prompts["evaluation"], key in diverged)
    return paths


def write_run(study: Study, paths: StudyPaths, key: RunKey, prompts: list[Prompt], diverged: bool = False) -> None:
    """One run's history, scores, images and, last, run.json."""
    run = paths.run(key)
    last = study.training.trained_steps // (2 if diverged else 1)
    history = _history(study, key, last, diverged)
    write_table(run.history, table_of(history, HISTORY))
    scorers = {f"scorer {name}": f"embedded-{name}-simulated@0123456789ab" for name in study.reward.weights}
    weights = {"backbone": folder_sha256(paths.backbone(key.backbone)), **scorers}
    inputs = [train_identity(study, key), train_sha256 := prompts_sha256(build_prompts(study)["train"])]
    made_by = text_sha256("\n".join([*inputs, *map(str, sorted(weights.items()))]))
    for step in study.training.checkpoints:
        rows = [] if diverged else _scores(study, key, step, prompts)
        write_table(run.scores(step), table_of(rows, SCORES))
        if not diverged:
            _write_checkpoint(run.checkpoint(step), step, made_by)
            _write_images(study, run, key, step, prompts)
    record = {
        **key.row(),
        "status": "diverged" if diverged else "complete",
        "diverged": {"step": last, "quantity": "reward", "value": "nan"} if diverged else None,
        "identity": json.loads(train_identity(study, key)),
        "identity_sha256": text_sha256(train_identity(study, key)),
        "prompts_sha256": train_sha256,
        "weights": weights,
        "trained_steps": last,
        "trained_transitions": [
            {"transitions": list(_transitions(study, key, step)), "steps": [step]} for step in range(1, last + 1)
        ],
        "totals": {
            name: sum(row[name] for row in history)
            for name in ("update_s", "step_s", "backward_passes", "backward_passes_expected", "images")
        },
        "lost_steps": [],
        "started": 1_700_000_000.0,
        "finished": 1_700_000_100.0,
        "environment": {
            "python": "3.11.0", "packages": PACKAGES, "lock_sha256": lock_sha256(PACKAGES),
            "machine": "simulated", "processor": "simulated",
        },
    }  # fmt: skip
    write_json(run.manifest, record)


def _rng(*parts: object) -> np.random.Generator:
    return np.random.default_rng(list(repr(parts).encode()))


def _transitions(study: Study, key: RunKey, step: int) -> range:
    """Transitions that a training step trains; the same for every arm."""
    algorithm = study.algorithms[key.algorithm]
    if algorithm.family == "dancegrpo":
        return range(algorithm.sampling_steps)
    first, end = algorithm.sde_window_range
    draw = _rng("step", key.backbone, key.algorithm, key.seed, step)
    start = int(draw.integers(first, end - algorithm.sde_window_size + 1))
    return range(start, start + algorithm.sde_window_size)


_NODES = {"jagg": 2, "endpoint_only": 2, "kriging": 2, "monte_carlo": 2, "quadratic": 3, "midpoint": 1}


def _windows(study: Study, key: RunKey, trained: range) -> tuple[int, int, int]:
    """Exact and approximate windows of a trajectory, and its backward passes, counted by hand."""
    algorithm, arm = study.algorithms[key.algorithm], study.arms[key.arm]
    share, length = resolve(arm.routing.jagg_frac, key.algorithm), arm.window or algorithm.window
    windows = [trained[start : start + length] for start in range(0, len(trained), length)]
    rough = [
        arm.estimator != "exact" and len(window) >= 2 and window[0] / algorithm.sampling_steps < share
        for window in windows
    ]
    nodes = sum(_NODES.get(arm.estimator, 0) if far else len(window) for window, far in zip(windows, rough))
    return rough.count(False), rough.count(True), nodes


def _history(study: Study, key: RunKey, last: int, diverged: bool) -> list[dict[str, Any]]:
    rows = []
    images = study.training.prompts_per_step * study.training.group_size
    for step in range(1, last + 1):
        shared, own = _rng("step", key.backbone, key.algorithm, key.seed, step), _rng("own", key, step)
        trained = _transitions(study, key, step)
        exact, approximate, nodes = _windows(study, key, trained)
        passes = images * nodes
        arm, forwards = study.arms[key.arm], study.algorithms[key.algorithm].sampling_steps * images
        repeated = {"native": len(trained) * images, "reuse": passes}.get(arm.schedule, 0)
        progress = step / study.training.trained_steps
        reward = 0.3 + progress * (0.05 + EFFECTS.get(key.arm, 0)) + 0.003 * shared.normal() + 0.001 * own.normal()
        usual = 1.3 * (0.2 + (0.8 if arm.schedule == "native" else 0.6) * nodes / len(trained))
        update_s = _UPDATE_S.get(key.arm, usual) * (1 + 0.02 * own.normal())
        rows.append(
            {
                **key.row(),
                "step": step,
                "attempt": 1,
                "reward_mean": float("nan") if diverged and step == last else reward,
                "reward_std": 0.02,
                "zero_spread_groups": 0,
                "ratio_max_deviation": 0.0,
                "clip_fraction": 0.0,
                "grad_norm": float("inf") if diverged and step == last else 0.4 + 0.05 * own.normal(),
                "loss": 0.001 * own.normal(),
                "rollout_s": 0.58,
                "update_s": update_s,
                "step_s": 0.58 + update_s,
                "backward_passes": passes,
                "forward_passes_grad": passes,
                "forward_passes_nograd": forwards + repeated - passes,
                "optimizer_steps": 1,
                "images": images,
                "peak_memory_bytes": 10**9,
                "windows_exact": exact,
                "windows_approximate": approximate,
                "backward_passes_expected": passes,
                "reward_parts": '{"clipscore": {"mean": 0.3, "std": 0.02}, "hpsv2": {"mean": 0.31, "std": 0.02}}',
                "noise_sha256": f"{key.seed:064d}",
                "reward_s": 0.2,
                "rest_s": 0.01,
                "forward_passes_recomputed": 0,
                "synchronizations": 9,
                "transformer_flops": None,
                "saved_activation_bytes": None,
            }
        )
    return rows


def _scores(study: Study, key: RunKey, step: int, prompts: list[Prompt]) -> list[dict[str, Any]]:
    rows = []
    progress = step / study.training.trained_steps
    signature = evaluation_signature(study, key.backbone, prompts)
    for metric in study.scorers:
        seed_shift = 0.01 * _rng("seed", key.backbone, key.algorithm, key.seed).normal()
        arm_shift = 0.002 * _rng("arm", key, metric).normal()
        for prompt in prompts:
            prompt_shift = 0.05 * _rng("prompt", prompt.id).normal()
            for index in range(study.evaluation.images_per_prompt):
                noise = 0.005 * progress * _rng("image", key, metric, step, prompt.id, index).normal()
                gain = progress * (0.05 + seed_shift + arm_shift + EFFECTS.get(key.arm, 0))
                rows.append(
                    {
                        **key.row(),
                        "step": step,
                        "prompt_id": prompt.id,
                        "image_index": index,
                        "metric": metric,
                        "value": 0.3 + prompt_shift + gain + noise,
                        "unit": "cosine",
                        "scorer": f"embedded-{metric}-simulated@0123456789ab",
                        "signature": signature,
                        "environment": "0123456789ab",
                        "prompt_group": prompt.group,
                        "truncated": False,
                    }
                )
    return rows


def _write_checkpoint(folder: Path, step: int, made_by: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"kind": "full" if step else "base", "step": step, "run": made_by}
    if step:
        weights = folder / "diffusion_pytorch_model.safetensors"
        weights.write_text(f"weights of {made_by} at {step}")
        record["sha256"] = file_sha256(weights)
    write_json(folder / "checkpoint.json", record)


def _write_images(study: Study, run: RunPaths, key: RunKey, step: int, prompts: list[Prompt]) -> None:
    folder, per_prompt = run.images(step), study.evaluation.images_per_prompt
    folder.mkdir(parents=True, exist_ok=True)
    for number, prompt in enumerate(prompts):
        for index in range(per_prompt):
            colour = (60 * number, 12 * step, 255 * list(study.arms).index(key.arm) // len(study.arms) if step else 128)
            Image.new("RGB", (32, 32), colour).save(folder / image_name(prompt.id, index))
    record = {
        "key": key.row(),
        "step": step,
        "signature": evaluation_signature(study, key.backbone, prompts),
        "images": len(prompts) * per_prompt,
        "images_sha256": folder_sha256(folder, lambda path: path.suffix == ".png"),
        "made_from": {"checkpoint_sha256": folder_sha256(run.checkpoint(step))},
    }
    write_json(folder / "images.json", record)
