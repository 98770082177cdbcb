"""Verbs that look without running anything."""

from pathlib import Path
from typing import Annotated

import typer

from jagg.cli.arguments import Config, note
from jagg.config import load_study
from jagg.errors import InputError


def passes(config: Config) -> None:
    """Print the expected backward and forward passes a trajectory, per algorithm and arm."""
    from jagg.gradients.passes import passes_table

    typer.echo(passes_table(load_study(config)))


def doctor(
    config: Annotated[Path | None, typer.Argument(help="A study to check as well.", show_default=False)] = None,
) -> None:
    """Check what this machine can run, and what is missing for it."""
    from jagg.cli.checks import machine_checks, study_checks

    checks = machine_checks() + (study_checks(load_study(config)) if config else [])
    for check in checks:
        typer.echo(f"{'ok  ' if check.ok else 'LACK'}  {check.what}: {check.found}")
    lacking = [check.what for check in checks if not check.ok]
    if lacking:
        raise InputError("something is missing", where=config or "this machine", got=", ".join(lacking))
    note("nothing is missing")


def schema(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table of every key instead.")] = False,
) -> None:
    """Print the JSON schema of a study file (for editors)."""
    from jagg.config.schema import key_reference, study_schema

    typer.echo(key_reference() if markdown else study_schema(), nl=False)


VERBS = (passes, doctor, schema)
