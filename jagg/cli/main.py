"""The command line: exit status 0 done, 2 the user's input is at fault, 1 anything else."""

import sys

import typer

from jagg import __version__
from jagg.cli import audit, evaluation, inspect, models, results, runs, study
from jagg.errors import InputError

app = typer.Typer(
    name="jagg",
    help="Reproducibility benchmark for efficient GRPO post-training of flow-matching image models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(study.app, name="study")
for module in (models, runs, evaluation, results, audit, inspect):
    for verb in module.VERBS:
        app.command(name=verb.__name__)(verb)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"jagg-bench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    """Entry point of the `jagg` command."""
    try:
        app()
    except InputError as error:
        print(f"jagg: {error}", file=sys.stderr)
        sys.exit(2)
