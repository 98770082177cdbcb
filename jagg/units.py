"""Units of scores: what a value of each says in raw cosines, and which values it can take."""

from dataclasses import dataclass

from jagg.errors import unknown_name

COSINE = "cosine"


@dataclass(frozen=True)
class Unit:
    """A scale of values from `low` to `high`; `per_cosine`: its value of a cosine of 1, None for a scale of its own."""

    low: float
    high: float
    per_cosine: float | None = None


def _scaled(per_cosine: float) -> Unit:
    return Unit(-per_cosine, per_cosine, per_cosine)


UNITS: dict[str, Unit] = {
    COSINE: _scaled(1.0),
    "x2.5": _scaled(2.5),  # CLIPScore as published
    "x100": _scaled(100.0),  # the models' own logit
    "logit/26": _scaled(100.0 / 26.0),  # PickScore as some trainers scale it, to bring it near 1
    "probability": Unit(0.0, 1.0),
    "points": Unit(-float("inf"), float("inf")),
}
"""Name -> unit. Those with `per_cosine` convert into each other; the others stand alone."""


def unit_of(name: str, where: object = None) -> Unit:
    """The unit of a name.

    Raises:
        InputError: no such unit.
    """
    if name not in UNITS:
        raise unknown_name("unit", name, UNITS, where=where)
    return UNITS[name]
