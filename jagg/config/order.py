"""The order of names in a study: one that follows from the names, since the order of keys means nothing."""

import re
from collections.abc import Iterable
from typing import Any


def natural_order(names: Iterable[str], first: str | None = None) -> list[str]:
    """Names with their numbers by value (`frac_2` before `frac_10`); `first`, where it is among them, leads."""
    return sorted(names, key=lambda name: (name != first, _parts(name)))


def _parts(name: str) -> tuple[Any, ...]:
    """Words and numbers in turn; equal ones (`a1`, `a01`) stand as text does."""
    words = re.split(r"(\d+)", name)
    return [int(word) if place % 2 else word for place, word in enumerate(words)], name


def ordered(content: dict[str, Any]) -> dict[str, Any]:
    """A study's raw content with its named parts in natural order, the reference arm first."""
    comparison, reward = content.get("comparison"), content.get("reward")
    reference = comparison.get("reference") if isinstance(comparison, dict) else None
    parts: dict[str, Any] = {
        name: content[name] for name in ("backbones", "algorithms", "arms", "scorers") if name in content
    }
    changed: dict[str, Any] = {
        name: _ordered(part, reference if name == "arms" else None) for name, part in parts.items()
    }
    if isinstance(reward, dict) and "weights" in reward:
        changed["reward"] = reward | {"weights": _ordered(reward["weights"])}
    return content | changed


def _ordered(part: Any, first: str | None = None) -> Any:
    """A mapping of names in order; anything else is left to the checks that follow."""
    if not isinstance(part, dict) or not all(isinstance(name, str) for name in part):
        return part
    return {name: part[name] for name in natural_order(part, first)}
