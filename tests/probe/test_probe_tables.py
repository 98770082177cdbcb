"""From rows of probes to tables: distributions, Wilson's interval, and routing that is calibrated and held out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analytic import analytic_study

from jagg.errors import InputError
from jagg.keys import StudyPaths, probe_keys
from jagg.probe.calibration import WindowQuality, calibrated_frac, calibrated_residual, routing_calibration
from jagg.probe.summary import probe_tables
from jagg.records import GRADIENT_PROBES, table_of, write_table
from jagg.stats.proportions import wilson

PROBE = {
    "calibration": {"seeds": [0], "checkpoints": [0], "prompts": 2},
    "holdout": {"seeds": [1], "checkpoints": [0, 6], "prompts": 2},
}
FALL = {0: (0.9, 0.8, 0.4), 6: (0.8, 0.3, 0.2)}
"""Checkpoint -> mean cosine of the windows at 0, 4 and 8 of 10 steps; it falls with training."""


def row(split: str, seed: int, step: int, window: int, image: int, **changes: Any) -> dict[str, Any]:
    return {
        "backbone": "flux", "algorithm": "dance", "seed": seed, "step": step, "split": split, "window_length": 4,
        "sampling_steps": 10, "precision": "float32", "scope": "rollout", "estimator": "jagg", "window": window,
        "start": 4 * window, "transitions": 4, "sigma_start": 1 - 0.4 * window, "sigma_end": 0.6 - 0.4 * window,
        "prompt_id": f"p{image // 2}", "image_index": image % 2, "nodes": 2.0,
        "cosine": FALL[step][window] + 0.01 * (image - 1.5), "norm_ratio": 1.1, "relative_error": 0.2, "bound": 0.5,
        "path_error": 0.1, "curve_error": 0.15, "velocity_residual": 0.1 * (window + 1), "note": "",
    } | changes  # fmt: skip


def tables(tmp_path: Path, extra: list[dict[str, Any]] = [], **study: Any) -> dict[str, list[dict[str, Any]]]:  # noqa: B006
    made = analytic_study(results=str(tmp_path), probe=PROBE, **study)
    paths = StudyPaths.of(made)
    for key in probe_keys(made):
        rows = []
        if key.algorithm == "dance":
            splits = [("calibration", 0)] if key.seed == 0 else [("holdout", 0), ("holdout", 6)]
            rows = [row(split, key.seed, step, w, i) for split, step in splits for w in range(3) for i in range(4)]
            rows += [one for one in extra if one["seed"] == key.seed]
        write_table(paths.probe(key.backbone, key.algorithm, key.seed), table_of(rows, GRADIENT_PROBES))
    return {name: table.to_pylist() for name, table in probe_tables(made, paths).items()}


def test_a_window_of_the_table_is_the_distribution_over_its_rollouts(tmp_path: Path) -> None:
    zero = {"cosine": None, "norm_ratio": None, "relative_error": None, "note": "the exact gradient is zero"}
    batch = row("calibration", 0, 0, 0, 0, scope="batch", cosine=0.99, relative_error=0.05, bound=None)
    made = tables(tmp_path, [row("calibration", 0, 0, 0, 9, **zero), batch])["gradient_quality.csv"]
    first = next(r for r in made if (r["split"], r["window"]) == ("calibration", 0))
    cosines = np.array([0.885, 0.895, 0.905, 0.915])
    assert first["num_rollouts"] == 4
    assert first["cosine_mean"] == pytest.approx(cosines.mean())
    assert first["cosine_sd"] == pytest.approx(cosines.std(ddof=1))
    assert (first["fraction_above_threshold"], first["fraction_ci_high"]) == (1.0, pytest.approx(1.0))
    assert first["fraction_ci_low"] == pytest.approx(wilson(4, 4)[0])
    assert (first["batch_cosine_mean"], first["bound_share_held"]) == (0.99, 1.0)
    assert first["note"] == "1 of 5 rollouts have no cosine: the exact gradient is zero"
    assert len(made) == 9


def test_wilson_against_its_closed_form() -> None:
    z = 1.959963984540054
    for k, n in ((0, 5), (3, 10), (40, 40)):
        p = k / n
        centre, half = (
            (p + z * z / 2 / n) / (1 + z * z / n),
            z / (1 + z * z / n) * (p * (1 - p) / n + z * z / 4 / n / n) ** 0.5,
        )
        assert wilson(k, n) == pytest.approx((max(0, centre - half), min(1, centre + half)), abs=1e-9)


def test_routing_is_calibrated_on_one_half_and_judged_on_the_other(tmp_path: Path) -> None:
    rows = tables(tmp_path)["routing_calibration.csv"]
    by = {(r["rule"], r["holdout"]): r for r in rows}
    assert set(by) == {
        (rule, kind)
        for rule in ("mean_cosine", "lower_bound", "confidence")
        for kind in ("rollouts", "later_checkpoints")
    }
    same, later = by["mean_cosine", "rollouts"], by["mean_cosine", "later_checkpoints"]
    assert (same["value"], same["windows_approximate"]) == (0.8, 2)
    assert same["optimism"] == pytest.approx(0.0, abs=1e-12)
    # At the later checkpoint the second window has fallen to 0.3: routing was optimistic there.
    assert later["optimism"] == pytest.approx(0.85 - 0.55)
    assert (later["holdout_windows_below"], later["holdout_value"]) == (1, 0.4)
    confidence = by["confidence", "later_checkpoints"]
    assert confidence["value"] == pytest.approx(0.25)
    assert confidence["holdout_windows_below"] == 1
    assert by["lower_bound", "rollouts"]["value"] == 0.8


def window(place: float, cosine: float, residual: float = 0.1, lower: float | None = None) -> WindowQuality:
    return WindowQuality(int(10 * place), place, cosine, lower, residual, 4)


def test_rules_stop_at_the_first_window_that_fails() -> None:
    windows = [window(0.0, 0.9), window(0.4, 0.4), window(0.8, 0.9)]
    assert calibrated_frac(windows, lambda w: w.cosine >= 0.5) == 0.4
    assert calibrated_frac(windows[:1], lambda w: w.cosine >= 0.5) == 1.0
    assert calibrated_frac(windows[1:], lambda w: w.cosine >= 0.5) == 0.4
    falling = [window(0.0, 0.9, 0.3), window(0.4, 0.4, 0.2), window(0.8, 0.9, 0.1)]
    assert calibrated_residual(falling, 0.5) == pytest.approx(0.15)
    assert calibrated_residual(falling, 0.3) == 0.3
    assert calibrated_residual(falling, 0.95) is None


def test_without_two_prompts_or_seeds_there_is_no_lower_bound_and_no_choice_by_it(tmp_path: Path) -> None:
    made = analytic_study(results=str(tmp_path), probe=PROBE)
    rows = [row("calibration", 0, 0, w, i, prompt_id="p0") for w in range(3) for i in range(4)]
    rows += [row("holdout", 1, 0, w, i) for w in range(3) for i in range(4)]
    found = routing_calibration(made, rows)
    (lower,) = [r for r in found if r["rule"] == "lower_bound"]
    assert (lower["value"], lower["windows_approximate"], lower["optimism"]) == (None, 0, None)
    assert "fewer than two prompts" in lower["note"]
    assert "no window may be" not in lower["note"]


def test_no_window_may_be_approximated_is_said(tmp_path: Path) -> None:
    low = [row("calibration", 0, 0, w, i, cosine=-0.99, prompt_id="q") for w in range(3) for i in range(40)]
    rows = tables(tmp_path, low)["routing_calibration.csv"]
    first = next(r for r in rows if r["rule"] == "mean_cosine")
    assert (first["value"], first["windows_approximate"], first["calibration_cosine"]) == (0.0, 0, None)
    confidence = next(r for r in rows if r["rule"] == "confidence")
    assert (confidence["value"], confidence["windows_approximate"]) == (None, 0)
    for found in (first, confidence):
        assert "no window may be approximated" in found["note"]


def test_stressed_rows_have_a_table_of_their_own(tmp_path: Path) -> None:
    made = tables(tmp_path, [row("stress", 0, 0, 0, 0, window_length=10, precision="bfloat16")])
    (only,) = made["gradient_stress.csv"]
    assert (only["window_length"], only["precision"], only["num_rollouts"]) == (10, "bfloat16", 1)
    assert only["cosine_sd"] is None
    assert len(made["gradient_quality.csv"]) == 9


def test_without_a_probe_the_tables_are_empty_and_a_missing_file_is_named(tmp_path: Path) -> None:
    study = analytic_study(results=str(tmp_path))
    assert all(len(table) == 0 for table in probe_tables(study, StudyPaths.of(study)).values())
    study = analytic_study(results=str(tmp_path), probe=PROBE)
    with pytest.raises(InputError, match=r"seed-0\.parquet"):
        probe_tables(study, StudyPaths.of(study))
