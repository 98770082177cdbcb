"""Thresholds of routing, chosen on calibration rollouts and held against held-out ones; pure functions on rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jagg.config import Study
from jagg.stats.estimates import paired_t

Row = dict[str, Any]
ESTIMATOR = "jagg"
LATER, ROLLOUTS = "later_checkpoints", "rollouts"


@dataclass(frozen=True)
class WindowQuality:
    """One window of a set of rollouts."""

    window: int
    place: float
    """j0 / T, where the window starts in the trajectory (no unit)."""
    cosine: float
    """Mean over rollouts."""
    lower: float | None
    """Lower end of the t interval of the mean over groups of one prompt and seed; None: fewer than two groups."""
    residual: float
    """Mean velocity residual."""
    num_rollouts: int


def window_qualities(rows: Sequence[Row], level: float) -> list[WindowQuality]:
    """The windows of rows of one estimator and cell, in order; rollouts without a cosine are left out.

    Images of one prompt and seed share their initial noise and advantage, so they are one group of the lower bound.
    """
    windows: dict[int, list[Row]] = {}
    for row in rows:
        if row["scope"] == "rollout" and row["cosine"] is not None:
            windows.setdefault(row["window"], []).append(row)
    return [_window_quality(window, windows[window], level) for window in sorted(windows)]


def _window_quality(window: int, rows: list[Row], level: float) -> WindowQuality:
    groups: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        groups.setdefault((row["seed"], row["step"], row["prompt_id"]), []).append(row["cosine"])
    return WindowQuality(
        window,
        rows[0]["start"] / rows[0]["sampling_steps"],
        float(np.mean([row["cosine"] for row in rows])),
        paired_t(np.array([np.mean(group) for group in groups.values()]), level).ci_low,
        float(np.mean([row["velocity_residual"] for row in rows])),
        len(rows),
    )


def calibrated_frac(windows: Sequence[WindowQuality], passes: Callable[[WindowQuality], bool]) -> float:
    """jagg_frac up to the first window that does not pass; 1 if all do."""
    return next((window.place for window in windows if not passes(window)), 1.0)


def calibrated_residual(windows: Sequence[WindowQuality], threshold: float) -> float | None:
    """max_residual half-way between the last good and the first bad window, by residual; None: the first one is bad.

    The largest residual seen, if every window is good: nothing is known beyond it.
    """
    ordered = sorted(windows, key=lambda window: window.residual)
    good = next((n for n, window in enumerate(ordered) if window.cosine < threshold), len(ordered))
    if good == 0:
        return None
    if good == len(ordered):
        return ordered[-1].residual
    return (ordered[good - 1].residual + ordered[good].residual) / 2


def _frac_of_lower_bounds(windows: Sequence[WindowQuality], threshold: float) -> float | None:
    """As `calibrated_frac` for the lower ends of the intervals; None where one is not known."""
    lower = {window.window: window.lower for window in windows}
    if None in lower.values():
        return None
    return calibrated_frac(windows, lambda window: (lower[window.window] or 0.0) >= threshold)


@dataclass(frozen=True)
class Rule:
    """How a setting of routing is chosen, and which windows it then approximates."""

    name: str
    setting: str
    choose: Callable[[Sequence[WindowQuality]], float | None]

    def approximates(self, window: WindowQuality, value: float | None) -> bool:
        if value is None:
            return False
        return window.place < value if self.setting == "jagg_frac" else window.residual <= value


def rules(threshold: float) -> tuple[Rule, ...]:
    """The calibrated rules of routing for one threshold of the cosine."""
    return (
        Rule("mean_cosine", "jagg_frac", lambda ws: calibrated_frac(ws, lambda w: w.cosine >= threshold)),
        Rule("lower_bound", "jagg_frac", lambda ws: _frac_of_lower_bounds(ws, threshold)),
        Rule("confidence", "max_residual", lambda ws: calibrated_residual(ws, threshold)),
    )


def routing_calibration(study: Study, rows: Sequence[Row]) -> list[Row]:
    """Rows of ROUTING_CALIBRATION: each cell's and rule's choice against held-out rollouts and later checkpoints."""
    probe = study.probe
    assert probe is not None
    last = max(probe.calibration.checkpoints)
    found = []
    for backbone in study.backbones:
        for algorithm in study.algorithms:
            own = [
                row
                for row in rows
                if (row["backbone"], row["algorithm"], row["estimator"]) == (backbone, algorithm, ESTIMATOR)
            ]
            held = [row for row in own if row["split"] == "holdout"]
            kinds = {
                ROLLOUTS: [row for row in held if row["step"] in probe.calibration.checkpoints],
                LATER: [row for row in held if row["step"] > last],
            }
            calibration = [row for row in own if row["split"] == "calibration"]
            for row in _cell_rows(calibration, kinds, probe.threshold, study.comparison.ci_level):
                found.append({"backbone": backbone, "algorithm": algorithm, "estimator": ESTIMATOR} | row)
    return found


def _cell_rows(calibration: list[Row], kinds: dict[str, list[Row]], threshold: float, level: float) -> Iterator[Row]:
    windows = window_qualities(calibration, level)
    if not windows:
        return
    for rule in rules(threshold):
        value = rule.choose(windows)
        chosen = [window for window in windows if rule.approximates(window, value)]
        for kind, rows in kinds.items():
            held = window_qualities(rows, level)
            if not held:
                continue
            applied = [window for window in held if rule.approximates(window, value)]
            before, after = _mean_cosine(chosen), _mean_cosine(applied)
            yield {
                "rule": rule.name,
                "setting": rule.setting,
                "value": value,
                "threshold": threshold,
                "windows": len(windows),
                "windows_approximate": len(chosen),
                "calibration_cosine": before,
                "holdout": kind,
                "holdout_cosine": after,
                "optimism": None if before is None or after is None else before - after,
                "holdout_windows_approximate": len(applied),
                "holdout_windows_below": sum(window.cosine < threshold for window in applied),
                "holdout_value": rule.choose(held),
                "num_rollouts": sum(window.num_rollouts for window in held) // len(held),
                "note": _note(rule, windows, chosen, held),
            }


def _mean_cosine(windows: Sequence[WindowQuality]) -> float | None:
    return float(np.mean([window.cosine for window in windows])) if windows else None


def _note(
    rule: Rule, windows: Sequence[WindowQuality], chosen: Sequence[WindowQuality], held: Sequence[WindowQuality]
) -> str:
    notes = []
    if rule.name == "lower_bound" and any(window.lower is None for window in (*windows, *held)):
        notes.append("no lower bound where fewer than two prompts and seeds were measured or none differs")
    unknown = rule.name == "lower_bound" and any(window.lower is None for window in windows)
    if not chosen and not unknown:
        notes.append("no window may be approximated")
    elif len(chosen) == len(windows):
        notes.append("no window failed, so the limit lies beyond what was measured")
    return "; ".join(notes)
