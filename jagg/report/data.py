"""What the figures and the page show, read from the study's tables alone."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from jagg.config import Study
from jagg.errors import InputError
from jagg.keys import RunKey, StudyPaths, run_keys
from jagg.records import BACKWARD_PASSES, HISTORY, PAIRED_DIFFERENCES, RUNS, SCORES, read_json, read_table
from jagg.report.tables import COMPLETE
from jagg.stats.compare import POOLED
from jagg.stats.join import Cell, Joined, join_scores

Row = dict[str, Any]


@dataclass(frozen=True)
class StudyData:
    """The study's tables as rows; `history` and `joined` hold complete runs only."""

    study: Study
    paths: StudyPaths
    runs: list[Row]
    history: list[Row]
    differences: list[Row]
    passes: list[Row]
    joined: Joined

    @property
    def reference(self) -> str:
        return self.study.comparison.reference

    @property
    def cells(self) -> list[Cell]:
        return [(backbone, algorithm) for backbone in self.study.backbones for algorithm in self.study.algorithms]

    @property
    def last_step(self) -> int:
        return self.study.training.checkpoints[-1]

    @cached_property
    def scores(self) -> list[Row]:
        """Score of every complete run by checkpoint and metric."""
        return [
            {"backbone": cell[0], "algorithm": cell[1], "arm": arm, "seed": seed, "metric": metric, "step": step,
             "score": score.value}
            for (cell, metric, step, arm), seeds in self.joined.scores.items()
            for seed, score in seeds.items()
        ]  # fmt: skip

    def is_held_out(self, metric: str) -> bool:
        return metric not in self.study.reward.weights

    def metric_label(self, metric: str) -> str:
        return f"{metric} ({'held out' if self.is_held_out(metric) else 'optimised'})"

    def last_differences(self) -> list[Row]:
        """Rows of the last checkpoint, cells in the study's order and the pooled ones last."""
        order = {cell: place for place, cell in enumerate([*self.cells, (POOLED, POOLED)])}
        rows = [row for row in self.differences if row["step"] == self.last_step]
        return sorted(rows, key=lambda row: order[row["backbone"], row["algorithm"]])

    def record(self, key: RunKey) -> Row:
        """run.json of a run."""
        record: Row = read_json(self.paths.run(key).manifest)
        return record

    def complete_keys(self) -> list[RunKey]:
        return [key for key, row in zip(run_keys(self.study), self.runs) if row["status"] == COMPLETE]


def read_study(study: Study, paths: StudyPaths) -> StudyData:
    """Read the tables that `jagg.report.tables.aggregate` wrote.

    Raises:
        InputError: a table is missing, damaged, or of another set of runs.
    """
    runs = read_table(paths.table("runs.csv"), RUNS).to_pylist()
    wanted = [key.row() for key in run_keys(study)]
    if [{name: row[name] for name in wanted[0]} for row in runs] != wanted:
        raise InputError(
            "the tables were made for other runs than the study's",
            where=paths.table("runs.csv"),
            expected=f"{len(wanted)} runs of the study",
            got=f"{len(runs)} rows",
            fix="make the tables again (jagg tables)",
        )
    complete = {_key(row) for row in runs if row["status"] == COMPLETE}
    history = read_table(paths.table("history.parquet"), HISTORY).to_pylist()
    scores = read_table(paths.table("scores.parquet"), SCORES)
    return StudyData(
        study=study,
        paths=paths,
        runs=runs,
        history=[row for row in history if _key(row) in complete],
        differences=read_table(paths.table("paired_differences.csv"), PAIRED_DIFFERENCES).to_pylist(),
        passes=read_table(paths.table("backward_passes.csv"), BACKWARD_PASSES).to_pylist(),
        joined=join_scores(scores, _arms(scores)),
    )


def _arms(scores: pa.Table) -> list[str]:
    arms: list[str] = scores.column("arm").unique().to_pylist()
    return arms


def _key(row: Row) -> RunKey:
    return RunKey(row["backbone"], row["algorithm"], row["arm"], row["seed"])
