"""Verbs that evaluate checkpoints."""

from pathlib import Path
from typing import Annotated

import typer

from jagg.cli.arguments import Config, note, out_file, out_folder, prepare_torch
from jagg.config import Study, load_study
from jagg.errors import InputError
from jagg.keys import RunKey, RunPaths, StudyPaths, checked_key

Run = Annotated[Path | None, typer.Option(help="Folder of a run, .../seed-<n>.", show_default=False)]
Steps = Annotated[list[int] | None, typer.Option(help="Training step of a checkpoint; may repeat.", show_default=False)]


def sample(
    config: Config,
    run: Annotated[Path, typer.Option(help="Folder of a run, .../seed-<n>.", show_default=False)],
    step: Annotated[list[int], typer.Option(help="Training step of a checkpoint; may repeat.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the images; default: <run>/images/step-<k>.", show_default=False, callback=out_folder
        ),
    ] = None,
) -> None:
    """Sample evaluation images of checkpoints, as lossless PNG."""
    if out is not None and len(step) > 1:
        raise InputError("--out takes the images of one checkpoint", expected="one --step", got=step)
    study, key, paths = _study_and_run(config, run)
    prepare_torch(study)
    from jagg.evaluate.sampling import sample_checkpoints

    sample_checkpoints(study, key, paths, {k: out or paths.images(k) for k in step}, note)


def score(
    config: Config,
    metric: Annotated[list[str] | None, typer.Option(help="Metric; may repeat; default: all of the study.")] = None,
    run: Run = None,
    step: Steps = None,
    images: Annotated[Path | None, typer.Option(help="Folder of <prompt_id>_<index>.png.", show_default=False)] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Prompts of the images (JSON); default: the study's.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Table to write, .parquet or .csv.", show_default=False, callback=out_file)
    ] = None,
) -> None:
    """Score images: a folder (--images, --out), or checkpoints of a run (--run, --step) into <run>/scores/."""
    study = load_study(config)
    work = _score_work(run, step, images, out)
    prepare_torch(study)
    _score_folders(study, work, metric or list(study.scorers), prompts)


def _score_work(run: Path | None, step: list[int] | None, images: Path | None, out: Path | None) -> dict[Path, Path]:
    if images is not None and out is not None and run is None and not step:
        return {images: out}
    if run is not None and step and images is None and out is None:
        paths = RunPaths(run)
        return {paths.images(k): paths.scores(k) for k in step}
    raise InputError(
        "what to score is not clear", expected="--images and --out, or --run and --step", got="another mix"
    )


def evaluate(
    config: Config,
    run: Annotated[Path, typer.Option(help="Folder of a run, .../seed-<n>.", show_default=False)],
    step: Annotated[list[int], typer.Option(help="Training step of a checkpoint; may repeat.", show_default=False)],
) -> None:
    """Sample and score checkpoints of a run into its own folders, in one process; images that are there are kept."""
    study, key, paths = _study_and_run(config, run)
    prepare_torch(study)
    from jagg.evaluate.sampling import sample_checkpoints

    sample_checkpoints(study, key, paths, {k: paths.images(k) for k in step}, note, reuse=True)
    _score_folders(study, {paths.images(k): paths.scores(k) for k in step}, list(study.scorers), None)


def _study_and_run(config: Path, run: Path) -> tuple[Study, RunKey, RunPaths]:
    study, paths = load_study(config), RunPaths(run)
    key = paths.key()
    return study, checked_key(study, key.backbone, key.algorithm, key.arm, key.seed), paths


def _score_folders(study: Study, work: dict[Path, Path], metrics: list[str], prompts: Path | None) -> None:
    from jagg.evaluate.scoring import StudyScorers
    from jagg.records import write_table

    scorers = StudyScorers(study, metrics)
    for folder, table in work.items():
        rows = scorers.score_folder(folder, prompts or StudyPaths.of(study).prompts("evaluation"))
        write_table(table, rows)
        note(f"{table}: {rows.num_rows} scores")


VERBS = (sample, score, evaluate)
