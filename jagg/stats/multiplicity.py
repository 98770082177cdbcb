"""Correction of several tests that make one family."""

import math
from collections.abc import Sequence


def holm(p_values: Sequence[float | None], family_size: int | None = None) -> list[float | None]:
    """Holm's step-down correction (Holm 1979), in the order given.

    Args:
        p_values: None or NaN is a test that could not be done; it stays None and counts as the largest p.
        family_size: tests declared, done or not; default: all that are given.

    Raises:
        ValueError: the family is smaller than the tests given, or a p-value is outside [0, 1].
    """
    size = len(p_values) if family_size is None else family_size
    if size < len(p_values):
        raise ValueError(f"family_size: expected at least {len(p_values)}, the tests given, got {size}")
    known = [(p, place) for place, p in enumerate(p_values) if p is not None and not math.isnan(p)]
    if any(not 0 <= p <= 1 for p, _ in known):
        raise ValueError(f"p_values: expected values in [0, 1], got {list(p_values)}")
    corrected: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, place) in enumerate(sorted(known)):
        running = max(running, min(1.0, (size - rank) * p))
        corrected[place] = running
    return corrected
