"""From the rows of probes to tables of gradient quality; no networks here."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from jagg.config import Study
from jagg.keys import StudyPaths, probe_keys
from jagg.probe.calibration import routing_calibration
from jagg.records import (
    GRADIENT_PROBES,
    GRADIENT_QUALITY,
    GRADIENT_STRESS,
    ROUTING_CALIBRATION,
    read_table,
    table_of,
)
from jagg.stats.proportions import wilson

Row = dict[str, Any]
_STRESS = "stress"
_CONDITION = ("window_length", "sampling_steps", "precision")
_WINDOW = ("backbone", "algorithm", "estimator", "step", "split", "window")


def probe_tables(study: Study, paths: StudyPaths) -> dict[str, pa.Table]:
    """gradient_quality.csv, gradient_stress.csv and routing_calibration.csv; empty without a probe.

    Raises:
        InputError: a probe's file is missing or damaged.
    """
    files = [paths.probe(key.backbone, key.algorithm, key.seed) for key in probe_keys(study)]
    rows = [row for path in files for row in read_table(path, GRADIENT_PROBES).to_pylist()]
    level = study.comparison.ci_level
    threshold = 0.0 if study.probe is None else study.probe.threshold
    own = [row for row in rows if row["split"] != _STRESS]
    stressed = [row for row in rows if row["split"] == _STRESS]
    calibrated = [] if study.probe is None else routing_calibration(study, own)
    return {
        "gradient_quality.csv": table_of(_qualities(own, _WINDOW, threshold, level), GRADIENT_QUALITY),
        "gradient_stress.csv": table_of(_qualities(stressed, _CONDITION + _WINDOW, threshold, level), GRADIENT_STRESS),
        "routing_calibration.csv": table_of(calibrated, ROUTING_CALIBRATION),
    }


def _qualities(rows: Iterable[Row], names: tuple[str, ...], threshold: float, level: float) -> list[Row]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return [dict(zip(names, group)) | _quality(members, threshold, level) for group, members in groups.items()]


def _quality(rows: Sequence[Row], threshold: float, level: float) -> Row:
    """One window's distribution over rollouts, and the gradient of all rollouts together."""
    single = [row for row in rows if row["scope"] == "rollout"]
    batch = [row for row in rows if row["scope"] == "batch"]
    cosines = np.array(known(single, "cosine"))
    notes = sorted({row["note"] for row in single if row["note"]})
    left_out = len(single) - len(cosines)
    bounded = [row for row in single if row["bound"] is not None and row["relative_error"] is not None]
    return {
        "sigma_start": rows[0]["sigma_start"],
        "sigma_end": rows[0]["sigma_end"],
        "num_rollouts": len(cosines),
        "cosine_mean": mean(cosines),
        "cosine_sd": _sd(cosines),
        **_share(cosines, threshold, level),
        **{f"{name}_mean": mean(known(single, name)) for name in ("norm_ratio", "relative_error", "bound")},
        "velocity_residual_mean": mean(known(single, "velocity_residual")),
        **{name: _quantile(cosines, q) for name, q in (("cosine_q05", 0.05), ("cosine_median", 0.5))},
        "cosine_q95": _quantile(cosines, 0.95),
        **{f"{name}_mean": mean(known(single, name)) for name in ("path_error", "curve_error")},
        "bound_share_held": mean([float(row["relative_error"] <= row["bound"]) for row in bounded]),
        "nodes_mean": mean(known(single, "nodes")),
        **{f"batch_{name}_mean": mean(known(batch, name)) for name in ("cosine", "relative_error")},
        **{f"{name}_sd": _sd(np.array(known(single, name))) for name in ("norm_ratio", "relative_error")},
        "note": f"{left_out} of {len(single)} rollouts have no cosine: {', '.join(notes)}" if left_out else "",
    }


def _sd(values: np.ndarray) -> float | None:
    """Standard deviation (n - 1); None of fewer than two."""
    return float(values.std(ddof=1)) if len(values) > 1 else None


def _share(cosines: np.ndarray, threshold: float, level: float) -> Row:
    if len(cosines) == 0:
        return {"fraction_above_threshold": None, "fraction_ci_low": None, "fraction_ci_high": None}
    above = int((cosines >= threshold).sum())
    low, high = wilson(above, len(cosines), level)
    return {"fraction_above_threshold": above / len(cosines), "fraction_ci_low": low, "fraction_ci_high": high}


def _quantile(values: np.ndarray, share: float) -> float | None:
    return float(np.quantile(values, share)) if len(values) else None


def known(rows: Iterable[Row], name: str) -> list[float]:
    """The values of a column that are there."""
    return [row[name] for row in rows if row[name] is not None]


def mean(values: Sequence[float] | np.ndarray) -> float | None:
    """The mean; None of nothing."""
    return float(np.mean(values)) if len(values) else None
