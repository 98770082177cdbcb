"""Time and memory of one training step for every arm x schedule, against the exact gradient by the native schedule.

    python benchmarks/step_time.py [--rounds 15] [--models flux qwen_image wide] [--threads 1] [--out FILE.csv]

All arms run in one process and take turns, each round in another order; a ratio is that of one round, so what slows the
machine slows both. The interval is Student's, 95 %, on the logarithms of the rounds' ratios. A step is the rollout and
the update, the optimizer's included; decoding and scoring are the same for every arm and left out. Weights are random:
time does not depend on them.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from scipy import stats

from jagg.algorithms import plans
from jagg.backbones.flux import FluxBackbone
from jagg.backbones.protocol import Backbone, TextFeatures
from jagg.backbones.qwen_image import QwenImageBackbone
from jagg.config import DanceGRPO, EmbeddedBackbone, LoRA, Training
from jagg.flow import StepNoise
from jagg.gradients import estimator_of, schedule_of
from jagg.gradients.schedules.protocol import Method
from jagg.pretrain.backbones import embedded_transformer_config
from jagg.records import write_table
from jagg.train.ledger import Ledger
from jagg.train.parameters import Trained

REFERENCE = "exact native"
ARMS = [
    f"{estimator} {schedule}"
    for estimator in ("exact", "jagg")
    for schedule in ("native", "reuse", "retain", "reweight")
]
GRID, TEXT_TOKENS, TEXT_WIDTH = 4, 16, 64
MODELS: dict[str, tuple[str, dict[str, int]]] = {
    "flux": ("flux", {}),
    "qwen_image": ("qwen_image", {"num_layers": 3}),
    "wide": ("flux", {"num_heads": 12, "head_dim": 24, "num_layers": 2, "num_single_layers": 3}),
}
"""The small models of configs/small.yaml, and one whose matrix products outweigh everything else."""


def backbone(name: str) -> Backbone:
    """An embedded backbone with random weights; nothing is decoded or encoded here."""
    family, sizes = MODELS[name]
    source = EmbeddedBackbone(kind="embedded", autoencoder_steps=1, flow_steps=1, **sizes)
    config = embedded_transformer_config(family, source)
    torch.manual_seed(0)
    common = {"pipeline": None, "label": name, "grid": GRID, "latent_shape": (GRID**2, 16), "max_text_tokens": 16}
    if family == "flux":
        from diffusers import FluxTransformer2DModel

        return FluxBackbone(transformer=FluxTransformer2DModel(**config).eval(), guidance_scale=None, **common)
    from diffusers import QwenImageTransformer2DModel

    transformer = QwenImageTransformer2DModel(**config).eval()
    return QwenImageBackbone(transformer=transformer, evaluations_per_velocity=1, **common)


def text(images: int) -> TextFeatures:
    """Random features of as many prompts."""
    return TextFeatures(
        {
            "prompt_embeds": torch.randn(images, TEXT_TOKENS, TEXT_WIDTH),
            "prompt_embeds_mask": torch.ones(images, TEXT_TOKENS, dtype=torch.bool),
            "pooled_prompt_embeds": torch.randn(images, TEXT_WIDTH),
        }
    )


@dataclass
class Arm:
    """One arm on one model, and what its rounds took."""

    name: str
    model: Backbone
    trained: Trained
    images: int
    micro_batch: int
    rollout_s: list[float] = field(default_factory=list)
    update_s: list[float] = field(default_factory=list)
    flops: int = 0
    saved_bytes: int = 0

    def step(self, seed: int, measure: bool = False) -> None:
        """One rollout and one update; a measured one counts operations and saved bytes and is not timed."""
        estimator, schedule = self.name.split()
        algorithm = DanceGRPO(family="dancegrpo", sampling_steps=20, window=4, clip_range=1e-4)
        (plan,), of = plans(algorithm), schedule_of(schedule)
        method = Method(estimator_of(estimator), 0.6, algorithm.clip_range, self.micro_batch)
        noise = StepNoise(0, seed, 1, ["p"] * self.images, list(range(self.images)), self.model.latent_shape)
        initial, advantages = noise.initial(True), torch.linspace(-2, 2, self.images)
        drawn = [noise.transition(j) for j in range(20)]
        features = text(self.images)
        ledger = Ledger(self.model)
        with ledger.measuring(measure) as cost:
            started = time.perf_counter()
            made = of.rollout(ledger, method, plan, features, initial, drawn.__getitem__, generator)
            rolled = time.perf_counter()
            self.trained.optimizer.zero_grad(set_to_none=True)
            of.accumulate(ledger, method, made, advantages, slice(None), generator)
            self.trained.clip()
            self.trained.step()
            done = time.perf_counter()
        if measure:
            self.flops, self.saved_bytes = cost.transformer_flops or 0, cost.saved_activation_bytes or 0
        else:
            self.rollout_s.append(rolled - started)
            self.update_s.append(done - rolled)

    @property
    def step_s(self) -> np.ndarray:
        return np.array(self.rollout_s) + np.array(self.update_s)


def generator(start: int) -> torch.Generator:
    """The estimator's own, for the window that starts at a step."""
    return torch.Generator().manual_seed(start)


def ratio(reference: np.ndarray, arm: np.ndarray) -> tuple[float, float, float]:
    """Geometric mean of the rounds' ratios and its 95 % interval; without an interval from one round."""
    logs = np.log(reference / arm)
    mean = float(logs.mean())
    if len(logs) < 2 or not logs.any():
        return math.exp(mean), math.nan, math.nan
    half = float(stats.t.ppf(0.975, len(logs) - 1) * stats.sem(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def measure(
    name: str, names: list[str], rounds: int, images: int, micro_batch: int, lora: LoRA | None
) -> list[dict[str, object]]:
    """Rows of one model, one an arm."""
    model = backbone(name)
    training = Training(
        trained_steps=1, prompts_per_step=1, group_size=images, micro_batch_size=micro_batch, learning_rate=1e-6,
        checkpoints=(0, 1), lora=lora,
    )  # fmt: skip
    trained = Trained.of(model, training, 1.0, 0)
    arms = [Arm(arm, model, trained, images, micro_batch) for arm in names]
    for arm in arms:
        arm.step(0)  # what the first call sets up is not the step's cost
        arm.rollout_s.clear()
        arm.update_s.clear()
        arm.step(0, measure=True)
    for number in range(rounds):
        for place in range(len(arms)):
            arms[(place + number) % len(arms)].step(number)
        print(f"{name}: round {number + 1}/{rounds}", file=sys.stderr, flush=True)
    reference = arms[names.index(REFERENCE)]
    plain = np.array(reference.rollout_s)
    rollout_flops = reference.flops / 4  # a rollout is 20 of the 80 units of exact native (math.md 4)
    rows = []
    for arm in arms:
        after = ratio(np.array(reference.update_s), arm.step_s - plain)
        rows.append(
            {
                "model": name,
                "trained": "lora" if lora else "full",
                "arm": arm.name,
                "rollout_s": float(np.median(arm.rollout_s)),
                "update_s": float(np.median(arm.update_s)),
                "step_s": float(np.median(arm.step_s)),
                **_columns("update_ratio", ratio(np.array(reference.update_s), np.array(arm.update_s))),
                **_columns("beyond_rollout_ratio", after),
                "beyond_rollout_flop_ratio": (reference.flops - rollout_flops) / (arm.flops - rollout_flops),
                **_columns("step_ratio", ratio(reference.step_s, arm.step_s)),
                "step_flop_ratio": reference.flops / arm.flops,
                "saved_activation_mb": arm.saved_bytes / 1e6,
                "rounds": rounds,
            }
        )
    return rows


def _columns(name: str, values: tuple[float, float, float]) -> dict[str, float]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), values))


def show(rows: list[dict[str, object]], write: Callable[[str], object]) -> None:
    """The table for people."""

    def interval(row: dict[str, object], name: str) -> str:
        if math.isnan(row[name + "_low"]):
            return f"{row[name]:.2f}"
        return f"{row[name]:.2f} [{row[name + '_low']:.2f}, {row[name + '_high']:.2f}]"

    write(
        f"{'model':<11}{'trained':<8}{'arm':<16}{'rollout_s':>10}{'update_s':>10}  {'update ratio':<20}"
        f"{'beyond rollout':<20}{'(FLOP)':<8}{'step ratio':<20}{'(FLOP)':<8}{'saved MB':>9}"
    )
    for row in rows:
        write(
            f"{row['model']:<11}{row['trained']:<8}{row['arm']:<16}{row['rollout_s']:>10.3f}{row['update_s']:>10.3f}  "
            f"{interval(row, 'update_ratio'):<20}{interval(row, 'beyond_rollout_ratio'):<20}"
            f"{row['beyond_rollout_flop_ratio']:<8.2f}{interval(row, 'step_ratio'):<20}{row['step_flop_ratio']:<8.2f}"
            f"{row['saved_activation_mb']:>9.1f}"
        )
    write("")
    write(
        "ratios: exact native over the arm; update: after the rewards; beyond rollout: the step less native's rollout"
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="timed steps of each arm")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS, help="besides exact native")
    parser.add_argument("--images", type=int, default=48, help="images of a step")
    parser.add_argument("--micro-batch", type=int, default=48, help="images that go through the transformer at a time")
    parser.add_argument("--lora", type=int, default=0, help="rank of adapters; 0 trains all parameters")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="also write a CSV file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    lora = LoRA(rank=arguments.lora, alpha=2 * arguments.lora) if arguments.lora else None
    arms = [arm for arm in ARMS if arm in (REFERENCE, *arguments.arms)]
    rows = []
    for name in arguments.models:
        rows += measure(name, arms, arguments.rounds, arguments.images, arguments.micro_batch, lora)
    show(rows, print)
    if arguments.out:
        write_table(arguments.out, pa.Table.from_pylist(rows))


if __name__ == "__main__":
    main()
