"""`jagg study`: the whole study through Snakemake, and how far it is."""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from jagg.cli.arguments import Config, note
from jagg.cli.driver import driving, snakemake
from jagg.cli.start import check_start
from jagg.config import Study, load_study
from jagg.identity import train_identity
from jagg.keys import RunPaths, StudyPaths, run_keys
from jagg.records import read_json, text_sha256

app = typer.Typer(help="Run a whole study, or see how far it is.", no_args_is_help=True)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": False})
def run(
    context: typer.Context,
    config: Config,
    cores: Annotated[int, typer.Option(min=1, help="CPU cores; jobs run side by side.")] = os.cpu_count() or 1,
) -> None:
    """Run the study; finishes what is missing and repeats nothing. Snakemake's own options follow after `--`."""
    study = load_study(config)
    check_start(study, context.args, note)
    with driving(study) as stale_locks:
        if stale_locks:
            note("lifting the locks of a run that was killed")
            snakemake(config, cores, ["--unlock"])
        status = snakemake(config, cores, context.args)
    if status:
        note(f"jagg: the study is not complete; logs are in {StudyPaths.of(study).root / 'logs'}")
        sys.exit(1)
    if not any(argument in context.args for argument in ("-n", "--dry-run", "--dryrun", "--lint", "--unlock")):
        _show_results(study)


def _show_results(study: Study) -> None:
    paths = StudyPaths.of(study)
    uri = study.tracking.uri or paths.tracking_uri
    typer.echo(
        f"\nStudy {study.study} is complete.\n"
        f"  report:  {paths.report}\n"
        f"  tables:  {paths.table('')}\n"
        f"  MLflow:  {uri}\n"
        f"  open it: {Path(sys.executable).parent / 'mlflow'} ui --backend-store-uri {uri} "
        f"--artifacts-destination {paths.artifacts}"
    )


@app.command()
def status(config: Config) -> None:
    """Show runs wanted, done, running, diverged, failed and outdated (other settings or code), per cell and arm."""
    study = load_study(config)
    paths = StudyPaths.of(study)
    states = {
        key: run_state(paths.run(key), _train_log(paths, key), text_sha256(train_identity(study, key)))
        for key in run_keys(study)
    }
    columns = ("wanted", "done", "running", "diverged", "failed", "outdated", "waiting")
    names = [f"{key.backbone} {key.algorithm} {key.arm}" for key in states]
    width = max(map(len, names))
    typer.echo(" " * width + "".join(f"{column:>10}" for column in columns))
    for name in dict.fromkeys(names):
        counts = Counter(state for other, state in zip(names, states.values()) if other == name)
        counts["wanted"] = counts.total()
        typer.echo(f"{name:<{width}}" + "".join(f"{counts[column]:>10}" for column in columns))


def _train_log(paths: StudyPaths, key: object) -> Path:
    return paths.root / "logs" / "train" / (str(key).replace("/", ".") + ".log")


def run_state(run: RunPaths, log: Path, identity_sha256: str) -> str:
    """State of one run from its files: done, diverged, running, failed, outdated or waiting."""
    from jagg.train.lock import is_held

    if is_held(run.folder):
        return "running"
    if run.manifest.exists():
        record = read_json(run.manifest)
        if record.get("identity_sha256") != identity_sha256:
            return "outdated"
        return "done" if record["status"] == "complete" else "diverged"
    return "failed" if log.exists() else "waiting"
