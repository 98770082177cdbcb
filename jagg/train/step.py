"""One training step: draw, roll out, reward, update (math.md 1 to 4)."""

import hashlib
import json
import math
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from jagg import config as configuration
from jagg.algorithms import plans
from jagg.algorithms.advantages import group_advantages, verify_groups, zero_spread
from jagg.backbones.protocol import Backbone, TextFeatures
from jagg.config import Study, resolve
from jagg.cost.passes import plan_passes, windows_passes
from jagg.flow.noise import StepNoise
from jagg.flow.rollout import Rollout
from jagg.flow.schedule import TransitionPlan
from jagg.gradients.estimators import arm_estimator
from jagg.gradients.schedules import schedule_of
from jagg.gradients.schedules.protocol import Method, UpdateStatistics
from jagg.keys import RunKey
from jagg.prompts import Prompt
from jagg.scorers.protocol import Scorer
from jagg.streams import stream_seed
from jagg.train.ledger import Ledger
from jagg.train.parameters import Trained
from jagg.train.rewards import Rewards, score_images

_CACHED_PROMPTS = 512


class DivergedError(ArithmeticError):
    """A latent, reward, loss or gradient is not finite, or all images are black: the run ends, shown as diverged."""

    def __init__(self, step: int, quantity: str, value: float) -> None:
        super().__init__(f"step {step}: {quantity} is {value}")
        self.step, self.quantity, self.value = step, quantity, value


@dataclass(frozen=True)
class Batch:
    """What a step's streams draw before any network runs: equal for every arm of a seed."""

    plan: TransitionPlan
    prompts: tuple[Prompt, ...]
    """Prompt of each image; a group lies side by side."""
    noise: StepNoise
    initial: Float[Tensor, "batch tokens channels"]

    def sha256(self) -> str:
        """Hash of prompt order and initial noise."""
        digest = hashlib.sha256("\n".join(prompt.id for prompt in self.prompts).encode())
        digest.update(np.ascontiguousarray(self.initial.numpy()).tobytes())
        return digest.hexdigest()


def run_stream(study: Study, key: RunKey) -> int | str:
    """The run's part in the names of its streams: its seed, and in an A/A arm also which other noise it draws."""
    other = study.arms[key.arm].noise_streams
    return f"{key.seed} noise {other}" if other else key.seed


def draw_batch(study: Study, key: RunKey, prompts: list[Prompt], latent_shape: tuple[int, int], step: int) -> Batch:
    """What a step draws, from streams named by study seed, run seed and step."""
    training = study.training
    order = torch.randperm(len(prompts), generator=_stream("prompts", study, key, step))[: training.prompts_per_step]
    images = tuple(prompts[int(index)] for index in order for _ in range(training.group_size))
    noise = StepNoise(
        study.seed,
        run_stream(study, key),
        step,
        [prompt.id for prompt in images],
        list(range(training.group_size)) * training.prompts_per_step,
        latent_shape,
    )
    shared = study.algorithms[key.algorithm].shared_initial_noise
    return Batch(draw_plan(study, key, step), images, noise, noise.initial(shared))


def draw_plan(study: Study, key: RunKey, step: int) -> TransitionPlan:
    """The plan of a training step: one of the algorithm's equally likely ones, the same for every arm."""
    choices = plans(study.arms[key.arm].applied_to(study.algorithms[key.algorithm]))
    return choices[int(torch.randint(len(choices), (), generator=_stream("window", study, key, step)))]


def _stream(name: str, study: Study, key: RunKey, step: int) -> torch.Generator:
    return torch.Generator().manual_seed(stream_seed(name, study.seed, run_stream(study, key), step))


class Trainer:
    """A run between two steps: the networks, what is trained, and the settings resolved for this run."""

    def __init__(
        self, study: Study, key: RunKey, backbone: Backbone, scorers: dict[str, Scorer], prompts: list[Prompt]
    ) -> None:
        self.study, self.key, self.backbone, self.scorers, self.prompts = study, key, backbone, scorers, prompts
        self.training: configuration.Training = study.training
        self.algorithm = study.algorithms[key.algorithm]
        arm = study.arms[key.arm]
        self.schedule = schedule_of(arm.schedule_for(self.training.optimizer_steps_per_rollout))
        self.method = Method(
            arm_estimator(arm),
            resolve(arm.routing.jagg_frac, key.algorithm),
            self.algorithm.clip_range,
            self.training.micro_batch_size,
            None if arm.routing.max_residual is None else resolve(arm.routing.max_residual, key.algorithm),
        )
        max_grad_norm = resolve(self.training.max_grad_norm, key.backbone)
        self.trained = Trained.of(backbone, self.training, max_grad_norm, study.seed, run_stream(study, key))
        self.ledger = Ledger(backbone)
        self.device = next(backbone.transformer.parameters()).device
        self._text: dict[str, TextFeatures] = {}
        self._synchronizations = 0

    def step(self, step: int, attempt: int) -> dict[str, Any]:
        """Do training step `step` (from 1); returns its row of the history.

        Raises:
            DivergedError: a latent, reward, loss or gradient norm is not finite, or all images are black.
        """
        with self.ledger.measuring(step in self.training.measured_steps) as cost:
            row = self._row(step, attempt)
        return row | vars(cost)

    def _row(self, step: int, attempt: int) -> dict[str, Any]:
        started = time.perf_counter()
        batch = draw_batch(self.study, self.key, self.prompts, self.backbone.latent_shape, step)
        verify_groups([prompt.id for prompt in batch.prompts], self.training.group_size)
        text = self._text_features(batch.prompts)
        rolling = self._clock()
        rollout = self.schedule.rollout(
            self.ledger,
            self.method,
            batch.plan,
            text,
            batch.initial.to(self.device),
            batch.noise.transition,
            self._generators(step, 0),
        )
        rewarding = self._clock()
        # Decoding makes an image of anything, so a broken latent would be scored like any other.
        _check_finite(step, "latent", self._read(rollout.clean.sum()))
        images = self._decode(rollout.clean)
        _check_not_black(step, images)
        rewards = score_images(images, [p.text for p in batch.prompts], self.scorers, self.study.reward)
        _check_finite(step, "reward", rewards.total)
        total = torch.from_numpy(rewards.total)
        advantages = group_advantages(
            total,
            self.training.group_size,
            deviation=self.algorithm.advantage_deviation,
            adv_clip=self.algorithm.adv_clip,
        ).to(rollout.latents)
        updating = self._clock()
        update, made = self._update(step, rollout, advantages)
        done = self._clock()
        return {
            **self.key.row(),
            "step": step,
            "attempt": attempt,
            "zero_spread_groups": int(zero_spread(total, self.training.group_size).sum()),
            **update,
            "rollout_s": rewarding - rolling,
            "reward_s": updating - rewarding,
            "update_s": done - updating,
            "rest_s": rolling - started,
            "step_s": done - started,
            "images": len(batch.prompts),
            "peak_memory_bytes": peak_memory_bytes(),
            **self._ledger_row(batch, made),
            **_reward_row(rewards),
            "noise_sha256": batch.sha256(),
        }

    def _update(
        self, step: int, rollout: Rollout, advantages: Float[Tensor, "batch"]
    ) -> tuple[dict[str, float | int], list[UpdateStatistics]]:
        """The optimizer steps of a training step; each takes its share of the images."""
        count = self.training.optimizer_steps_per_rollout
        share = len(advantages) // count
        norms, losses, clipped, deviation, updates = [], [], [], 0.0, []
        for number in range(count):
            samples = slice(number * share, (number + 1) * share)
            self.trained.optimizer.zero_grad(set_to_none=True)
            made = self.schedule.accumulate(
                self.ledger, self.method, rollout, advantages, samples, self._generators(step, number)
            )
            updates.append(made)
            losses.append(self._read(made.loss.mean()))
            norms.append(self._read(self.trained.clip()))
            _check_finite(step, "loss", losses[-1])
            _check_finite(step, "gradient norm", norms[-1])
            self.trained.step()
            off = (made.ratio - 1).abs()
            clipped.append(self._read((off > self.method.clip_range).double().mean()))
            if number == 0:
                # No update yet, so the policy is the one that drew the images: the ratio should be 1.
                deviation = self._read(off.max())
        row = {
            "ratio_max_deviation": deviation,
            "clip_fraction": float(np.mean(clipped)),
            "grad_norm": float(np.mean(norms)),
            "loss": float(np.mean(losses)),
            "optimizer_steps": count,
        }
        return row, updates

    def _ledger_row(self, batch: Batch, updates: list[UpdateStatistics]) -> dict[str, int]:
        """What was counted, held against the nodes that were drawn; those are held against the configuration."""
        evaluations = self.backbone.evaluations_per_velocity
        share = len(batch.prompts) // len(updates)
        drawn = [windows_passes(u.windows, batch.plan.sampling_steps, self.schedule, evaluations) for u in updates]
        expected = evaluations * sum(window.expected for update in updates for window in update.windows)
        if self.method.max_residual is None and not self.method.estimator.depends_on_states:
            closed_form = plan_passes(
                batch.plan, self.method.estimator, self.schedule, self.method.jagg_frac, evaluations
            ).backward_passes
            assert math.isclose(expected, len(updates) * closed_form), (expected, closed_form)
        counts = self.ledger.take()
        counts.check(drawn, share)
        synchronizations, self._synchronizations = self._synchronizations, 0
        return {
            **vars(counts),
            # Each backward pass runs its forward once more; that is not one of the counted forwards.
            "forward_passes_recomputed": counts.backward_passes if self.training.gradient_checkpointing else 0,
            "synchronizations": synchronizations,
            "windows_exact": round(np.mean([passes.windows_exact for passes in drawn])),
            "windows_approximate": round(np.mean([passes.windows_approximate for passes in drawn])),
            "backward_passes_expected": round(share * expected),
        }

    def _generators(self, step: int, update: int) -> Callable[[int], torch.Generator]:
        names = (self.study.seed, run_stream(self.study, self.key), step, update)
        return lambda start: torch.Generator().manual_seed(stream_seed("estimator", *names, start))

    def _text_features(self, prompts: tuple[Prompt, ...]) -> TextFeatures:
        """Features of each image's prompt; a prompt is encoded once a job."""
        new = {prompt.id: prompt.text for prompt in prompts if prompt.id not in self._text}
        if len(self._text) + len(new) > _CACHED_PROMPTS:
            self._text.clear()
            new = {prompt.id: prompt.text for prompt in prompts}
        if new:
            encoded = self.backbone.encode_prompts(list(new.values()))
            self._text |= {name: encoded[i : i + 1] for i, name in enumerate(new)}
        names = self._text[prompts[0].id].tensors
        return TextFeatures({n: torch.cat([self._text[p.id].tensors[n] for p in prompts]) for n in names})

    def _decode(self, latents: Float[Tensor, "batch tokens channels"]) -> UInt8[np.ndarray, "batch height width 3"]:
        size = self.training.micro_batch_size
        parts = [latents[first : first + size] for first in range(0, len(latents), size)]
        self._synchronizations += len(parts)
        return np.concatenate([self.backbone.decode(part).cpu().numpy() for part in parts])

    def _read(self, value: Tensor) -> float:
        """A number on the host, which waits for the device."""
        self._synchronizations += 1
        return float(value)

    def _clock(self) -> float:
        self._synchronizations += 1
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def _check_finite(step: int, quantity: str, value: float | np.ndarray) -> None:
    wrong = [float(number) for number in np.atleast_1d(value) if not math.isfinite(number)]
    if wrong:
        raise DivergedError(step, quantity, wrong[0])


def _check_not_black(step: int, images: UInt8[np.ndarray, "batch height width 3"]) -> None:
    """A model whose images are black for every prompt has collapsed, and equal rewards give no gradient out of it."""
    brightest = int(images.max())
    if brightest <= 1:
        raise DivergedError(step, "brightest pixel of all images", brightest)


def _reward_row(rewards: Rewards) -> dict[str, Any]:
    return {
        "reward_mean": float(rewards.total.mean()),
        "reward_std": float(rewards.total.std(ddof=1)),
        "reward_parts": json.dumps(rewards.summary(), sort_keys=True),
    }


def peak_memory_bytes() -> int:
    """Most memory this process has held so far: on the accelerator where there is one, else resident."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    # Linux counts in kibibytes, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
