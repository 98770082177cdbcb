"""Schemas of the tables that stand beside the paired differences."""

import pyarrow as pa

_CELL = [(name, pa.string()) for name in ("backbone", "algorithm")]


def _floats(*names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, pa.float64()) for name in names]


CURVES = pa.schema(
    [
        *_CELL,
        ("metric", pa.string()),
        ("step", pa.int64()),
        *[(name, pa.string()) for name in ("arm", "reference")],
        ("num_seeds", pa.int64()),
        *_floats("difference", "band_low", "band_high", "band_level"),
        ("num_checkpoints", pa.int64()),
        ("note", pa.string()),
    ]
)
"""One row a checkpoint: bands that hold the whole curve of true differences at once, at `band_level`."""

COSTS = pa.schema(
    [
        *_CELL,
        *[(name, pa.string()) for name in ("quantity", "arm", "reference")],
        ("num_seeds", pa.int64()),
        *_floats("mean_reference", "mean_arm", "ratio", "ratio_low", "ratio_high", "ci_level"),
        ("method", pa.string()),
        ("note", pa.string()),
    ]
)
"""One row a cell, quantity and arm: the arm's cost over the reference's. Means are a run's total over its training, in
sample-passes or seconds. `method`: exact, for counts, which have no interval; or t on the log ratio, paired by seed."""

EQUAL_COST = pa.schema(
    [
        *_CELL,
        *[(name, pa.string()) for name in ("metric", "arm", "reference")],
        ("step", pa.int64()),
        ("budget", pa.string()),
        *_floats("spent_low", "spent_high"),
        ("num_seeds", pa.int64()),
        *_floats("mean_reference", "mean_arm", "difference", "ci_low", "ci_high", "ci_level", "p_value"),
        ("note", pa.string()),
    ]
)
"""One row a cell, metric, arm, checkpoint and budget (trained_steps, backward_passes, wall_clock_s): within each seed
both arms are read where they have spent what the cheaper one had spent at its checkpoint `step`; `spent_*` is the range
of that over seeds."""

ATTRITION = pa.schema(
    [
        *_CELL,
        *[(name, pa.string()) for name in ("metric", "arm", "reference")],
        ("step", pa.int64()),
        *[
            (f"{name}_{side}", pa.int64())
            for side in ("reference", "arm")
            for name in ("attempted", "finished", "diverged", "missing", "excluded")
        ],
        ("num_seeds", pa.int64()),
        *_floats("difference", "ci_low", "ci_high"),
        ("verdict", pa.string()),
        ("num_imputed", pa.int64()),
        *_floats("worst_difference", "worst_ci_low", "worst_ci_high"),
        *_floats("best_difference", "best_ci_low", "best_ci_high"),
        ("worst_case_verdict", pa.string()),
        ("note", pa.string()),
    ]
)
"""One row a cell, metric and arm at the last checkpoint: what became of the wanted runs, and what the comparison would
say if the pairs that are missing had gone as badly (worst_*) or as well (best_*) for the arm as any run of the cell.
`excluded`: finished, but its ratio check failed or it has no such partner of the same seed."""
