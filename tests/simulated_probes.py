"""Probes of a simulated study, written through the real schema: cosines are given, no gradient is ever made."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from jagg.config import ProbeSplit, Study
from jagg.keys import RunKey, StudyPaths, probe_keys
from jagg.records import GRADIENT_PROBES, table_of, write_table

Profile = Callable[[float, int, int], float]
"""(place in the trajectory from 0 to 1, window length, sampling steps) -> mean cosine of JAGG's gradient."""

_WORSE = {"endpoint_only": 0.25, "midpoint": 0.05, "monte_carlo": 0.35, "kriging": 0.01, "quadratic": -0.01}
_NODES = {"midpoint": 1.0, "quadratic": 3.0, "debiased": 2.5}


def near_one(place: float, length: int, steps: int) -> float:
    """A network that is nearly linear: no window is anywhere near the threshold."""
    return 0.99 - 0.01 * place - 0.002 * length


def falling(place: float, length: int, steps: int) -> float:
    """The cosine falls below .5 in the last windows, and with longer windows and fewer steps."""
    return 0.95 - 0.6 * place * length / 4 * 20 / steps


def write_probes(study: Study, profile: Profile) -> None:
    """Every probe file of the study."""
    paths, probe = StudyPaths.of(study), study.probe
    assert probe is not None
    for key in probe_keys(study):
        own = study.algorithms[key.algorithm]
        rows = [
            row
            for name, split in (("calibration", probe.calibration), ("holdout", probe.holdout))
            for step in _steps(split, key)
            for row in _rows(
                study, key, name, step, own.window, own.sampling_steps, "float32", probe.estimators, profile
            )
        ]
        stress = probe.stress
        if stress is not None:
            rows += [
                row
                for step in _steps(probe.calibration, key)
                for length, steps, precision in product(stress.windows, stress.sampling_steps, stress.precisions)
                if length <= steps
                for row in _rows(study, key, "stress", step, length, steps, precision, stress.estimators, profile)
            ]
        write_table(paths.probe(key.backbone, key.algorithm, key.seed), table_of(rows, GRADIENT_PROBES))


def _steps(split: ProbeSplit, key: RunKey) -> tuple[int, ...]:
    return split.checkpoints if key.seed in split.seeds else ()


def _rows(
    study: Study, key: RunKey, split: str, step: int, length: int, steps: int, precision: str,
    estimators: tuple[str, ...], profile: Profile,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    draw = np.random.default_rng(list(repr((key, split, step, length, steps, precision)).encode()))
    starts = range(0, steps, length)
    for window, estimator in product(range(len(starts)), estimators):
        mean = profile(window / max(len(starts) - 1, 1), length, steps) - _WORSE.get(estimator, 0.0)
        mean -= 0.05 * list(study.algorithms).index(key.algorithm) + 0.02 * list(study.backbones).index(key.backbone)
        place = {
            "backbone": key.backbone, "algorithm": key.algorithm, "seed": key.seed, "step": step, "split": split,
            "window_length": length, "sampling_steps": steps, "precision": precision, "estimator": estimator,
            "window": window, "start": starts[window], "transitions": min(length, steps - starts[window]),
            "sigma_start": 1 - starts[window] / steps, "sigma_end": 1 - min(starts[window] + length, steps) / steps,
            "nodes": _NODES.get(estimator, 2.0), "velocity_residual": 0.1 + 0.3 * window / len(starts), "note": "",
        }  # fmt: skip
        for image in range(4):
            cosine = float(np.clip(mean + 0.02 * draw.normal(), -1, 1))
            yield place | _measured(estimator, cosine) | {
                "scope": "rollout", "prompt_id": f"p{image // 2}", "image_index": image % 2,
            }  # fmt: skip
        batch = float(np.clip(mean + 0.02, -1, 1))
        yield (
            place
            | _measured(estimator, batch)
            | {"scope": "batch", "prompt_id": "", "image_index": None, "bound": None}
        )


def _measured(estimator: str, cosine: float) -> dict[str, Any]:
    error = float(np.sqrt(max(2 - 2 * cosine, 0.0)))
    parts = {"bound": 2 * error, "path_error": 0.7 * error, "curve_error": 0.5 * error}
    return {
        "cosine": cosine, "norm_ratio": 1.1, "relative_error": error,
        **(parts if estimator == "jagg" else dict.fromkeys(parts)),
    }  # fmt: skip
