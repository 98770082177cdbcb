"""Verbs that turn scores into tables, a report and MLflow runs."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jagg.cli.arguments import Config, note, out_file, out_folder
from jagg.config import load_study
from jagg.errors import InputError
from jagg.keys import StudyPaths

if TYPE_CHECKING:
    from jagg.stats.equivalence import Margin


def tables(config: Config) -> None:
    """Collect the study's runs into its tables; needs every score file."""
    from jagg.report.tables import aggregate

    study = load_study(config)
    aggregate(study, StudyPaths.of(study))


def finite_difference(value: float | None) -> float | None:
    """Check that seeds can be planned for a difference.

    Raises:
        InputError: it is 0 or not finite.
    """
    if value is not None and not (math.isfinite(value) and value):
        raise InputError(
            "no seeds can be planned for this", where="--difference", expected="a number other than 0", got=value
        )
    return value


def compare(
    scores: Annotated[
        list[Path] | None, typer.Argument(help="Score tables, .parquet or .csv.", show_default=False)
    ] = None,
    arm: Annotated[list[str] | None, typer.Option(help="Arm to compare; may repeat.", show_default=False)] = None,
    reference: Annotated[str | None, typer.Option(help="Arm that it is compared with.", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder that receives paired_differences.csv and curves.csv.", show_default=False, callback=out_folder
        ),
    ] = None,
    margin: Annotated[
        list[str] | None,
        typer.Option(help="METRIC=X or METRIC=LOW:HIGH: margin of equivalence in raw units; may repeat."),
    ] = None,
    optimised: Annotated[list[str] | None, typer.Option(help="Metric that the training optimised; may repeat.")] = None,
    primary: Annotated[
        str | None, typer.Option(help="Metric that is tested first; default: the first --optimised.")
    ] = None,
    aa: Annotated[str | None, typer.Option(help="A/A arm: the reference with other noise.", show_default=False)] = None,
    independent_cells: Annotated[
        bool, typer.Option("--independent-cells", help="Equal seeds of two cells have nothing in common.")
    ] = False,
    aggregation: Annotated[
        str,
        typer.Option(
            help="How a seed's prompts are averaged: pooled, all alike; equal_weight, every prompt_group alike."
        ),
    ] = "pooled",
    whole_prompts: Annotated[
        bool, typer.Option("--whole-prompts", help="Leave out the prompts that a metric's scorer cuts.")
    ] = False,
    win_probability: Annotated[
        str | None,
        typer.Option(
            help="Metric of a preference model: also compare how probably it picks the arm's image.", show_default=False
        ),
    ] = None,
    level: Annotated[float, typer.Option(min=0.5, max=0.999, help="Level of the intervals (no unit).")] = 0.95,
    plan: Annotated[bool, typer.Option("--plan", help="Only print how many seeds a family of tests needs.")] = False,
    tests: Annotated[int, typer.Option(min=1, max=1_000_000, help="With --plan: tests of the family.")] = 1,
    sd: Annotated[
        float,
        typer.Option(min=1e-12, max=1e12, help="With --plan: deviation of paired differences over seeds, raw units."),
    ] = 1.0,
    difference: Annotated[
        float | None,
        typer.Option(
            help="With --plan: true difference to find, raw units; default: --sd.", callback=finite_difference
        ),
    ] = None,
) -> None:
    """Paired differences between arms, by seed, on any long table of scores; or, with --plan, the seeds they need."""
    margins = _margins(margin or [])
    if plan:
        _print_plan(tests, sd, difference, margins, level)
        return
    given = {"SCORES": scores, "--arm": arm, "--reference": reference, "--out": out}
    lacking = [name for name, value in given.items() if not value]
    if not scores or not arm or not reference or not out:
        raise InputError("arguments are missing", expected=", ".join(given), got=f"no {', '.join(lacking)}")
    from jagg.records import write_table
    from jagg.stats.compare import compare_files
    from jagg.stats.design import Design

    for name in ("paired_differences.csv", "curves.csv"):
        out_file(out / name)
    design = Design(reference, level, margins, optimised or None, primary, independent_cells, aa, aggregation)
    compared = compare_files(scores, design, arm, whole_prompts=whole_prompts, picked_by=win_probability)
    kinds = ("metric", "unit", "aggregation", "prompt_groups")
    for row in compared.differences().select(kinds).group_by(kinds, use_threads=False).aggregate([]).to_pylist():
        groups = f" (groups: {row['prompt_groups']})" if row["prompt_groups"] else ""
        note(f"{row['metric']}: in {row['unit']}, prompts {row['aggregation']}{groups}")
    for name, table in (("paired_differences.csv", compared.differences()), ("curves.csv", compared.curves())):
        write_table(out / name, table)
        note(f"{out / name}: {table.num_rows} rows")


def _print_plan(tests: int, sd: float, difference: float | None, margins: "dict[str, Margin]", level: float) -> None:
    from jagg.stats.plan import seed_plan

    typer.echo(f"Seeds for a family of {tests} test(s) at level {level:g}, deviation over seeds {sd:g}:")
    for row in seed_plan(tests, sd=sd, difference=difference, margins=margins, level=level):
        typer.echo(f"{'more than 100000' if row['seeds'] is None else row['seeds']:>8}  {row['method']}")


def _margins(texts: list[str]) -> "dict[str, Margin]":
    margins = dict(map(_margin, texts))
    if len(margins) < len(texts):
        raise InputError("a metric has two margins", where="--margin", expected="one a metric", got=", ".join(texts))
    return margins


def _margin(text: str) -> "tuple[str, Margin]":
    from jagg.stats.equivalence import Margin

    metric, _, value = text.partition("=")
    low, colon, high = value.partition(":")
    try:
        margin = Margin(float(low), float(high)) if colon else Margin(-float(low), float(low))
    except ValueError:
        margin = None
    if not metric or margin is None or (margin.one_sided and not colon):
        raise InputError(
            "not a margin",
            where="--margin",
            expected="METRIC=X with X > 0, or METRIC=LOW:HIGH with LOW < 0 < HIGH (inf: only being lower matters)",
            got=text,
        )
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
        if summary.left_alone:
            note(f"warning: {summary.left_alone}")
            return
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
