"""What is declared before the run and decides how scores are read: reference, level, margins, primary metric."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from jagg.errors import InputError, unknown_name
from jagg.stats.aggregation import POOLED_PROMPTS
from jagg.stats.equivalence import Margin


@dataclass(frozen=True)
class Design:
    """The declared part of a comparison.

    Args:
        reference: arm that the others are compared with.
        level: level of the intervals, which the verdicts follow from.
        margins: metric -> margin of equivalence and non-inferiority, in the metric's unit.
        optimised_metrics: metrics that are part of the training reward; None leaves `role` empty.
        primary_metric: metric that is tested first; default: the first optimised one.
        independent_cells: a seed of one cell has nothing in common with the same number in another cell.
        aa_arm: the reference trained once more with other noise; it shows how large a difference means nothing.
        aggregation: how prompts are averaged (`jagg.stats.aggregation`): all alike, or by groups of equal weight.
    """

    reference: str
    level: float = 0.95
    margins: Mapping[str, float | Margin] = field(default_factory=dict)
    optimised_metrics: Collection[str] | None = None
    primary_metric: str | None = None
    independent_cells: bool = False
    aa_arm: str | None = None
    aggregation: str = POOLED_PROMPTS

    @property
    def alpha(self) -> float:
        """Two-sided error of the intervals."""
        return 1 - self.level

    @property
    def primary(self) -> str | None:
        return self.primary_metric or next(iter(self.optimised_metrics or ()), None)

    def margin(self, metric: str) -> Margin | None:
        value = self.margins.get(metric)
        return None if value is None else Margin.of(value)

    def role(self, metric: str) -> str | None:
        if self.optimised_metrics is None:
            return None
        return "optimised" if metric in self.optimised_metrics else "held_out"

    def arms_of(self, scores: pa.Table, arms: Collection[str] | None) -> list[str]:
        """The arms to compare: those asked for, or all that the scores have; the A/A arm first.

        Raises:
            InputError: nothing to compare, or a metric or arm of the design that the scores lack.
        """
        if not len(scores):
            raise InputError(
                "nothing to compare", where="the scores", expected="one row an image and metric", got="none"
            )
        known = scores.column("arm").unique().to_pylist()
        names = sorted(set(known) - {self.reference}) if arms is None else list(dict.fromkeys(arms))
        if self.reference in names or not names:
            raise InputError(
                "nothing to compare", where="arms", expected=f"arms other than {self.reference}", got=names
            )
        metrics = scores.column("metric").unique().to_pylist()
        for where, given in (
            ("margins", self.margins),
            ("optimised metrics", self.optimised_metrics or ()),
            ("primary metric", [self.primary_metric] if self.primary_metric else ()),
        ):
            for metric in given:
                if metric not in metrics:
                    raise unknown_name("metric", metric, metrics, where=where)
        if self.aa_arm is not None and self.aa_arm not in known:
            raise unknown_name("arm", self.aa_arm, known, where="the A/A arm")
        return names
