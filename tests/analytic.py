"""Small networks with known mathematics behind the real protocols, and a study that trains them in a second."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from jagg.backbones.protocol import TextFeatures
from jagg.config import Study
from jagg.keys import RunKey
from jagg.prompts import Prompt
from jagg.train.loop import Models

TOKENS, CHANNELS = 4, 3
PROMPTS = [Prompt(f"p{i}", text, "") for i, text in enumerate(("red", "green", "blue", "grey", "dark", "light"))]


class Linear(nn.Module):
    """v = B z + c t + d, each channel mixed with the others; the exactness theorem's network."""

    def __init__(self, channels: int = CHANNELS) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.B = nn.Parameter(0.3 * torch.randn(channels, channels, generator=generator, dtype=torch.float64))
        self.c = nn.Parameter(torch.randn(channels, generator=generator, dtype=torch.float64))
        self.d = nn.Parameter(torch.randn(channels, generator=generator, dtype=torch.float64))

    def forward(self, latents: Tensor, sigma: Tensor, text: Tensor) -> Tensor:
        return latents @ self.B.T + sigma[:, None, None] * self.c + self.d


class Curved(nn.Module):
    """A two-layer network of latents, noise level and text; takes adapters and gradient checkpointing."""

    def __init__(self, channels: int = CHANNELS, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.hidden = nn.Linear(channels + 2, 16)
        self.out = nn.Linear(16, channels)
        generator = torch.Generator().manual_seed(11)
        for parameter in self.parameters():
            parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)
        self.to(dtype)
        self.recompute = False

    def enable_gradient_checkpointing(self) -> None:
        self.recompute = True

    def forward(self, latents: Tensor, sigma: Tensor, text: Tensor) -> Tensor:
        condition = torch.stack([sigma, text.to(sigma)], dim=1)[:, None, :].expand(-1, latents.shape[1], -1)
        inputs = torch.cat([latents, condition], dim=2)
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(self._layers, inputs, use_reentrant=False)
        return self._layers(inputs)

    def _layers(self, inputs: Tensor) -> Tensor:
        return self.out(torch.tanh(self.hidden(inputs)))


@dataclass
class AnalyticBackbone:
    """The backbone protocol on one of the modules above; a prompt is a number, a token is a pixel."""

    transformer: nn.Module = field(default_factory=Curved)
    label: str = "analytic"
    latent_shape: tuple[int, int] = (TOKENS, CHANNELS)
    evaluations_per_velocity: int = 1
    lora_targets: tuple[str, ...] = ("hidden", "out")
    evaluations: int = 0
    """Samples that went through the transformer, counted by the transformer's own calls."""

    def encode_prompts(self, prompts: list[str]) -> TextFeatures:
        return TextFeatures({"number": torch.tensor([sum(map(ord, prompt)) % 17 / 17 for prompt in prompts])})

    def velocity(self, latents: Tensor, sigma: Tensor, text: TextFeatures) -> Tensor:
        velocity = self._branch(latents, sigma, text.tensors["number"])
        if self.evaluations_per_velocity == 1:
            return velocity
        empty = self._branch(latents, sigma, torch.zeros(len(latents)))
        return empty + 2.0 * (velocity - empty)

    def _branch(self, latents: Tensor, sigma: Tensor, number: Tensor) -> Tensor:
        self.evaluations += len(latents)
        dtype = next(self.transformer.parameters()).dtype
        return self.transformer(latents.to(dtype), sigma.to(dtype), number).to(latents.dtype)

    def decode(self, latents: Tensor) -> Tensor:
        side = int(latents.shape[1] ** 0.5)
        return (255 * torch.sigmoid(latents)).round().to(torch.uint8).unflatten(1, (side, side))


@dataclass(frozen=True)
class ColourScorer:
    """The scorer protocol: how much an image's first channel stands out, shifted by the prompt's length."""

    name: str = "colour@000000000000"
    unit: str = "cosine"
    channel: int = 0

    def score(self, *, images: np.ndarray, prompts: list[str]) -> np.ndarray:
        means = images.astype(np.float64).mean(axis=(1, 2)) / 255
        lengths = np.array([len(prompt) for prompt in prompts]) / 100
        return means[:, self.channel] - means.mean(axis=1) + lengths


@dataclass(frozen=True)
class BrokenScorer:
    """The scorer protocol: not a number after some calls, as an overflowing model gives."""

    good_calls: int
    calls: list[int] = field(default_factory=list)
    name: str = "broken@000000000000"
    unit: str = "cosine"

    def score(self, *, images: np.ndarray, prompts: list[str]) -> np.ndarray:
        self.calls.append(len(images))
        values = ColourScorer().score(images=images, prompts=prompts)
        return values if len(self.calls) <= self.good_calls else values * np.nan


def analytic_study(**changes: Any) -> Study:
    """A study of one cell and three arms; `changes` replace keys, dotted ones inside sections."""
    embedded = {"kind": "embedded", "contrastive_steps": 1}
    content: dict[str, Any] = {
        "study": "analytic",
        "seeds": [0, 1],
        "backbones": {
            "flux": {
                "family": "flux",
                "source": {"kind": "embedded", "autoencoder_steps": 1, "flow_steps": 1},
                "image_size": 32,
                "max_text_tokens": 8,
            }
        },
        "scorers": {name: {"family": "clipscore", "source": embedded} for name in ("red", "green")},
        "reward": {"weights": {"red": 1.0, "green": 0.25}},
        "algorithms": {
            "dance": {"family": "dancegrpo", "sampling_steps": 10, "window": 4, "clip_range": 0.1},
            "fast": {
                "family": "flow_grpo_fast",
                "sampling_steps": 10,
                "window": 4,
                "clip_range": 0.1,
                "sde_window_size": 5,
                "sde_window_range": [0, 10],
            },
        },
        "arms": {
            "baseline": {"estimator": "exact"},
            "jagg": {"estimator": "jagg", "routing": {"jagg_frac": 0.6}},
            "ablation": {"estimator": "endpoint_only", "routing": {"jagg_frac": {"dance": 0.6, "fast": 0.4}}},
        },
        "prompts": {"source": {"kind": "embedded"}, "train": 6, "evaluation": 6},
        "training": {
            "trained_steps": 6,
            "prompts_per_step": 3,
            "group_size": 4,
            "micro_batch_size": 12,
            "learning_rate": 0.01,
            "checkpoints": [0, 3, 6],
            "save_state_every": 2,
        },
        "evaluation": {"images_per_prompt": 2, "sampling_steps": 5, "batch_size": 4},
        "comparison": {"reference": "baseline"},
    }
    for key, value in changes.items():
        *sections, last = key.split("__")
        inner = content
        for section in sections:
            inner = inner[section]
        inner[last] = value
    return Study.model_validate(content)


def analytic_models(**backbone: Any) -> Callable[[], Models]:
    """A loader of fresh models, as `load_models` is."""

    def load() -> Models:
        scorers = {"red": ColourScorer(), "green": ColourScorer(channel=1)}
        return Models(AnalyticBackbone(**backbone), scorers, "analytic weights")

    return load


def key(arm: str = "jagg", seed: int = 0, algorithm: str = "dance") -> RunKey:
    return RunKey("flux", algorithm, arm, seed)
