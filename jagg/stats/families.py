"""The declared family of an arm's tests: tiers that are tested in order, and what every row's place in it is."""

from dataclasses import dataclass

from jagg.stats.multiplicity import holm
from jagg.stats.pairs import POOLED_CELL, Comparison, Place

PRIMARY, CELLS, SECONDARY, EXPLORATORY = "primary", "cells", "secondary", "exploratory"
FAMILIES = (PRIMARY, CELLS, SECONDARY, EXPLORATORY)


@dataclass(frozen=True)
class Membership:
    """A row's tier, the tests that Holm's correction counts in it, and the corrected p."""

    family: str
    size: int
    p_holm: float | None


def declared_family(comparisons: list[Comparison], primary: str | None) -> tuple[dict[Place, Membership], int]:
    """The declared tests of one arm, and how many there are in all tiers.

    Each cell's last checkpoint that the arms share is tested, nothing else; other checkpoints are exploratory. Tiers:
    the primary metric pooled over cells (or in the only cell), the primary metric in each cell, then every other metric
    in each cell and pooled. Within a tier p is Holm's; a tier counts only once all tests before it are significant, so
    p is at least the largest corrected p of the earlier tiers (serial gatekeeping, Westfall and Krishen 2001). Without
    a primary metric there is one tier, all cells and metrics. A test that could not be done counts as p = 1.
    """
    tiers = _tiers(comparisons, primary)
    steps = _last_steps(comparisons)
    p_values = {comparison.place: comparison.estimate.p_value for comparison in comparisons}
    members: dict[Place, Membership] = {}
    gate = 0.0
    for family, tests in tiers:
        places = [(cell, metric, steps.get(cell, -1)) for cell, metric in tests]
        corrected = holm([p_values.get(place) for place in places], len(tests))
        gated = [None if p is None else max(p, gate) for p in corrected]
        for place, p in zip(places, gated):
            if place in p_values:
                members[place] = Membership(family, len(tests), p)
        gate = max([gate, *(1.0 if p is None else p for p in gated)])
    return members, sum(len(tests) for _, tests in tiers)


def _tiers(comparisons: list[Comparison], primary: str | None) -> list[tuple[str, list[tuple]]]:
    cells = sorted({comparison.cell for comparison in comparisons} - {POOLED_CELL})
    metrics = sorted({comparison.metric for comparison in comparisons})
    if primary is None:
        return [(CELLS, [(cell, metric) for cell in cells for metric in metrics])]
    several = len(cells) > 1
    others = [metric for metric in metrics if metric != primary]
    places = [*cells, POOLED_CELL] if several else cells
    tiers = [
        (PRIMARY, [(POOLED_CELL if several else cells[0], primary)]),
        (CELLS, [(cell, primary) for cell in cells] if several else []),
        (SECONDARY, [(cell, metric) for metric in others for cell in places]),
    ]
    return [(family, tests) for family, tests in tiers if tests]


def _last_steps(comparisons: list[Comparison]) -> dict:
    last: dict = {}
    for comparison in comparisons:
        if comparison.num_seeds:
            last[comparison.cell] = max(comparison.step, last.get(comparison.cell, comparison.step))
    return last
