"""Tables: Parquet and CSV files, written atomically and read against their schema."""

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from jagg.errors import InputError
from jagg.records.files import atomic_path


def table_of(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table in the schema's column order; a missing or unknown column is our own fault."""
    rows = list(rows)
    for row in rows:
        assert set(row) == set(schema.names), set(row) ^ set(schema.names)
    return pa.Table.from_pylist(rows, schema=schema)


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table atomically, as parquet or CSV by the path's ending; CSV floats have 10 significant digits."""
    with atomic_path(path) as temporary:
        if path.suffix == ".parquet":
            pq.write_table(table, temporary)
        else:
            _write_csv(temporary, table)


def _write_csv(path: Path, table: pa.Table) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.column_names)
        writer.writerows(zip(*(_csv_cells(column) for column in table.columns)))


def _csv_cells(column: pa.ChunkedArray) -> list[Any]:
    values = column.to_pylist()
    if not pa.types.is_floating(column.type):
        return values
    return [None if value is None or math.isnan(value) else f"{value:.10g}" for value in values]


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Read a parquet or CSV table and check its columns; columns beyond the schema are kept.

    Raises:
        InputError: the file is missing or truncated, or a column is missing, stands twice or is of another type.
    """
    try:
        table = pq.read_table(path) if path.suffix == ".parquet" else _read_csv(path, schema)
        names = table.column_names
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(
            "cannot read a table",
            where=path,
            expected="a complete parquet or CSV file",
            got=_first_line(error),
            fix="make the file again; in a study, remove it and run the study again",
        ) from error
    missing = [name for name in schema.names if name not in names]
    if missing:
        raise InputError(
            "a table lacks columns", where=path, expected=", ".join(schema.names), got="no " + ", ".join(missing)
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError("columns stand twice", where=path, expected="distinct columns", got=", ".join(twice))
    columns = {}
    for name in names:
        column = table.column(name)
        if name in schema.names:
            try:
                column = column.cast(schema.field(name).type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InputError(
                    "a column has the wrong type",
                    where=f"{path}: {name}",
                    expected=schema.field(name).type,
                    got=_first_line(error),
                ) from error
        columns[name] = column
    return pa.table(columns)


def _read_csv(path: Path, schema: pa.Schema) -> pa.Table:
    """Texts stay texts: a prompt id 007 is not the number 7."""
    texts = {field.name: field.type for field in schema if pa.types.is_string(field.type)}
    return pa_csv.read_csv(path, convert_options=pa_csv.ConvertOptions(column_types=texts))


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
