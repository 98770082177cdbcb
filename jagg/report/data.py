"""What the figures and the page show, read from the study's tables alone."""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, product
from typing import Any

import numpy as np
import pyarrow as pa

from jagg.config import Study
from jagg.errors import InputError
from jagg.keys import RunKey, StudyPaths, run_keys
from jagg.records import (
    BACKWARD_PASSES,
    CLAIMS,
    GRADIENT_QUALITY,
    GRADIENT_STRESS,
    HISTORY,
    PAIRED_DIFFERENCES,
    ROUTING_CALIBRATION,
    RUNS,
    read_json,
    read_scores,
    read_table,
)
from jagg.report.published import ROUTING_THRESHOLD
from jagg.report.style import arm_colours
from jagg.report.tables import COMPLETE
from jagg.stats.compare import POOLED
from jagg.stats.join import Cell, Joined, join_scores
from jagg.stats.tables import ATTRITION, COSTS, CURVES, EQUAL_COST

Row = dict[str, Any]


@dataclass(frozen=True)
class StudyData:
    """The study's tables as rows; `history`, `scores` and `joined` hold complete runs only."""

    study: Study
    paths: StudyPaths
    runs: list[Row]
    history: list[Row]
    differences: list[Row]
    passes: list[Row]
    curves: list[Row]
    costs: list[Row]
    equal_cost: list[Row]
    attrition: list[Row]
    claims: list[Row]
    gradient_quality: list[Row]
    stress: list[Row]
    routing: list[Row]
    joined: Joined
    truncated: dict[str, str]
    """Metric -> how many evaluation prompts its scorer cuts, as `2 of 4`; absent where the scorer cannot tell."""

    @property
    def reference(self) -> str:
        return self.study.comparison.reference

    @cached_property
    def colours(self) -> dict[str, str]:
        """Colour of each arm."""
        return arm_colours(list(self.study.arms), self.reference)

    @property
    def compared_arms(self) -> list[str]:
        """The arms other than the reference."""
        return [arm for arm in self.study.arms if arm != self.reference]

    @property
    def cells(self) -> list[Cell]:
        return [(backbone, algorithm) for backbone in self.study.backbones for algorithm in self.study.algorithms]

    @property
    def last_step(self) -> int:
        return self.study.training.checkpoints[-1]

    @property
    def threshold(self) -> float:
        """Cosine from which a window's gradient counts as good."""
        return ROUTING_THRESHOLD if self.study.probe is None else self.study.probe.threshold

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

    def margin(self, metric: str) -> tuple[float, float] | None:
        """Bounds of equivalence of a metric, as the comparison used them."""
        bounds = {(row["margin_low"], row["margin_high"]) for row in self.differences if row["metric"] == metric}
        known = [bound for bound in bounds if None not in bound]
        return known[0] if known else None

    def last_differences(self) -> list[Row]:
        """Rows of the last checkpoint, cells and arms in the study's order and the pooled ones last."""
        order = {cell: place for place, cell in enumerate([*self.cells, (POOLED, POOLED)])}
        arms = list(self.study.arms)
        rows = [row for row in self.differences if row["step"] == self.last_step]
        return sorted(rows, key=lambda row: (order[row["backbone"], row["algorithm"]], arms.index(row["arm"])))

    def passes_until(self) -> dict[RunKey, dict[int, int]]:
        """Backward passes that each complete run had spent after each training step."""
        spent: dict[RunKey, dict[int, int]] = {}
        for row in self.history:
            spent.setdefault(key_of(row), {0: 0})[row["step"]] = row["backward_passes"]
        return {
            key: dict(zip(sorted(steps), accumulate(steps[step] for step in sorted(steps))))
            for key, steps in spent.items()
        }

    def record(self, key: RunKey) -> Row:
        """run.json of a run."""
        record: Row = read_json(self.paths.run(key).manifest)
        return record

    def complete_keys(self) -> list[RunKey]:
        return [key for key, row in zip(run_keys(self.study), self.runs) if row["status"] == COMPLETE]


def read_study(study: Study, paths: StudyPaths) -> StudyData:
    """Read the tables of a study; claims.csv alone, which is made from the others, may be absent.

    Raises:
        InputError: a table is missing, damaged, or of another set of runs.
    """

    def rows(name: str, schema: pa.Schema) -> list[Row]:
        found: list[Row] = read_table(paths.table(name), schema).to_pylist()
        return found

    wanted = list(run_keys(study))
    runs = rows("runs.csv", RUNS)
    by_key = {key_of(row): row for row in runs}
    if by_key.keys() != set(wanted) or len(runs) != len(wanted):
        raise InputError(
            "the tables were made for other runs than the study's",
            where=paths.table("runs.csv"),
            expected=f"{len(wanted)} runs of the study",
            got=f"{len(runs)} rows; {_difference(set(wanted), set(by_key))}",
            fix="make the tables again (jagg tables)",
        )
    complete = {key for key, row in by_key.items() if row["status"] == COMPLETE}
    scores = read_scores(paths.table("scores.parquet"))
    return StudyData(
        study=study,
        paths=paths,
        runs=[by_key[key] for key in wanted],
        history=[row for row in rows("history.parquet", HISTORY) if key_of(row) in complete],
        differences=rows("paired_differences.csv", PAIRED_DIFFERENCES),
        passes=rows("backward_passes.csv", BACKWARD_PASSES),
        curves=rows("curves.csv", CURVES),
        costs=rows("costs.csv", COSTS),
        equal_cost=rows("equal_cost.csv", EQUAL_COST),
        attrition=rows("attrition.csv", ATTRITION),
        claims=rows("claims.csv", CLAIMS) if paths.table("claims.csv").exists() else [],
        gradient_quality=rows("gradient_quality.csv", GRADIENT_QUALITY),
        stress=rows("gradient_stress.csv", GRADIENT_STRESS),
        routing=rows("routing_calibration.csv", ROUTING_CALIBRATION),
        joined=join_scores(scores, scores.column("arm").unique().to_pylist(), study.comparison.aggregation),
        truncated=truncated_prompts(scores),
    )


def truncated_prompts(scores: pa.Table) -> dict[str, str]:
    """Metric -> how many of its prompts the scorer cuts, in words; absent where the scorer cannot tell."""
    prompts = scores.select(["metric", "prompt_id", "truncated"])
    prompts = prompts.group_by(["metric", "prompt_id"], use_threads=False).aggregate([("truncated", "max")])
    known: dict[str, list[bool]] = {}
    for row in prompts.to_pylist():
        if row["truncated_max"] is not None:
            known.setdefault(row["metric"], []).append(row["truncated_max"])
    return {metric: f"{sum(cut)} of {len(cut)}" for metric, cut in known.items()}


def _difference(wanted: set[RunKey], found: set[RunKey]) -> str:
    lacking, further = (sorted(map(str, keys)) for keys in (wanted - found, found - wanted))
    return f"without {', '.join(lacking[:3]) or 'none'}, beyond them {', '.join(further[:3]) or 'none'}"


def key_of(row: Row) -> RunKey:
    """The run that a row of a table is about."""
    return RunKey(row["backbone"], row["algorithm"], row["arm"], row["seed"])


def prompt_differences(data: StudyData) -> list[Row]:
    """Each prompt's difference from the reference at the last checkpoint: mean, lowest and highest over seeds."""
    scores = data.joined.scores
    found: list[Row] = []
    for cell, metric, arm in product(data.cells, data.study.scorers, data.compared_arms):
        ours, theirs = (scores.get((cell, metric, data.last_step, name), {}) for name in (arm, data.reference))
        shared = sorted(set(ours) & set(theirs))
        if not shared:
            continue
        by_seed = np.array([ours[seed].by_prompt - theirs[seed].by_prompt for seed in shared])
        summaries = zip(ours[shared[0]].prompts, by_seed.mean(0), by_seed.min(0), by_seed.max(0))
        found += [
            {"backbone": cell[0], "algorithm": cell[1], "metric": metric, "arm": arm,
             "prompt_id": data.joined.prompts[code], "num_seeds": len(shared),
             "difference": float(mean), "lowest_seed": float(low), "highest_seed": float(high)}
            for code, mean, low, high in summaries
        ]  # fmt: skip
    return found
