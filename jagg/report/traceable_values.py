"""Numbers on the page that say where they come from, so that they can be recomputed.

A number that the page takes from a table stands in an element with these attributes:

- `data-table`: the CSV file, relative to the study's folder, as in `tables/paired_differences.csv`;
- `data-key`: the columns that pick its rows, as a query string: `arm=jagg&step=24` (empty: every row);
- `data-column`: the column that holds it;
- `data-reduce`: how several rows become one number, a name of `REDUCTIONS`; absent where the key picks one row.

The element's text is the value at its printed precision, with `−` for a minus and a `×` or `%` where it has one; a dash
stands for an empty value. Rows whose value is empty do not enter a reduction. `mismatches` recomputes a whole page.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup

from jagg.errors import InputError

UNKNOWN = "–"
REDUCTIONS: dict[str, Callable[[list[float]], float]] = {
    "mean": fmean,
    "min": min,
    "max": max,
    "sum": sum,
    "count": len,
}


def number(value: float | None, digits: int = 4) -> str:
    """A number as the page prints it; what is unknown is a dash."""
    if value is None:
        return UNKNOWN
    enough = value == 0 or abs(value) >= 10.0 ** (1 - digits)
    text = f"{value:.{digits}f}" if enough else f"{Decimal(f'{value:.2g}'):f}"
    return text.replace("-", "−")


def signed(value: float | None) -> str:
    """A difference with its sign."""
    return number(value) if value is None or value <= 0 else "+" + number(value)


def p_text(value: float | None) -> str:
    """A p-value with three significant digits."""
    return UNKNOWN if value is None else f"{value:.3g}"


def _significant(digits: int) -> Callable[[float | None], str]:
    return lambda value: UNKNOWN if value is None else f"{value:.{digits}g}".replace("-", "−")


FORMATS: dict[str, Callable[[Any], str]] = {
    "number": number,
    "signed": signed,
    "p": p_text,
    "ratio": lambda value: UNKNOWN if value is None else f"{value:.3f}×",
    "percent": lambda value: UNKNOWN if value is None else f"{100 * value:.0f}%",
    "count": lambda value: UNKNOWN if value is None else f"{value:.0f}",
    "plus": lambda value: UNKNOWN if value is None else f"{value:+.3g}",
    "short": _significant(3),
    "long": _significant(4),
}
"""How a number is printed, by name."""


@dataclass(frozen=True)
class Source:
    """A table as the page's source of numbers; `keys` pick one of its rows."""

    table: str
    keys: tuple[str, ...]

    def show(self, row: dict[str, Any], column: str, form: str) -> Markup:
        """One value of a row."""
        key = {name: row[name] for name in self.keys}
        return _element(self.table, key, column, None, FORMATS[form](row[column]))

    def reduce(self, rows: Sequence[dict[str, Any]], column: str, how: str, form: str, **key: Any) -> Markup:
        """One number of all rows that `key` picks; they must be `rows`."""
        values = [row[column] for row in rows if row[column] is not None]
        return _element(self.table, key, column, how, FORMATS[form](REDUCTIONS[how](values) if values else None))


def _element(table: str, key: dict[str, Any], column: str, reduce: str | None, text: str) -> Markup:
    attributes = {"data-table": table, "data-key": urlencode(key), "data-column": column}
    if reduce:
        attributes["data-reduce"] = reduce
    listed = "".join(f' {name}="{Markup.escape(value)}"' for name, value in attributes.items())
    return Markup(f'<span class="value"{listed}>{Markup.escape(text)}</span>')


@dataclass(frozen=True)
class Shown:
    """A number on the page and its source."""

    text: str
    table: str
    key: dict[str, str]
    column: str
    reduce: str | None

    def __str__(self) -> str:
        place = ", ".join(f"{name} {value}" for name, value in self.key.items())
        return f"{self.table}: {self.reduce + ' of ' if self.reduce else ''}{self.column} at {place or 'every row'}"


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Shown] = []
        self._open: dict[str, str] | None = None
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "data-table" in values:
            self._open, self._text = values, ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if self._open is not None:
            values, self._open = self._open, None
            key = dict(parse_qsl(values["data-key"], keep_blank_values=True))
            text = self._text.strip()
            self.found.append(Shown(text, values["data-table"], key, values["data-column"], values.get("data-reduce")))


def read_shown(page: str) -> list[Shown]:
    """Every number of a page that names its source, in the page's order."""
    reader = _Reader()
    reader.feed(page)
    return reader.found


def agrees(text: str, value: float | None) -> bool:
    """Whether a printed number is `value` rounded to its printed precision."""
    if text == UNKNOWN or value is None:
        return text == UNKNOWN and value is None
    digits = text.replace("−", "-").lstrip("+").rstrip("×%")
    try:
        printed = Decimal(digits)
    except InvalidOperation:
        return False
    if not printed.is_finite():
        return False
    unit = Decimal(1).scaleb(int(printed.as_tuple().exponent))
    scale = 100 if text.endswith("%") else 1
    # CSV files hold 10 significant digits: what they leave out may move a value across a rounding step.
    slack = Decimal(abs(scale * value)) * Decimal("1e-9")
    return abs(printed - Decimal(scale * value)) <= unit / 2 + slack


def mismatches(page: Path, root: Path) -> list[str]:
    """Numbers of a page that its tables under `root` do not give; empty if every one is right.

    Raises:
        InputError: the page or a table that it names cannot be read.
    """

    @cache
    def rows_of(table: str) -> list[dict[str, str]]:
        with _opened(root / table) as file:
            return list(csv.DictReader(file))

    @cache
    def by_key(table: str, names: tuple[str, ...]) -> dict[tuple[str, ...], list[dict[str, str]]]:
        found: dict[tuple[str, ...], list[dict[str, str]]] = {}
        for row in rows_of(table):
            found.setdefault(tuple(row[name] for name in names), []).append(row)
        return found

    with _opened(page) as file:
        shown = read_shown(file.read())
    found = []
    for item in shown:
        try:
            rows = by_key(item.table, tuple(item.key)).get(tuple(item.key.values()), [])
            value = _recomputed(item, rows)
        except (KeyError, ValueError) as error:
            found.append(f"{item}: printed {item.text}, but {error.args[0]}")
            continue
        if not agrees(item.text, value):
            found.append(f"{item}: printed {item.text}, the table gives {value}")
    return found


def _opened(path: Path) -> Any:
    try:
        return path.open(encoding="utf-8", newline="")
    except OSError as error:
        raise InputError("cannot read a file", where=path, got=error.strerror, fix="build the report again") from error


def _recomputed(item: Shown, rows: Sequence[dict[str, str]]) -> float | None:
    """The number that the rows of its key give."""
    picked = [row[item.column] for row in rows]
    if item.reduce is None:
        if len(picked) != 1:
            raise ValueError(f"{len(picked)} rows have this key")
        return float(picked[0]) if picked[0] else None
    if item.reduce == "count":
        return len([value for value in picked if value])
    values = [float(value) for value in picked if value]
    return REDUCTIONS[item.reduce](values) if values else None
