"""Columns of a long table as integers, so that millions of rows are joined by key in a second."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from jagg.errors import InputError
from jagg.records.scores import OPTIONAL_COLUMNS


@dataclass(frozen=True)
class Coded:
    """A column as codes into its sorted distinct values."""

    codes: np.ndarray
    values: list[Any]

    @classmethod
    def of(cls, table: pa.Table, name: str) -> "Coded":
        """A column of a table.

        Raises:
            InputError: a row lacks a value, unless the column is optional.
        """
        column = table.column(name)
        if column.null_count and name not in OPTIONAL_COLUMNS:
            raise InputError(
                "an empty key", where=f"column {name}", expected="a value in every row", got=column.null_count
            )
        encoded = pa.chunked_array(column, column.type).combine_chunks().dictionary_encode("encode")
        values = encoded.dictionary.to_pylist()
        order = sorted(range(len(values)), key=lambda place: (values[place] is not None, values[place]))
        rank = np.empty(len(values), np.int64)
        rank[order] = np.arange(len(values))
        return cls(rank[encoded.indices.to_numpy()], [values[place] for place in order])


Columns = dict[str, Coded]
"""Column name -> column."""


def combined(columns: Columns, names: Sequence[str]) -> np.ndarray:
    """One integer a row for its combination of columns; rows sort by the columns in this order.

    Raises:
        InputError: there are more combinations than integers.
    """
    sizes = [len(columns[name].values) for name in names]
    if math.prod(sizes) >= 2**62:
        raise InputError(
            "too many different keys to join rows by",
            where=", ".join(f"{name} ({size} values)" for name, size in zip(names, sizes)),
            expected="numbers of values whose product is below 2^62",
            got=math.prod(sizes),
            fix="compare a part of the table",
        )
    return np.ravel_multi_index([columns[name].codes for name in names], sizes)


def split(columns: Columns, names: Sequence[str], code: int) -> tuple:
    """The values behind a code of `combined`."""
    places = np.unravel_index(code, [len(columns[name].values) for name in names])
    return tuple(columns[name].values[place] for name, place in zip(names, places))
