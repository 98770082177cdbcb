"""The one exception for input that the user can mend; the command line turns it into exit status 2."""


class InputError(ValueError):
    """User input is at fault: what is wrong, where, what was expected against what was found, what to do."""

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        expected: object = None,
        got: object = None,
        fix: str | None = None,
    ) -> None:
        lines = [what]
        if where is not None:
            lines.append(f"  where:    {where}")
        if expected is not None:
            lines.append(f"  expected: {expected}")
        if got is not None:
            lines.append(f"  got:      {got}")
        if fix is not None:
            lines.append(f"  to do:    {fix}")
        super().__init__("\n".join(lines))


def unknown_name(kind: str, name: str, known: object, where: object = None) -> InputError:
    """An unknown name of a choice: names the nearest known one and lists them all."""
    import difflib

    names = sorted(map(str, known))  # type: ignore[call-overload]
    near = difflib.get_close_matches(name, names, n=1)
    return InputError(
        f"unknown {kind} {name!r}",
        where=where,
        expected="one of " + ", ".join(names),
        got=name,
        fix=f"did you mean {near[0]!r}?" if near else f"use one of the {kind}s listed",
    )
