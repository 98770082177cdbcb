"""One cell and seed: rollouts of the probe's prompts on checkpoints of the reference run, window by window."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float
from torch import Tensor

from jagg.algorithms.advantages import group_advantages
from jagg.backbones.protocol import Backbone
from jagg.config import Study
from jagg.errors import InputError
from jagg.flow.noise import StepNoise
from jagg.flow.rollout import Rollout, rollout
from jagg.flow.schedule import TransitionPlan
from jagg.gradients.estimators import estimator_of
from jagg.gradients.schedules.windows import window_signals
from jagg.identity import ended_run
from jagg.keys import RunKey, StudyPaths
from jagg.probe.conditions import PROMPTS_OF, STRESS, Condition, conditions
from jagg.probe.quality import measure_window
from jagg.probe.vjp import Products
from jagg.prompts import Prompt, read_prompts
from jagg.records import GRADIENT_PROBES, table_of
from jagg.scorers.protocol import Scorer
from jagg.train.checkpoint import load_checkpoint
from jagg.train.loop import load_models
from jagg.train.parameters import trainable
from jagg.train.rewards import score_images

_NOISE_STEP = 0
"""Training steps count from 1, so the probe's noise is none that a run was trained on; equal for every checkpoint."""


@dataclass(frozen=True)
class Policy:
    """A loaded backbone with a checkpoint, and what scores its images."""

    backbone: Backbone
    scorers: dict[str, Scorer]
    parameters: dict[str, torch.nn.Parameter]

    @property
    def precision(self) -> str:
        return str(next(self.backbone.transformer.parameters()).dtype).removeprefix("torch.")


def load_policy(study: Study, key: RunKey, paths: StudyPaths, precision: str | None) -> Policy:
    """The backbone with its trained parameters, not yet at a checkpoint; `precision` None: as trained.

    Raises:
        InputError: a model is missing, damaged, or does not fit its configuration.
    """
    if precision is not None:
        config = study.backbones[key.backbone].model_copy(update={"precision": precision})
        study = study.model_copy(update={"backbones": study.backbones | {key.backbone: config}})
    scorers = {metric: paths.scorer(metric) for metric in study.reward.weights}
    models = load_models(study, key, paths.backbone(key.backbone), scorers)
    dtype = getattr(torch, precision or "float32")
    parameters, _ = trainable(models.backbone, study.training, study.seed, key.seed, dtype=dtype)
    return Policy(models.backbone, models.scorers, parameters)


def probe_cell(
    study: Study,
    key: RunKey,
    paths: StudyPaths,
    *,
    load: Callable[[Study, RunKey, StudyPaths, str | None], Policy] = load_policy,
    note: Callable[[str], None] = print,
) -> pa.Table:
    """Gradient quality of every window of a seed's conditions, as rows of GRADIENT_PROBES; `key` is a reference run.

    Raises:
        InputError: the seed is in no split, the run was made with other settings, or a checkpoint, a model or prompts
            are missing.
    """
    assert study.probe is not None
    wanted = _with_checkpoints(study, key, paths, conditions(study, key), note)
    prompts = {name: read_prompts(paths.prompts(name)) for name in set(PROMPTS_OF.values())}
    rows: list[dict[str, Any]] = []
    for precision, group in groupby(wanted, key=lambda condition: condition.precision):
        policy = load(study, key, paths, precision)
        for step, members in groupby(group, key=lambda condition: condition.step):
            load_checkpoint(policy.backbone, paths.run(key).checkpoint(step))
            for condition in members:
                chosen = prompts[PROMPTS_OF[condition.split]][: condition.prompts]
                for plan in condition.plans():
                    rows += _measure(study, key, policy, condition, plan, chosen)
                note(f"{key} step {step}, {condition.split}: {len(rows)} rows")
    return table_of(rows, GRADIENT_PROBES)


def _with_checkpoints(
    study: Study, key: RunKey, paths: StudyPaths, wanted: list[Condition], note: Callable[[str], None]
) -> list[Condition]:
    if not wanted:
        raise InputError(
            "no split of the probe has this seed",
            where="--seed",
            expected="a seed of probe.calibration or probe.holdout",
            got=key.seed,
        )
    run = paths.run(key)
    record = ended_run(study, key, run)
    lost = sorted({condition.step for condition in wanted if not run.checkpoint(condition.step).is_dir()})
    if lost and record["status"] != "diverged":
        raise InputError(
            "the run has no such checkpoint",
            where=run.folder,
            expected="one of " + ", ".join(sorted(path.name for path in (run.folder / "checkpoints").glob("step-*"))),
            got=", ".join(f"step-{step}" for step in lost),
            fix="train the run again",
        )
    for step in lost:
        note(f"{key} step {step}: no checkpoint, the run diverged before it")
    return [condition for condition in wanted if condition.step not in lost]


def _measure(
    study: Study, key: RunKey, policy: Policy, condition: Condition, plan: TransitionPlan, prompts: list[Prompt]
) -> Iterator[dict[str, Any]]:
    probe, backbone = study.probe, policy.backbone
    assert probe is not None
    group = study.training.group_size
    images = [prompt for prompt in prompts for _ in range(group)]
    made = _rollout(study, key, policy, condition, plan, prompts)
    advantages = _advantages(study, policy, condition, made, images)
    products = Products(backbone, tuple(policy.parameters.values()), study.training.micro_batch_size)
    estimators = {name: estimator_of(name) for name in condition.estimators}
    stressed = condition.split == STRESS
    scopes: list[tuple[str, slice]] = [("rollout", slice(i, i + 1)) for i in range(len(images))]
    scopes += [("batch", slice(0, len(images)))] if probe.whole_batch else []
    for transitions in plan.windows:
        for scope, samples in scopes:
            clip_range = condition.algorithm.clip_range
            signals = window_signals(made, transitions, samples, advantages[samples], clip_range).signals
            alone = scope == "rollout"
            bound = probe.bound and alone and not stressed
            for row in measure_window(products, made, transitions, samples, signals, estimators, bound):
                yield {
                    "backbone": key.backbone,
                    "algorithm": key.algorithm,
                    "seed": key.seed,
                    "step": condition.step,
                    "split": condition.split,
                    "window_length": condition.algorithm.window,
                    "sampling_steps": plan.sampling_steps,
                    "precision": policy.precision,
                    "scope": scope,
                    "window": transitions[0] // condition.algorithm.window,
                    "start": transitions[0],
                    "transitions": len(transitions),
                    "sigma_start": plan.sigmas[transitions[0]],
                    "sigma_end": plan.sigmas[transitions[-1] + 1],
                    "prompt_id": images[samples.start].id if alone else None,
                    "image_index": samples.start % group if alone else None,
                    **row,
                }


def _rollout(
    study: Study, key: RunKey, policy: Policy, condition: Condition, plan: TransitionPlan, prompts: list[Prompt]
) -> Rollout:
    group = study.training.group_size
    places = [place for place in range(len(prompts)) for _ in range(group)]
    noise = StepNoise(
        study.seed,
        key.seed,
        _NOISE_STEP,
        [prompts[place].id for place in places],
        list(range(group)) * len(prompts),
        policy.backbone.latent_shape,
    )
    device = next(policy.backbone.transformer.parameters()).device
    initial = noise.initial(condition.algorithm.shared_initial_noise).to(device)  # type: ignore[attr-defined]
    text = policy.backbone.encode_prompts([prompt.text for prompt in prompts])[places]
    return rollout(policy.backbone, plan, text, initial, noise.transition, study.training.micro_batch_size)


def _advantages(
    study: Study, policy: Policy, condition: Condition, made: Rollout, images: list[Prompt]
) -> Float[Tensor, "batch"]:
    size = study.training.micro_batch_size
    parts = [made.clean[first : first + size] for first in range(0, len(images), size)]
    decoded = np.concatenate([policy.backbone.decode(part).cpu().numpy() for part in parts])
    rewards = score_images(decoded, [prompt.text for prompt in images], policy.scorers, study.reward)
    return group_advantages(
        torch.from_numpy(rewards.total),
        study.training.group_size,
        deviation=condition.algorithm.advantage_deviation,
        adv_clip=condition.algorithm.adv_clip,
    ).to(made.latents)
