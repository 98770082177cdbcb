"""From the files of finished runs to the study's tables."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jagg.config import Study
from jagg.errors import InputError
from jagg.identity import ended_run
from jagg.keys import RunKey, RunPaths, StudyPaths, run_keys
from jagg.probe.summary import probe_tables
from jagg.records import (
    BACKWARD_PASSES,
    HISTORY,
    RUNS,
    SCORES,
    read_scores,
    read_table,
    table_of,
    write_table,
)
from jagg.report.comparisons import comparison_tables
from jagg.report.pareto import pareto
from jagg.stats.attrition import COMPLETE, DIVERGED, MISSING, RATIO_FAILED

__all__ = ["COMPLETE", "DIVERGED", "MISSING", "RATIO_FAILED", "Run", "aggregate", "read_run", "study_tables"]


@dataclass(frozen=True)
class Run:
    """What the files of one wanted run say; `history` holds each training step once, the last attempt's."""

    key: RunKey
    status: str
    history: pa.Table
    scores: pa.Table
    lost_steps: int = 0
    diverged: dict[str, Any] | None = None
    machine: str = ""
    environment: str = ""
    """Where it was trained: the accelerator or processor, and the lock hash of the libraries."""
    off_ratio: str = ""
    """How far the probability ratio was from 1, where that is too far."""

    @property
    def row(self) -> dict[str, Any]:
        """The run's row of the runs table."""
        notes = [] if self.status == COMPLETE else ["not averaged"]
        if self.diverged:
            notes.append("{quantity} was {value} at training step {step}".format(**self.diverged))
        if self.off_ratio:
            notes.append(self.off_ratio)
        if self.lost_steps:
            notes.append(f"training steps lost to interruptions: {self.lost_steps}")
        return {
            **self.key.row(),
            "status": self.status,
            "trained_steps": len(self.history),
            "note": "; ".join(notes),
        }


def aggregate(study: Study, paths: StudyPaths) -> None:
    """Write the tables of `study_tables` into tables/.

    Raises:
        InputError: as `study_tables`.
    """
    for name, table in study_tables(study, paths).items():
        write_table(paths.table(name), table)


def study_tables(study: Study, paths: StudyPaths) -> dict[str, pa.Table]:
    """File name -> table, made from the files of the study's runs.

    Wanted runs that are missing, diverged or fail the ratio check are listed in runs.csv and left out of averages.

    Raises:
        InputError: a file of a finished run is missing, truncated or of another run, a run was made with other settings
            than the study's, or scores cannot be compared.
    """
    runs = [read_run(study, key, paths.run(key)) for key in run_keys(study)]
    complete = [run for run in runs if run.status == COMPLETE]
    if not complete:
        got = ", ".join(f"{count} {status}" for status, count in Counter(run.status for run in runs).items())
        raise InputError(
            "no run of the study is complete", where=paths.root / "runs", expected="complete runs", got=got
        )
    scores = pa.concat_tables([run.scores for run in complete])
    comparisons = comparison_tables(
        study,
        scores,
        {run.key: run.history for run in complete},
        {run.key: run.status for run in runs},
        {run.key: f"{run.machine}, {run.environment}" for run in complete},
    )
    passes = backward_passes(complete, study.comparison.reference)
    return {
        "scores.parquet": scores,
        "history.parquet": pa.concat_tables([run.history for run in runs]),
        **comparisons,
        "backward_passes.csv": passes,
        "pareto.csv": pareto(comparisons["paired_differences.csv"], passes),
        "runs.csv": table_of([run.row for run in runs], RUNS),
        **probe_tables(study, paths),
    }


def read_run(study: Study, key: RunKey, run: RunPaths) -> Run:
    """The files of one wanted run.

    Raises:
        InputError: a file that its record promises is missing, truncated or of another run.
    """
    if not run.manifest.exists():
        return Run(key, MISSING, table_of([], HISTORY), table_of([], SCORES))
    record = ended_run(study, key, run)
    diverged = record["status"] == DIVERGED
    attempts = read_table(run.history, HISTORY).select(HISTORY.names)
    _check_key(attempts, key, run.history)
    history = last_attempts(attempts)
    off_ratio = "" if diverged else _off_ratio(study, key, history)
    status = DIVERGED if diverged else RATIO_FAILED if off_ratio else COMPLETE
    scores = table_of([], SCORES)
    if status == COMPLETE:
        tables = [_read_scores(study, key, run, step) for step in study.training.checkpoints]
        scores = pa.concat_tables(tables)
    lost_steps = len(attempts) - len(history) + len(record["lost_steps"])
    return Run(key, status, history, scores, lost_steps, record["diverged"], *_trained_on(record), off_ratio)


def _trained_on(record: dict[str, Any]) -> tuple[str, str]:
    """Machine and environment of a run, as its record says; runs are timed alike only where both are equal."""
    environment = record["environment"]
    name = record.get("device", {}).get("name", "cpu")
    return environment["processor"] if name == "cpu" else name, environment["lock_sha256"][:12]


def _off_ratio(study: Study, key: RunKey, history: pa.Table) -> str:
    """Where the ratio of a first optimizer step was farther from 1 than the study allows, in words, or nothing."""
    allowed = study.comparison.max_ratio_deviation
    deviations = history.column("ratio_max_deviation").to_numpy()
    clip_range = study.algorithms[key.algorithm].clip_range
    if allowed is None or not len(deviations) or deviations.max() <= allowed * clip_range:
        return ""
    worst = int(deviations.argmax())
    return (
        f"the ratio was {deviations[worst]:.3g} from 1 before any update (training step "
        f"{history.column('step')[worst].as_py()}), more than {allowed:g} clip_range ({clip_range:g})"
    )


def _read_scores(study: Study, key: RunKey, run: RunPaths, step: int) -> pa.Table:
    path = run.scores(step)
    table = read_scores(path)
    _check_key(table, key, path)
    metrics = set(table.column("metric").unique().to_pylist())
    steps = table.column("step").unique().to_pylist()
    if metrics != set(study.scorers) or steps != [step]:
        raise InputError(
            "a score file is not complete",
            where=path,
            expected=f"step {step}; {', '.join(sorted(study.scorers))}",
            got=f"step {', '.join(map(str, steps)) or 'none'}; {', '.join(sorted(metrics)) or 'no metric'}",
            fix="remove the file and run the study again",
        )
    return table


def _check_key(table: pa.Table, key: RunKey, path: object) -> None:
    for name, value in key.row().items():
        found = table.column(name).unique().to_pylist()
        if found not in ([], [value]):
            raise InputError("rows of another run", where=path, expected=f"{name} {value}", got=found)


def last_attempts(history: pa.Table) -> pa.Table:
    """Each training step once, in order: of steps made again after an interruption the last attempt counts."""
    order = np.lexsort([history.column("attempt").to_numpy(), history.column("step").to_numpy()])
    steps = history.column("step").to_numpy()[order]
    last = np.append(steps[1:] != steps[:-1], True)[: len(steps)]
    return history.take(pa.array(order[last]))


def backward_passes(runs: Sequence[Run], reference: str) -> pa.Table:
    """Passes and times of each complete run, with ratios to the reference arm's run of the same cell and seed."""
    totals = {run.key: _totals(run) for run in runs}
    rows = []
    for key, total in totals.items():
        partner = totals.get(RunKey(key.backbone, key.algorithm, reference, key.seed))
        rows.append(_passes_row(key, total, partner, reference))
    return table_of(rows, BACKWARD_PASSES)


_SUMMED = (
    "images", "backward_passes", "backward_passes_expected", "forward_passes_grad", "forward_passes_nograd",
    "rollout_s", "update_s", "step_s",
)  # fmt: skip


def _totals(run: Run) -> dict[str, Any]:
    history = run.history
    totals: dict[str, Any] = {name: pc.sum(history.column(name)).as_py() for name in _SUMMED}
    for name in ("windows_exact", "windows_approximate"):
        totals[name] = pc.sum(pc.multiply(history.column(name), history.column("images"))).as_py()
    return totals | {"trained_steps": len(history), "machine": run.machine, "environment": run.environment}


def _passes_row(key: RunKey, total: dict[str, Any], partner: dict[str, Any] | None, reference: str) -> dict[str, Any]:
    notes = ["transformer_flops not measured"]
    if partner is None:
        notes.append(f"no complete run of {reference} with this seed")
    timed_alike = partner is not None and all(partner[name] == total[name] for name in ("machine", "environment"))
    if partner is not None and not timed_alike:
        notes.append(
            f"no ratio of times: {reference}'s run was timed on {partner['machine']}, {partner['environment']}"
        )
    if total["backward_passes"] != total["backward_passes_expected"]:
        notes.append("backward passes differ from the closed form")
    return {
        **key.row(),
        "trajectories": total["images"],
        "trained_steps": total["trained_steps"],
        "windows_exact": total["windows_exact"],
        "windows_approximate": total["windows_approximate"],
        "backward_passes": total["backward_passes"],
        "backward_passes_expected": total["backward_passes_expected"],
        "backward_passes_per_trajectory": _ratio(total["backward_passes"], total["images"]),
        "ratio_to_baseline": _ratio_to(total, partner, "backward_passes"),
        "forward_passes": _sum(total[name] for name in ("forward_passes_grad", "forward_passes_nograd")),
        "transformer_flops": None,
        "rollout_s": total["rollout_s"],
        "update_s": total["update_s"],
        "update_time_ratio": _ratio_to(total, partner, "update_s") if timed_alike else None,
        "step_time_ratio": _ratio_to(total, partner, "step_s") if timed_alike else None,
        "note": "; ".join(notes),
        "machine": total["machine"],
        "environment": total["environment"],
    }


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(known)  # type: ignore[arg-type]


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _ratio_to(total: dict[str, Any], partner: dict[str, Any] | None, name: str) -> float | None:
    return None if partner is None else _ratio(total[name], partner[name])
