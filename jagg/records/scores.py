"""Tables of scores, whose last columns older and foreign tables may lack."""

from pathlib import Path

import pyarrow as pa

from jagg.records.schemas import SCORES
from jagg.records.tables import read_table

OPTIONAL_COLUMNS = ("signature", "environment", "prompt_group", "truncated")
REQUIRED_COLUMNS = tuple(name for name in SCORES.names if name not in OPTIONAL_COLUMNS)
_REQUIRED = pa.schema([SCORES.field(name) for name in REQUIRED_COLUMNS])


def read_scores(path: Path) -> pa.Table:
    """A long table of scores, CSV or parquet, with exactly the columns of `SCORES`; missing optional ones are empty.

    Raises:
        InputError: the table is missing, truncated, or lacks a column.
    """
    return with_optional_columns(read_table(path, _REQUIRED))


def with_optional_columns(table: pa.Table) -> pa.Table:
    """The columns of `SCORES`, optional ones empty where the table lacks them."""
    for name in OPTIONAL_COLUMNS:
        if name not in table.column_names:
            kind = SCORES.field(name).type
            empty = "" if pa.types.is_string(kind) else None
            table = table.append_column(name, pa.array([empty] * len(table), kind))
    return table.select(SCORES.names).cast(SCORES)
