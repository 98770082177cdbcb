"""Whether a table of results can be what it says: keys that tell its rows apart, and values in their range."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jagg.errors import InputError

_CELL = ("backbone", "algorithm")
KEYS: dict[str, tuple[str, ...]] = {
    "paired_differences.csv": (*_CELL, "metric", "step", "arm", "reference"),
    "backward_passes.csv": (*_CELL, "arm", "seed"),
    "gradient_quality.csv": (*_CELL, "estimator", "step", "split", "window"),
    "history.parquet": (*_CELL, "arm", "seed", "step"),
}
"""Table -> the columns that pick one of its rows; scores are checked where they are joined."""

_ANY, _COUNT, _SHARE = (-np.inf, np.inf), (0.0, np.inf), (0.0, 1.0)
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("difference", "ci_low", "ci_high", "margin_high", "aa_floor"), _ANY),
    **dict.fromkeys(("num_seeds", "sd_difference", "margin", "num_rollouts", "cosine_sd", "norm_ratio_sd"), _COUNT),
    **dict.fromkeys(("relative_error_sd", "norm_ratio_mean", "relative_error_mean", "trajectories"), _COUNT),
    **dict.fromkeys(("windows_exact", "windows_approximate", "backward_passes", "forward_passes"), _COUNT),
    **dict.fromkeys(("backward_passes_expected", "velocity_residual_mean"), _COUNT),
    **dict.fromkeys(("update_time_ratio", "step_time_ratio"), _COUNT),
    **dict.fromkeys(("ci_level", "fraction_above_threshold", "fraction_ci_low", "fraction_ci_high"), _SHARE),
    "cosine_mean": (-1.0 - 1e-6, 1.0 + 1e-6),
}  # fmt: skip
"""Column -> the values that it can have, infinity never among them; an empty value is none."""


def check_values(path: Path, table: pa.Table) -> None:
    """Refuse rows without a key or with another row's, and values that no result can have.

    Raises:
        InputError: the first of them, by its row (1 after the header).
    """
    keys = KEYS.get(path.name, ())
    for name in keys:
        column = table.column(name)
        nothing = pc.fill_null(pc.equal(column, ""), True) if pa.types.is_string(column.type) else column.is_null()
        empty = np.flatnonzero(nothing.to_numpy(zero_copy_only=False))
        if len(empty):
            raise InputError("an empty key", where=f"{path}, row {empty[0] + 1}, {name}", expected="a value")
    if keys:
        _check_rows(path, table, keys)
    for name in set(RANGES) & set(table.column_names):
        column = table.column(name)
        if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            continue
        values = column.cast(pa.float64()).to_numpy()
        low, high = RANGES[name]
        wrong = np.flatnonzero(np.isinf(values) | (values < low) | (values > high))
        if len(wrong):
            expected = "a finite number" if low == -np.inf else f"{low:g} to {high:g}" if high < np.inf else "0 or more"
            where = f"{path}, row {wrong[0] + 1}, {name}"
            raise InputError("a value that no result can have", where=where, expected=expected, got=values[wrong[0]])


def _check_rows(path: Path, table: pa.Table, keys: tuple[str, ...]) -> None:
    counts = table.group_by(list(keys)).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts.column("count_all"), 1)).to_pylist()
    if twice:
        named = ", ".join(f"{name} {twice[0][name]}" for name in keys)
        raise InputError("rows stand twice", where=path, expected="one row a key", got=named)
