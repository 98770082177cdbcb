"""From a long table of scores to one score a seed, joined by key and never by the place of a row."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jagg import records
from jagg.errors import InputError, unknown_name
from jagg.records import SCORES
from jagg.records.scores import REQUIRED_COLUMNS, with_optional_columns
from jagg.stats.aggregation import POOLED_PROMPTS, check_groups, prompt_weights
from jagg.stats.dictionary_encoding import Coded, Columns, combined, split
from jagg.stats.scales import Scale, in_one_unit

Cell = tuple[str, str]


@dataclass(frozen=True)
class SeedScore:
    """Score of one run's checkpoint by one metric: the mean over prompts (see `Joined.aggregation`) of their images'.

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
    groups: list[str]
    """Group of each prompt, empty where it has none."""
    scales: dict[str, Scale]
    """Metric -> the unit of its scores."""
    aggregation: str

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
    return pa.concat_tables(map(records.read_scores, paths))


def join_scores(scores: pa.Table, arms: Collection[str], aggregation: str = POOLED_PROMPTS) -> Joined:
    """One score a seed for some arms of a long table.

    Values of one metric in several units are converted to raw cosines.

    Args:
        aggregation: how prompts are averaged, a name of `jagg.stats.aggregation`.

    Raises:
        InputError: an arm that the table lacks, an empty key, a row that stands twice, a unit that is not known or does
            not convert, a value outside its unit's range, a prompt without the group that the aggregation needs, or
            scorers, environments, evaluation signatures or groups that differ where values would be compared.
    """
    missing = [name for name in REQUIRED_COLUMNS if name not in scores.column_names]
    if missing:
        raise InputError("a table lacks columns", expected=", ".join(REQUIRED_COLUMNS), got="no " + ", ".join(missing))
    scores = with_optional_columns(scores)
    known = scores.column("arm").unique().to_pylist()
    for arm in arms:
        if arm not in known:
            raise unknown_name("arm", arm, known, where="column arm of the scores")
    if set(known) - set(arms):
        scores = scores.filter(pc.is_in(scores.column("arm"), pa.array(list(arms))))
    columns = {name: Coded.of(scores, name) for name in SCORES.names if name not in ("value", "truncated")}
    _check_consistent(columns)
    values, scales = in_one_unit(columns, scores.column("value").to_numpy())
    return _seed_means(columns, values, scales, aggregation)


def _check_consistent(columns: Columns) -> None:
    for field, scope in (
        ("scorer", ["metric"]),
        ("environment", ["metric"]),
        ("signature", ["backbone", "algorithm"]),
        ("prompt_group", ["prompt_id"]),
    ):
        names = [*scope, field]
        by_place: dict[tuple, list[str]] = {}
        for code in np.unique(combined(columns, names)):
            parts = split(columns, names, code)
            by_place.setdefault(parts[:-1], []).append(str(parts[-1]))
        for place, found in by_place.items():
            if len(found) > 1:
                raise InputError(
                    f"scores of more than one {field} cannot be compared",
                    where=", ".join(f"{name} {value}" for name, value in zip(scope, place)),
                    expected=f"one {field}",
                    got=" | ".join(found),
                    fix="rescore all arms with one scorer in one environment (jagg score), or pass rows of one kind",
                )


_RUN = ("backbone", "algorithm", "metric", "step", "arm", "seed")
_ITEM = ("prompt_id", "image_index")


def _seed_means(columns: Columns, values: np.ndarray, scales: dict[str, Scale], aggregation: str) -> Joined:
    keys = combined(columns, _RUN + _ITEM)
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    twice = keys[1:][keys[1:] == keys[:-1]]
    if len(twice):
        named = [dict(zip(_RUN + _ITEM, split(columns, _RUN + _ITEM, key))) for key in np.unique(twice)[:3]]
        raise InputError("rows stand twice", where="the scores", expected="one row a key and metric", got=named)
    prompts, images = columns["prompt_id"].values, columns["image_index"].values
    num_items = len(prompts) * len(images)
    prompt_starts = _starts(keys // len(images))
    prompt_means = np.add.reduceat(values, prompt_starts) / np.diff(np.append(prompt_starts, len(keys)))
    run_starts = _starts(keys[prompt_starts] // num_items)
    num_prompts = np.diff(np.append(run_starts, len(prompt_starts)))
    row_starts = prompt_starts[run_starts]
    items, prompt_codes = keys % num_items, keys[prompt_starts] % num_items // len(images)
    groups = _groups(columns)
    check_groups(aggregation, prompts, groups)
    weights = prompt_weights(aggregation, prompt_codes, np.repeat(np.arange(len(run_starts)), num_prompts), groups)
    means = np.add.reduceat(prompt_means * weights, run_starts) / np.add.reduceat(weights, run_starts)
    scores: dict[tuple[Cell, str, int, str], dict[int, SeedScore]] = {}
    for place, (start, end) in enumerate(zip(row_starts, np.append(row_starts[1:], len(keys)))):
        backbone, algorithm, metric, step, arm, seed = split(columns, _RUN, keys[start] // num_items)
        inner = slice(run_starts[place], run_starts[place] + num_prompts[place])
        score = SeedScore(float(means[place]), items[start:end], prompt_codes[inner], prompt_means[inner])
        scores.setdefault(((backbone, algorithm), metric, step, arm), {})[seed] = score
    return Joined(scores, prompts, images, groups, scales, aggregation)


def _groups(columns: Columns) -> list[str]:
    """Group of each prompt code."""
    prompt, group = columns["prompt_id"], columns["prompt_group"]
    codes = np.zeros(len(prompt.values), np.int64)
    codes[prompt.codes] = group.codes
    return [group.values[code] or "" for code in codes]


def _starts(sorted_keys: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.append(True, sorted_keys[1:] != sorted_keys[:-1])[: len(sorted_keys)])
