"""The manifest of a run, run.json: written last, so its presence means that the run has ended."""

import json
import shutil
import time
from itertools import groupby
from typing import Any

import torch

from jagg.config import Study
from jagg.keys import RunKey, RunPaths
from jagg.records import environment, text_sha256
from jagg.train.step import DivergedError, draw_plan

_SUMMED = (
    "rollout_s",
    "reward_s",
    "update_s",
    "rest_s",
    "step_s",
    "backward_passes",
    "backward_passes_expected",
    "forward_passes_grad",
    "forward_passes_nograd",
    "forward_passes_recomputed",
    "synchronizations",
    "optimizer_steps",
    "images",
    "zero_spread_groups",
)


def run_manifest(
    study: Study,
    key: RunKey,
    identity: str,
    history: list[dict[str, Any]],
    attempts: list[dict[str, Any]],
    diverged: DivergedError | None,
) -> dict[str, Any]:
    """Provenance of an ended run: what it is, what determined it, what was done, on what, by whom."""
    totals = {name: sum(row[name] for row in history) for name in _SUMMED}
    return {
        **key.row(),
        "status": "diverged" if diverged else "complete",
        "diverged": diverged and {"step": diverged.step, "quantity": diverged.quantity, "value": str(diverged.value)},
        "identity": json.loads(identity),
        "identity_sha256": text_sha256(identity),
        "trained_steps": len(history),
        "trained_transitions": trained_transitions(study, key, len(history)),
        "totals": totals,
        "attempts": attempts,
        "lost_steps": [step for entry in attempts for step in entry["lost_steps"]],
        "started": attempts[0]["started"],
        "finished": time.time(),
        "environment": environment(),
        "device": device(),
    }


def device() -> dict[str, Any]:
    """What computed, and what decides whether the same computation twice has the same bits."""
    kinds = {"flash": torch.backends.cuda.flash_sdp_enabled, "cudnn": torch.backends.cuda.cudnn_sdp_enabled,
             "memory_efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
             "math": torch.backends.cuda.math_sdp_enabled}  # fmt: skip
    accelerated = torch.cuda.is_available()
    return {
        "name": torch.cuda.get_device_name() if accelerated else "cpu",
        "attention": sorted(name for name, enabled in kinds.items() if enabled()) if accelerated else ["cpu"],
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
    }


def trained_transitions(study: Study, key: RunKey, trained_steps: int) -> list[dict[str, Any]]:
    """The resolved lists of trained transitions, and at which training steps each was used."""
    drawn = sorted((draw_plan(study, key, step).trained, step) for step in range(1, trained_steps + 1))
    return [
        {"transitions": list(transitions), "steps": [step for _, step in group]}
        for transitions, group in groupby(drawn, key=lambda pair: pair[0])
    ]


def discard_outputs(paths: RunPaths) -> None:
    """Remove what an earlier run of other settings left, the manifest first."""
    paths.manifest.unlink(missing_ok=True)
    paths.history.unlink(missing_ok=True)
    shutil.rmtree(paths.folder / "checkpoints", ignore_errors=True)
