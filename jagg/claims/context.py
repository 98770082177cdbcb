"""What an estimand's function is given: the results, and the part of them that a claim is about."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from jagg.claims.evidence import Pointer, Quantity
from jagg.claims.registry import Scope
from jagg.claims.results import NotTestableError, Results
from jagg.stats.estimates import paired_t
from jagg.stats.join import Cell


@dataclass(frozen=True)
class Case:
    """Results of some backbones, and the scope of the claim that they are held against."""

    results: Results
    scope: Scope
    backbones: tuple[str, ...]

    def cells(self, arm: str | None = None) -> list[Cell]:
        """Cells that the claim is about; `arm` is the one whose jagg_frac a setting may ask for.

        Raises:
            NotTestableError: there is none.
        """
        return self.results.cells_of(self.scope, self.backbones, arm)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that the claim is about, there or not.

        Raises:
            NotTestableError: the claim names some and the results have none of them.
        """
        if not self.scope.metrics:
            return tuple(self.results.metrics)
        if not set(self.scope.metrics) & set(self.results.metrics):
            known = ", ".join(self.results.metrics)
            raise NotTestableError(f"the results have no {' or '.join(self.scope.metrics)}; their metrics are {known}")
        return self.scope.metrics


def of_seeds(
    name: str,
    values: Sequence[float],
    low: float = -math.inf,
    high: float = math.inf,
    *,
    pointers: Iterable[Pointer] = (),
    log: bool = False,
) -> Quantity:
    """The mean over seeds as a quantity; not estimable where no t interval follows from the values."""
    estimate = paired_t(np.array(values, float))
    return Quantity(
        name,
        estimate.mean,
        low,
        high,
        estimate.standard_error,
        estimate.df,
        len(values),
        tuple(pointers),
        estimate.reason,
        log,
    )


def missing(name: str, reason: str) -> Quantity:
    """A part of a claim that the results cannot speak to: it keeps the claim from being certified."""
    return Quantity(name, None, reason=reason)


def cell_name(cell: Cell) -> str:
    """A cell in a message."""
    return "/".join(cell)
