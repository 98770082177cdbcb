"""Values of one metric in one unit: what may be converted is, and what cannot belong together is refused."""

from dataclasses import dataclass

import numpy as np

from jagg.errors import InputError
from jagg.stats.dictionary_encoding import Columns, combined, split
from jagg.units import COSINE, UNITS, unit_of

_ROUNDING = 1e-6
_LARGEST_RATIO = 20.0
"""Mean sizes of two runs differ by less than this, even of a model that has collapsed; two scales differ by more."""


@dataclass(frozen=True)
class Scale:
    """The unit of a metric's values, and the units that they were converted from."""

    unit: str
    converted: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        return f"values in {' and '.join(self.converted)} converted to {self.unit}" if self.converted else ""


def in_one_unit(columns: Columns, values: np.ndarray) -> tuple[np.ndarray, dict[str, Scale]]:
    """Values with those of every metric in one unit, and each metric's scale.

    A metric that stands in one unit keeps it; several units are converted to raw cosines.

    Raises:
        InputError: a unit that is not known or does not convert, a value outside its unit's range, or runs whose values
            are so far apart that one of them must be in another unit.
    """
    units = columns["unit"]
    _check_ranges(columns, values)
    found: dict[str, list[str]] = {}
    for code in np.unique(combined(columns, ["metric", "unit"])):
        metric, unit = split(columns, ["metric", "unit"], code)
        found.setdefault(metric, []).append(unit)
    mixed = {metric: names for metric, names in found.items() if len(names) > 1}
    for metric, names in mixed.items():
        alone = [name for name in names if UNITS[name].per_cosine is None]
        if alone:
            raise InputError(
                "scores of more than one unit cannot be compared",
                where=f"metric {metric}",
                expected="one unit, or units that convert: " + ", ".join(n for n, u in UNITS.items() if u.per_cosine),
                got=" | ".join(names),
                fix=f"{alone[0]} is another quantity: give it a metric name of its own",
            )
    factors = np.array([UNITS[name].per_cosine or 1.0 for name in units.values])
    is_mixed = np.array([metric in mixed for metric in columns["metric"].values])
    converted = is_mixed[columns["metric"].codes]
    values = np.where(converted, values / factors[units.codes], values) if mixed else values
    return values, {
        metric: Scale(COSINE, tuple(name for name in names if name != COSINE)) if metric in mixed else Scale(names[0])
        for metric, names in found.items()
    }


def _check_ranges(columns: Columns, values: np.ndarray) -> None:
    units = columns["unit"]
    for code, name in enumerate(units.values):
        unit = unit_of(name, where="column unit of the scores")
        rows = units.codes == code
        slack = _ROUNDING * unit.high
        outside = rows & ((values < unit.low - slack) | (values > unit.high + slack))
        if outside.any():
            raise InputError(
                "a value is outside the range of its unit",
                where=f"unit {name}",
                expected=f"{unit.low:g} to {unit.high:g}",
                got=values[outside][0],
                fix="correct the unit: " + ", ".join(f"{n} ({u.low:g} to {u.high:g})" for n, u in UNITS.items()),
            )
        if unit.per_cosine is not None and name != COSINE:
            _check_sizes(columns, values, rows, name)


_RUN = ("metric", "backbone", "algorithm", "step", "arm", "seed")


def _check_sizes(columns: Columns, values: np.ndarray, rows: np.ndarray, unit: str) -> None:
    """A wide range hides values of a narrower scale: 0.85 and 21.9 are both between -100 and 100."""
    keys, runs = np.unique(combined(columns, _RUN)[rows], return_inverse=True)
    sizes = np.bincount(runs, np.abs(values[rows])) / np.bincount(runs)
    metrics = np.array([split(columns, _RUN, key)[0] for key in keys])
    for metric in sorted(set(metrics)):
        of_metric = np.where((metrics == metric) & np.isfinite(sizes) & (sizes > 0), sizes, np.nan)
        if np.isnan(of_metric).all():
            continue
        low, high = int(np.nanargmin(of_metric)), int(np.nanargmax(of_metric))
        if of_metric[high] > _LARGEST_RATIO * of_metric[low]:
            raise InputError(
                "values of two scales stand in one column",
                where=f"metric {metric}, unit {unit}",
                expected="runs whose values are of one size",
                got=" | ".join(
                    f"{sizes[place]:.4g} ({dict(zip(_RUN[1:], split(columns, _RUN, keys[place])[1:]))})"
                    for place in (low, high)
                ),
                fix="name the unit that each row is in",
            )
