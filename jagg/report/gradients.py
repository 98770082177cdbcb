"""What the probes say in words: each sentence of the page follows from rows of the tables that are given here."""

from itertools import product
from typing import Any

from jagg.report.data import Row, StudyData
from jagg.report.figures.plot import of_cell
from jagg.report.figures.quality import JAGG
from jagg.report.figures.stress import precisions
from jagg.report.traceable_values import Source
from jagg.stats.join import Cell

_WINDOW = ("backbone", "algorithm", "estimator", "step", "split", "window")
QUALITY = Source("tables/gradient_quality.csv", _WINDOW)
STRESS = Source("tables/gradient_stress.csv", ("window_length", "sampling_steps", "precision", *_WINDOW))
ROUTING = Source("tables/routing_calibration.csv", ("backbone", "algorithm", "estimator", "rule", "holdout"))


def jagg_quality(data: StudyData) -> list[Row]:
    """What the windows of each cell say of JAGG's gradient, over all probed checkpoints and splits."""
    found = []
    for cell in data.cells:
        rows = [row for row in of_cell(data.gradient_quality, cell) if row["estimator"] == JAGG]
        if rows:
            found.append({"cell": cell, **_cosines(data, cell, rows), **_errors(cell, rows)})
    return found


def _key(cell: Cell) -> dict[str, Any]:
    return {"backbone": cell[0], "algorithm": cell[1], "estimator": JAGG}


def _cosines(data: StudyData, cell: Cell, rows: list[Row]) -> Row:
    """`below`: windows whose mean is under the threshold; `undefined`: rows without any cosine."""
    return {
        "lowest": QUALITY.reduce(rows, "cosine_mean", "min", "short", **_key(cell)),
        "highest": QUALITY.reduce(rows, "cosine_mean", "max", "short", **_key(cell)),
        "share": QUALITY.reduce(rows, "fraction_above_threshold", "min", "percent", **_key(cell)),
        "share_low": QUALITY.reduce(rows, "fraction_ci_low", "min", "percent", **_key(cell)),
        "some_reach": all(row["fraction_above_threshold"] != 0 for row in rows),
        "fewest": QUALITY.reduce(rows, "num_rollouts", "min", "count", **_key(cell)),
        "below": _below(data, rows),
        "undefined": sum(row["cosine_mean"] is None for row in rows),
        "windows": len(rows),
    }


def _below(data: StudyData, rows: list[Row]) -> list[Row]:
    """Windows that fall below the threshold in any batch of rollouts: the lowest row of each, and in how many."""
    known = [row for row in rows if row["cosine_mean"] is not None]
    found = []
    for window in sorted({row["window"] for row in known}):
        mine = [row for row in known if row["window"] == window]
        low = [row for row in mine if row["cosine_mean"] < data.threshold]
        if low:
            worst = min(low, key=lambda row: row["cosine_mean"])
            shown = QUALITY.show(worst, "cosine_mean", "short")
            found.append({"worst": worst, "shown": shown, "batches": len(low), "of": len(mine)})
    return found


def _errors(cell: Cell, rows: list[Row]) -> Row:
    """Mean error, bound and causes; `has_bound`: whether they were estimated; `cause`: the larger one by name."""
    means = {
        name: QUALITY.reduce(rows, f"{name}_mean", "mean", "short", **_key(cell))
        for name in ("relative_error", "bound", "path_error", "curve_error")
    }
    known = [row for row in rows if row["path_error_mean"] is not None and row["curve_error_mean"] is not None]
    path, curve = (sum(row[f"{name}_error_mean"] for row in known) for name in ("path", "curve"))
    return {
        **means,
        "held": QUALITY.reduce(rows, "bound_share_held", "min", "percent", **_key(cell)),
        "always_held": all(row["bound_share_held"] in (None, 1.0) for row in rows),
        "has_bound": any(row["bound_mean"] is not None for row in rows),
        "cause": "path" if path > curve else "curve",
    }


def routing_summary(data: StudyData) -> Row:
    """How optimistic calibration was over all cells and rules, and whether any rule met its limit."""
    rows = data.routing
    return {
        "lowest": ROUTING.reduce(rows, "optimism", "min", "signed"),
        "highest": ROUTING.reduce(rows, "optimism", "max", "signed"),
        "below": ROUTING.reduce(rows, "holdout_windows_below", "sum", "count"),
        "any_below": any(row["holdout_windows_below"] for row in rows),
        "unlimited": bool(rows) and all("no window failed" in (row["note"] or "") for row in rows),
        "known": any(row["optimism"] is not None for row in rows),
    }


def stress_summary(data: StudyData) -> list[Row]:
    """Each cell under stress: its lowest cosines, where the lowest stands, and where the cosine first falls too low."""
    found = []
    for cell in data.cells:
        rows = [row for row in of_cell(data.stress, cell) if row["estimator"] == JAGG]
        known = [row for row in rows if row["cosine_mean"] is not None]
        if known:
            worst = min(known, key=lambda row: row["cosine_mean"])
            found.append(
                {
                    "cell": cell,
                    "worst": worst,
                    "shown": STRESS.show(worst, "cosine_mean", "short"),
                    "highest": STRESS.reduce(rows, "cosine_mean", "max", "short", **_key(cell)),
                    "batch": STRESS.reduce(rows, "batch_cosine_mean", "min", "short", **_key(cell)),
                    "by_precision": {
                        name: STRESS.reduce(
                            [row for row in rows if row["precision"] == name],
                            "cosine_mean", "min", "short", **_key(cell), precision=name,
                        )
                        for name in precisions(data)
                    },
                    "first_below": _first_below(data, known),
                }
            )  # fmt: skip
    return found


def _first_below(data: StudyData, rows: list[Row]) -> list[tuple[int, int]]:
    """For each number of denoising steps at which some window falls below the threshold: the shortest such window."""
    low = [row for row in rows if row["cosine_mean"] < data.threshold]
    steps = sorted({row["sampling_steps"] for row in low})
    return [(count, min(row["window_length"] for row in low if row["sampling_steps"] == count)) for count in steps]


def stress_conditions(data: StudyData) -> list[Row]:
    """JAGG under every condition, one row for all windows: means, the lowest window, and the batch's lowest."""
    found = []
    lengths, steps = ({row[name] for row in data.stress} for name in ("window_length", "sampling_steps"))
    for cell, length, count, name in product(data.cells, sorted(lengths), sorted(steps), precisions(data)):
        key = {**_key(cell), "window_length": length, "sampling_steps": count, "precision": name}
        rows = [row for row in data.stress if key.items() <= row.items()]
        if rows:
            found.append(
                key
                | {
                    "cell": cell,
                    "windows": len({row["window"] for row in rows}),
                    "mean": STRESS.reduce(rows, "cosine_mean", "mean", "number", **key),
                    "lowest": STRESS.reduce(rows, "cosine_mean", "min", "number", **key),
                    "share": STRESS.reduce(rows, "fraction_above_threshold", "min", "percent", **key),
                    "batch": STRESS.reduce(rows, "batch_cosine_mean", "min", "number", **key),
                    "error": STRESS.reduce(rows, "relative_error_mean", "mean", "number", **key),
                }
            )
    return found
