"""The results that claims are held against: a folder of tables and the study's records beside it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from jagg.claims.registry import Scope
from jagg.claims.values import check_values
from jagg.config import Algorithm, Arm, EmbeddedBackbone, HubModel, Study, load_study, resolve
from jagg.errors import InputError
from jagg.records import (
    BACKWARD_PASSES,
    GRADIENT_QUALITY,
    HISTORY,
    PAIRED_DIFFERENCES,
    SCORES,
    read_json,
    read_scores,
    read_table,
)
from jagg.stats.aggregation import POOLED_PROMPTS
from jagg.stats.compare import POOLED, compare
from jagg.stats.equivalence import Margin
from jagg.stats.join import Cell

Row = dict[str, Any]

_DIFFERENCES = pa.schema(
    [
        PAIRED_DIFFERENCES.field(name)
        for name in (
            "backbone", "algorithm", "metric", "step", "arm", "reference", "num_seeds", "difference", "sd_difference",
            "ci_low", "ci_high", "ci_level", "margin", "note",
        )
    ]
)  # fmt: skip
_QUALITY = pa.schema(
    [
        GRADIENT_QUALITY.field(name)
        for name in (
            "backbone", "algorithm", "estimator", "step", "split", "window", "sigma_start", "sigma_end", "num_rollouts",
            "cosine_mean", "cosine_sd", "fraction_above_threshold", "fraction_ci_low", "fraction_ci_high",
            "norm_ratio_mean", "relative_error_mean", "bound_mean", "velocity_residual_mean",
        )
    ]
)  # fmt: skip

_PASSES = pa.schema([field for field in BACKWARD_PASSES if field.name not in ("machine", "environment")])

TABLES = {
    "paired_differences.csv": _DIFFERENCES,
    "backward_passes.csv": _PASSES,
    "gradient_quality.csv": _QUALITY,
    "history.parquet": HISTORY,
    "scores.parquet": SCORES,
}


class NotTestableError(Exception):
    """These results cannot speak to a claim; the message says why."""


@dataclass(frozen=True)
class Results:
    """Tables by file name, and the study that made them where its record is there."""

    tables: Mapping[str, pa.Table]
    study: Study | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """Backbone -> what its record says it is."""

    def table(self, name: str) -> pa.Table:
        """A table that must be there.

        Raises:
            NotTestableError: it is not, or has no rows.
        """
        if name not in self.tables or not len(self.tables[name]):
            raise NotTestableError(f"the results have no {name}" if name not in self.tables else f"{name} is empty")
        return self.tables[name]

    @cached_property
    def _rows(self) -> dict[str, list[Row]]:
        return {}

    def rows(self, name: str) -> list[Row]:
        """Rows of a table, with their number (1 after the header) under `#`."""
        if name not in self._rows:
            self._rows[name] = [row | {"#": number} for number, row in enumerate(self.table(name).to_pylist(), start=1)]
        return self._rows[name]

    def differences(self, arm: str, reference: str) -> tuple[str, list[Row]]:
        """Rows of paired differences arm - reference and the name of their table; made from the scores if need be.

        Raises:
            NotTestableError: neither the differences nor the scores have both arms.
        """
        name = "paired_differences.csv"
        if name in self.tables:
            rows = [row for row in self.rows(name) if (row["arm"], row["reference"]) == (arm, reference)]
            if rows:
                return name, [row for row in rows if row["backbone"] != POOLED]
        scores = self.table("scores.parquet") if "scores.parquet" in self.tables else None
        known = set(scores.column("arm").unique().to_pylist()) if scores is not None else set()
        if scores is None or {arm, reference} - known:
            raise NotTestableError(f"the results have no comparison of {arm} with {reference}")
        label = f"{arm} - {reference}"
        if label not in self._rows:
            made = compare(
                scores,
                reference=reference,
                arms=[arm],
                level=self.level,
                margins=self._margins,
                aa_arm=self._aa_arm(reference, known),
                aggregation=self.aggregation,
            )
            self._rows[label] = [row | {"#": 0} for row in made.to_pylist()]
        return "scores.parquet", [row for row in self._rows[label] if row["backbone"] != POOLED]

    def _aa_arm(self, reference: str, known: set[str]) -> str | None:
        """The arm that measures the floor of differences from this reference, where there is one."""
        declared = self.study.comparison if self.study else None
        return declared.aa_arm if declared and declared.reference == reference and declared.aa_arm in known else None

    @property
    def _margins(self) -> dict[str, float | Margin]:
        declared = self.study.comparison.margins if self.study else {}
        return {
            metric: margin if isinstance(margin, float) else Margin(-margin.below, margin.above or math.inf)
            for metric, margin in declared.items()
        }

    @property
    def aggregation(self) -> str:
        """How prompts are averaged: as the study declares, else all alike."""
        return self.study.comparison.aggregation if self.study else POOLED_PROMPTS

    @property
    def level(self) -> float:
        """Level of the intervals: the study's, else the table's, else 0.95."""
        if self.study:
            return self.study.comparison.ci_level
        rows = self.rows("paired_differences.csv") if "paired_differences.csv" in self.tables else []
        levels = {row["ci_level"] for row in rows} - {None}
        return levels.pop() if len(levels) == 1 else 0.95

    @cached_property
    def cells(self) -> list[Cell]:
        """The declared cells of the study, or else those that the tables have."""
        if self.study:
            return [(backbone, algorithm) for backbone in self.study.backbones for algorithm in self.study.algorithms]
        found = [
            (row["backbone"], row["algorithm"])
            for name in ("paired_differences.csv", "backward_passes.csv", "gradient_quality.csv")
            if name in self.tables and len(self.tables[name])
            for row in self.rows(name)
        ]
        return [cell for cell in dict.fromkeys(found) if cell[0] != POOLED]

    @cached_property
    def metrics(self) -> list[str]:
        """The declared metrics of the study, or else those that the tables have."""
        if self.study:
            return list(self.study.scorers)
        return list(dict.fromkeys(row["metric"] for row in self.rows("paired_differences.csv")))

    def model(self, backbone: str) -> str | None:
        """Repository name of the published model that a backbone is, where the study's record shows it.

        Only weights at a pinned revision of a hub show what they are; a folder may hold anything.
        """
        source = self.study.backbones[backbone].source if self.study and backbone in self.study.backbones else None
        return source.repo.split("/")[1] if isinstance(source, HubModel) else None

    def is_small(self, backbone: str) -> bool:
        """Whether a backbone is one of the small models that a study trains itself."""
        return self.study is not None and isinstance(self.study.backbones[backbone].source, EmbeddedBackbone)

    def cells_of(self, scope: Scope, backbones: Iterable[str], arm: str | None) -> list[Cell]:
        """Cells of some backbones that a scope counts.

        Raises:
            NotTestableError: there is none.
        """
        allowed = set(backbones)
        known = sorted({algorithm for _, algorithm in self.cells})
        if scope.algorithms and not set(scope.algorithms) & set(known):
            raise NotTestableError(
                f"the results have no {' or '.join(scope.algorithms)}; their algorithms are {', '.join(known)}"
            )
        cells = [cell for cell in self.cells if cell[0] in allowed and cell[1] in (scope.algorithms or (cell[1],))]
        if not scope.setting:
            return cells
        if self.study is None:
            raise NotTestableError("the tables stand without their study's record, so their settings are not known")
        fitting = [cell for cell in cells if self._settings(cell, arm) >= scope.setting.items()]
        if not fitting:
            wanted = ", ".join(f"{name} {value}" for name, value in scope.setting.items())
            raise NotTestableError(f"no cell has the claim's setting: {wanted}")
        return fitting

    def _settings(self, cell: Cell, arm: str | None) -> Any:
        assert self.study is not None
        settings = {
            name: value
            for name, value in self.algorithm(cell[1]).model_dump(mode="json").items()
            if isinstance(value, bool | int | float | str)
        }
        config = self.arm(arm)
        if config:
            settings["jagg_frac"] = resolve(config.routing.jagg_frac, cell[1])
        return settings.items()

    def algorithm(self, name: str) -> Algorithm:
        assert self.study is not None
        return self.study.algorithms[name]

    def arm(self, name: str | None) -> Arm | None:
        return self.study.arms.get(name) if self.study and name else None

    def last_steps(self, steps: Iterable[int]) -> list[int]:
        """Checkpoints after step 0, in order: the study's, or else those given."""
        known = self.study.training.checkpoints if self.study else sorted(set(steps))
        return [step for step in known if step > 0]


def read_results(folder: Path) -> Results:
    """The tables of a folder, and the study's records beside it (`../study.json`, `../models/*/model.json`).

    Raises:
        InputError: no table that an audit knows, or one that is damaged or holds what no result can.
    """
    tables = {name: _read(folder / name, schema) for name, schema in TABLES.items() if (folder / name).exists()}
    for name, table in tables.items():
        check_values(folder / name, table)
    if not tables:
        raise InputError(
            "no tables to audit", where=folder, expected="some of " + ", ".join(TABLES), got="none of them"
        )
    record = folder.resolve().parent / "study.json"
    study = load_study(record) if record.exists() else None
    return Results(tables, study, _labels(record.parent, study))


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    return read_scores(path) if schema is SCORES else read_table(path, schema)


def _labels(root: Path, study: Study | None) -> dict[str, str]:
    labels = {}
    for name in study.backbones if study else ():
        path = root / "models" / name / "model.json"
        labels[name] = str(read_json(path).get("label", name)) if path.exists() else name
    return labels
