"""From a long table of scores to one score a seed, joined by key and never by the place of a row."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jagg.errors import InputError, unknown_name
from jagg.records import SCORES, read_table

OPTIONAL_COLUMNS = ("signature", "environment")
_REQUIRED = pa.schema([field for field in SCORES if field.name not in OPTIONAL_COLUMNS])
_COSINE_LIMIT = 1.0 + 1e-6
Cell = tuple[str, str]


@dataclass(frozen=True)
class SeedScore:
    """Score of one run's checkpoint by one metric: the mean over prompts of the mean over their images.

    `items` are sorted codes of the (prompt, image) pairs behind it, `prompts` sorted codes of the prompts and
    `by_prompt` their means; equal codes in one `Joined` mean equal pairs and prompts.
    """

    value: float
    items: np.ndarray
    prompts: np.ndarray
    by_prompt: np.ndarray


@dataclass(frozen=True)
class Joined:
    """Every seed's score, by (cell, metric, step, arm) and seed."""

    scores: dict[tuple[Cell, str, int, str], dict[int, SeedScore]]
    prompts: list[str]
    images: list[int]

    def items(self, codes: Iterable[int]) -> list[str]:
        """(prompt, image) pairs behind codes, to be named in a message."""
        return [
            f"{self.prompts[code // len(self.images)]} image {self.images[code % len(self.images)]}" for code in codes
        ]

    def prompts_of(self, codes: np.ndarray) -> set[str]:
        return {self.prompts[code] for code in np.unique(codes // len(self.images))}


def read_scores(paths: Sequence[Path]) -> pa.Table:
    """Long tables of scores, CSV or parquet, as one; the optional columns may be missing.

    Raises:
        InputError: a table is missing, truncated, or lacks a column.
    """
    return pa.concat_tables(_with_optional_columns(read_table(path, _REQUIRED)) for path in paths)


def _with_optional_columns(table: pa.Table) -> pa.Table:
    for name in OPTIONAL_COLUMNS:
        if name not in table.column_names:
            table = table.append_column(name, pa.array([""] * len(table), pa.string()))
    return table.select(SCORES.names).cast(SCORES)


def join_scores(scores: pa.Table, arms: Collection[str]) -> Joined:
    """One score a seed for some arms of a long table.

    Raises:
        InputError: an arm that the table lacks, an empty key, a row that stands twice, a cosine outside [-1, 1], or
            units, scorers, environments or evaluation signatures that differ where values would be compared.
    """
    missing = [name for name in _REQUIRED.names if name not in scores.column_names]
    if missing:
        raise InputError("a table lacks columns", expected=", ".join(_REQUIRED.names), got="no " + ", ".join(missing))
    scores = _with_optional_columns(scores)
    known = scores.column("arm").unique().to_pylist()
    for arm in arms:
        if arm not in known:
            raise unknown_name("arm", arm, known, where="column arm of the scores")
    if set(known) - set(arms):
        scores = scores.filter(pc.is_in(scores.column("arm"), pa.array(list(arms))))
    columns = {name: _Coded.of(scores, name) for name in SCORES.names if name != "value"}
    values = scores.column("value").to_numpy()
    _check_consistent(columns, values)
    return _seed_means(columns, values)


@dataclass(frozen=True)
class _Coded:
    """A column as codes into its sorted distinct values."""

    codes: np.ndarray
    values: list[Any]

    @classmethod
    def of(cls, table: pa.Table, name: str) -> "_Coded":
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


def _combined(columns: dict[str, _Coded], names: Sequence[str]) -> np.ndarray:
    """One integer a row for its combination of columns; rows sort by the columns in this order."""
    sizes = [len(columns[name].values) for name in names]
    assert float(np.prod(np.array(sizes, float))) < 2**62, sizes
    return np.ravel_multi_index([columns[name].codes for name in names], sizes)


def _split(columns: dict[str, _Coded], names: Sequence[str], code: int) -> tuple:
    places = np.unravel_index(code, [len(columns[name].values) for name in names])
    return tuple(columns[name].values[place] for name, place in zip(names, places))


def _check_consistent(columns: dict[str, _Coded], values: np.ndarray) -> None:
    for field, scope in (
        ("unit", ["metric"]),
        ("scorer", ["metric"]),
        ("environment", ["metric"]),
        ("signature", ["backbone", "algorithm"]),
    ):
        names = [*scope, field]
        pairs = [_split(columns, names, code) for code in np.unique(_combined(columns, names))]
        for place in sorted({pair[:-1] for pair in pairs}):
            found = [str(pair[-1]) for pair in pairs if pair[:-1] == place]
            if len(found) > 1:
                raise InputError(
                    f"scores of more than one {field} cannot be compared",
                    where=", ".join(f"{name} {value}" for name, value in zip(scope, place)),
                    expected=f"one {field}",
                    got=" | ".join(found),
                    fix="score the images of all arms again in one environment, or pass the rows of one kind only",
                )
    units = columns["unit"]
    if "cosine" in units.values:
        outside = (units.codes == units.values.index("cosine")) & (np.abs(values) > _COSINE_LIMIT)
        if outside.any():
            raise InputError(
                "a value is outside the range of its unit",
                where="unit cosine",
                expected="-1 to 1",
                got=values[outside][0],
            )


_RUN = ("backbone", "algorithm", "metric", "step", "arm", "seed")
_ITEM = ("prompt_id", "image_index")


def _seed_means(columns: dict[str, _Coded], values: np.ndarray) -> Joined:
    keys = _combined(columns, _RUN + _ITEM)
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    twice = keys[1:][keys[1:] == keys[:-1]]
    if len(twice):
        named = [dict(zip(_RUN + _ITEM, _split(columns, _RUN + _ITEM, key))) for key in np.unique(twice)[:3]]
        raise InputError("rows stand twice", where="the scores", expected="one row a key and metric", got=named)
    prompts, images = columns["prompt_id"].values, columns["image_index"].values
    num_items = len(prompts) * len(images)
    prompt_starts = _starts(keys // len(images))
    prompt_means = np.add.reduceat(values, prompt_starts) / np.diff(np.append(prompt_starts, len(keys)))
    run_starts = _starts(keys[prompt_starts] // num_items)
    num_prompts = np.diff(np.append(run_starts, len(prompt_starts)))
    means = np.add.reduceat(prompt_means, run_starts) / num_prompts
    row_starts = prompt_starts[run_starts]
    items, prompt_codes = keys % num_items, keys[prompt_starts] % num_items // len(images)
    scores: dict[tuple[Cell, str, int, str], dict[int, SeedScore]] = {}
    for place, (start, end) in enumerate(zip(row_starts, np.append(row_starts[1:], len(keys)))):
        backbone, algorithm, metric, step, arm, seed = _split(columns, _RUN, keys[start] // num_items)
        inner = slice(run_starts[place], run_starts[place] + num_prompts[place])
        score = SeedScore(float(means[place]), items[start:end], prompt_codes[inner], prompt_means[inner])
        scores.setdefault(((backbone, algorithm), metric, step, arm), {})[seed] = score
    return Joined(scores, prompts, images)


def _starts(sorted_keys: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.append(True, sorted_keys[1:] != sorted_keys[:-1])[: len(sorted_keys)])
