"""How a self-audit fails."""

from typing import NoReturn

from jagg.errors import InputError


def mismatch(what: str, where: object, expected: object, got: object) -> NoReturn:
    """The one way in which a self-audit fails."""
    raise InputError(f"self-audit: {what}", where=where, expected=expected, got=got)
