"""Simultaneous bands over checkpoints."""

from collections import defaultdict
from typing import Any

from jagg.stats.design import Design
from jagg.stats.estimates import at_level
from jagg.stats.pairs import Comparison


def curve_rows(comparisons: list[Comparison], design: Design) -> list[dict[str, Any]]:
    """Bands that hold a curve's true differences at all checkpoints at once with the design's level (Bonferroni).

    Every checkpoint counts, whether it could be estimated or not, except one where all runs still have equal models
    and there is nothing to err about. Bonferroni, because few seeds cannot estimate how checkpoints go together.
    """
    curves: dict[tuple, list[Comparison]] = defaultdict(list)
    for comparison in comparisons:
        curves[comparison.cell, comparison.metric].append(comparison)
    return [row for curve in curves.values() for row in _band(sorted(curve, key=lambda c: c.step), design)]


def _band(curve: list[Comparison], design: Design) -> list[dict[str, Any]]:
    counted = [comparison for comparison in curve if comparison.step or comparison.estimate.estimable]
    rows = []
    for comparison in curve:
        estimate = comparison.estimate
        low, high = at_level(estimate, 1 - design.alpha / max(1, len(counted)))
        rows.append(
            {
                "backbone": comparison.cell[0],
                "algorithm": comparison.cell[1],
                "metric": comparison.metric,
                "step": comparison.step,
                "arm": comparison.arm,
                "reference": design.reference,
                "num_seeds": comparison.num_seeds,
                "difference": estimate.mean,
                "band_low": low,
                "band_high": high,
                "band_level": design.level if estimate.estimable else None,
                "num_checkpoints": len(counted),
                "note": "" if estimate.estimable else f"not estimable: {estimate.reason}",
            }
        )
    return rows
