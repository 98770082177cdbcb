"""The verb that holds results against claims, and results against their own files."""

from pathlib import Path
from typing import Annotated

import typer

from jagg.cli.arguments import note, out_file
from jagg.errors import InputError

DEFAULT_CLAIMS = Path("configs/claims")


def audit(
    claims: Annotated[
        list[Path] | None,
        typer.Argument(help="Registries of claims, YAML; default: configs/claims/*.yaml.", show_default=False),
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Folder of tables, results/<study>/tables.", show_default=False)
    ] = None,
    published: Annotated[
        Path | None, typer.Option(help="A published table alone, CSV, instead of tables.", show_default=False)
    ] = None,
    itself: Annotated[
        Path | None,
        typer.Option(
            "--self",
            help="The study's YAML file: make every number of its tables and report again from the raw files.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Table to write, .csv or .parquet.", show_default=False, callback=out_file)
    ] = None,
) -> None:
    """A verdict per claim: reproduced, contradicted, inconclusive or not-testable; whatever they are, the status is 0.

    With --self the first number that the raw files do not give ends the audit with status 2 and is named.
    """
    given = [name for name, value in (("--tables", tables), ("--published", published), ("--self", itself)) if value]
    if len(given) != 1 or (itself is None) != (out is not None) or (published and claims):
        raise InputError(
            "what to audit is not clear",
            expected="CLAIMS --tables DIR --out FILE, --published CSV --out FILE, or --self CONFIG",
            got=" and ".join(given) or "none of --tables, --published and --self",
        )
    if itself:
        _audit_itself(itself, claims)
    elif published and out:
        _audit_published(published, out)
    elif tables and out:
        _audit_claims(claims, tables, out)


def _registries(claims: list[Path] | None) -> list[Path]:
    return claims or sorted(DEFAULT_CLAIMS.glob("*.yaml"))


def _audit_claims(claims: list[Path] | None, tables: Path, out: Path) -> None:
    from jagg.claims import verdicts
    from jagg.claims.registry import load_claims
    from jagg.claims.results import read_results
    from jagg.records import write_table

    table = verdicts.audit(load_claims(_registries(claims)), read_results(tables))
    write_table(out, table)
    for column, scope in (("verdict", "each held alone"), ("verdict_family", "all held at once")):
        found = table.column(column).to_pylist()
        counts = ", ".join(f"{found.count(word)} {word}" for word in verdicts.VERDICTS)
        note(f"{out}: {counts} ({scope})")


def _audit_published(path: Path, out: Path) -> None:
    from jagg.forensics.published import WRONG, audit_published, read_published
    from jagg.records import write_table

    table = audit_published(read_published(path))
    write_table(out, table)
    found = table.column("finding").to_pylist()
    note(f"{out}: {sum(word in WRONG for word in found)} of {len(found)} checks object")


def _audit_itself(config: Path, claims: list[Path] | None) -> None:
    from jagg.claims.registry import load_claims
    from jagg.config import load_study
    from jagg.cost.passes import trained_passes
    from jagg.keys import StudyPaths
    from jagg.selfcheck.recompute import self_audit

    study = load_study(config)
    paths = StudyPaths.of(study)
    registries = _registries(claims)
    known = load_claims(registries) if registries else []
    self_audit(study, paths, known, trained_passes, note)
    note(f"self-audit of {study.study}: nothing disagrees")


VERBS = (audit,)
