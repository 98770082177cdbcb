"""A published table as it is printed: its columns, its numbers as texts, and what rounding left of them.

Long format, one row a number; only the first seven columns are required:

- `source`, `setting`, `arm`, `metric`, `step`: what the number is of; `setting` holds all that must be equal for two
  arms to be compared (model, algorithm, table). `value`: as printed, so that its decimals are known. `n`: training
  seeds.
- `sd`, `ci_low`, `ci_high`, `ci_level`: as printed; the level as a share.
- `statistic`, `test` (t, z, chi2 or f), `df`, `df2`, `p`: as printed; p may be `<0.001`, `>0.05` or `n.s.`.
- `items`, `grain`: the value is a mean of this many items, each a multiple of `grain` (1 for counts).
- `selected`: how this row was chosen among others of its kind: fixed, last, best or example.
- `unit`: `x` for a speed-up, `saving` for a share of time saved, `percent` for the same in percent. `saved_share`:
  share of the whole that was made cheaper; `part_speedup`: by which factor. `note`: free text.
"""

import math
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from jagg.errors import InputError, unknown_name
from jagg.records import read_table

Row = dict[str, Any]
TEXTS = ("source", "setting", "arm", "metric")
_REQUIRED = pa.schema([*[(name, pa.string()) for name in TEXTS], ("step", pa.int64()), ("value", pa.string()),
                       ("n", pa.int64())])  # fmt: skip
_OPTIONAL = pa.schema(
    [
        *[(name, pa.string()) for name in ("sd", "ci_low", "ci_high", "statistic", "test", "p", "selected", "unit")],
        *[(name, pa.float64()) for name in ("ci_level", "df", "df2", "grain", "saved_share", "part_speedup")],
        ("items", pa.int64()),
        ("note", pa.string()),
    ]
)
NUMBERS = ("value", "sd", "ci_low", "ci_high", "statistic")
TESTS: dict[str, tuple[str, ...]] = {"t": ("df",), "z": (), "chi2": ("df",), "f": ("df", "df2")}
"""Test -> the degrees of freedom that it needs."""
UNITS = {"x": 1.0, "saving": 1.0, "percent": 100.0}
"""Unit of a speed-up or saving -> what is printed for a whole."""
PICKED, SELECTED = ("best", "example"), ("fixed", "last", "best", "example")
_ABOVE_0 = ("df", "df2", "items", "grain", "part_speedup")
_P = re.compile(r"(?:p\s*)?(?P<sign>[<>=≤≥]?)\s*(?P<number>[0-9.]+(?:e[+-]?[0-9]+)?)\s*\**", re.IGNORECASE)


def read_published(path: Path) -> list[Row]:
    """Rows of a published table; numbers stay texts, since their decimals count.

    Raises:
        InputError: the file is missing or lacks a column, a number is none, a label is not one of those named above, or
            one label has two values.
    """
    schema = pa.unify_schemas([_REQUIRED, _OPTIONAL])
    header = read_table(path, _REQUIRED).column_names
    table = read_table(path, pa.schema([schema.field(name) for name in header if name in schema.names]))
    unknown = [name for name in header if name not in schema.names]
    if unknown:
        raise unknown_name("column", unknown[0], schema.names, where=path)
    rows = [
        dict.fromkeys(schema.names) | {name: None if value == "" else value for name, value in row.items()}
        for row in table.to_pylist()
    ]
    for number, row in enumerate(rows, start=1):
        row["#"] = number
        for name in NUMBERS:
            _check_number(path, row, name)
        _check_labels(path, row)
    _check_one_value(path, rows)
    return rows


def _check_number(path: Path, row: Row, name: str) -> None:
    try:
        finite = row[name] is None or ("_" not in row[name] and math.isfinite(float(row[name])))
    except ValueError:
        finite = False
    if not finite:
        raise InputError(
            "not a number",
            where=f"{path}, row {row['#']}, {name}",
            expected="one number as printed, without unit, range or thousands separator",
            got=row[name],
        )


def _check_labels(path: Path, row: Row) -> None:
    """What the writer of the table says of its rows, beside the numbers that were printed."""
    where = f"{path}, row {row['#']}"
    for name, kind, known in (("test", "test", TESTS), ("selected", "choice", SELECTED), ("unit", "unit", UNITS)):
        if row[name] is not None and row[name] not in known:
            raise unknown_name(kind, row[name], known, where=f"{where}, {name}")
    for name in _ABOVE_0:
        if row[name] is not None and not 0 < row[name] < math.inf:
            raise InputError("not a label of a number", where=f"{where}, {name}", expected="above 0", got=row[name])
    for name, low, high in (("ci_level", "above 0", "below 1"), ("saved_share", "0", "1")):
        share = row[name]
        if share is not None and not (0 <= share <= 1 and (name == "saved_share" or 0 < share < 1)):
            raise InputError("not a share", where=f"{where}, {name}", expected=f"{low} to {high}", got=share)
    lacking = [name for name in TESTS.get(row["test"], ()) if row[name] is None]
    if lacking and row["statistic"] is not None and row["p"] is not None:
        raise InputError(f"a {row['test']} test needs its degrees of freedom", where=where, expected=", ".join(lacking))
    if row["saved_share"] is not None and row["value"] is not None and row["unit"] is None:
        raise InputError("a saving without its unit", where=f"{where}, unit", expected=", ".join(UNITS), got="none")
    if row["p"] is not None:
        printed_p(row["p"], f"{where}, p")


def printed_p(text: str, where: object = None) -> tuple[str, str]:
    """The sign (<, > or =) and the number of a printed p; `n.s.` is above 0.05.

    Raises:
        InputError: it is neither.
    """
    if text.strip().lower() in ("ns", "n.s."):
        return ">", "0.05"
    found = _P.fullmatch(text.strip())
    try:
        float(found["number"] if found else "")
    except ValueError:
        raise InputError("not a p-value", where=where, expected="as in 0.03, <0.001, >0.05 or n.s.", got=text) from None
    assert found is not None
    sign = {"": "=", "≤": "<", "≥": ">"}.get(found["sign"], found["sign"])
    return sign, found["number"]


def _check_one_value(path: Path, rows: list[Row]) -> None:
    """Equal labels with unequal values: one of the two is of another setting, or wrong."""
    first: dict[tuple, Row] = {}
    for row in rows:
        label = tuple(row[name] for name in (*TEXTS, "step"))
        other = first.setdefault(label, row)
        if row["value"] != other["value"]:
            raise InputError(
                "one label has two values",
                where=f"{path}, rows {other['#']} and {row['#']}: {', '.join(map(str, label))}",
                expected="one value, or a setting that tells them apart",
                got=f"{other['value']} ({other['note'] or 'no note'}) and {row['value']} ({row['note'] or 'no note'})",
            )


def half_unit(text: str) -> float:
    """Half of the last printed digit's unit: what rounding may have taken or added."""
    mantissa, _, exponent = text.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return 0.5 * 10.0 ** (int(exponent or 0) - decimals) * (1 + 1e-9)
