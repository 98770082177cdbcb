"""Verbs that turn scores into tables, a report and MLflow runs."""

from pathlib import Path
from typing import Annotated

import typer

from jagg.cli.arguments import Config, note, out_folder
from jagg.config import load_study
from jagg.errors import InputError
from jagg.keys import StudyPaths


def tables(config: Config) -> None:
    """Collect the study's runs into its tables; needs every score file."""
    from jagg.report.tables import aggregate

    study = load_study(config)
    aggregate(study, StudyPaths.of(study))


def compare(
    scores: Annotated[list[Path], typer.Argument(help="Score tables, .parquet or .csv.", show_default=False)],
    arm: Annotated[list[str], typer.Option(help="Arm to compare; may repeat.", show_default=False)],
    reference: Annotated[str, typer.Option(help="Arm that it is compared with.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(help="Folder that receives paired_differences.csv.", show_default=False, callback=out_folder),
    ],
    margin: Annotated[
        list[str] | None, typer.Option(help="METRIC=X: margin of equivalence in raw units; may repeat.")
    ] = None,
    optimised: Annotated[list[str] | None, typer.Option(help="Metric that the training optimised; may repeat.")] = None,
    level: Annotated[float, typer.Option(min=0.5, max=0.999, help="Level of the intervals (no unit).")] = 0.95,
) -> None:
    """Paired differences between arms, by seed, on any long table of scores."""
    from jagg.stats.compare import compare_files

    table = compare_files(
        scores,
        arms=arm,
        reference=reference,
        margins=_margins(margin or []),
        optimised=optimised or None,
        level=level,
    )
    from jagg.records import write_table

    write_table(out / "paired_differences.csv", table)
    note(f"{out / 'paired_differences.csv'}: {table.num_rows} rows")


def _margins(texts: list[str]) -> dict[str, float]:
    margins = dict(map(_margin, texts))
    if len(margins) < len(texts):
        raise InputError("a metric has two margins", where="--margin", expected="one a metric", got=", ".join(texts))
    return margins


def _margin(text: str) -> tuple[str, float]:
    metric, _, value = text.partition("=")
    try:
        margin = float(value)
    except ValueError:
        margin = -1.0
    if not metric or not 0 < margin < float("inf"):
        raise InputError("not a margin", where="--margin", expected="METRIC=X with X > 0", got=text)
    return metric, margin


def track(
    config: Config,
    verify: Annotated[bool, typer.Option("--verify", help="Only compare the store with the files.")] = False,
) -> None:
    """Bring MLflow up to date with the study's files; repeating it adds nothing."""
    import jagg.track as tracking

    study = load_study(config)
    paths = StudyPaths.of(study)
    if not verify:
        summary = tracking.track(study, paths)
        note(
            f"MLflow: {summary.added} runs added, {summary.replaced} replaced, {summary.updated} updated, "
            f"{summary.unchanged} unchanged"
        )
        return
    mismatches = tracking.verify(study, paths)
    if mismatches:
        raise InputError(
            f"MLflow and the files differ in {len(mismatches)} place(s)",
            where=study.tracking.uri or paths.tracking_uri,
            got="\n            ".join(mismatches[:20]),
            fix="run `jagg track` to bring the store up to date",
        )
    note("MLflow and the files agree")


def report(config: Config) -> None:
    """Build the report and its figures from the study's tables."""
    from jagg.report import build_report

    study = load_study(config)
    paths = StudyPaths.of(study)
    build_report(study, paths)
    note(str(paths.report))


VERBS = (tables, compare, track, report)
