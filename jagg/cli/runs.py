"""Verbs that train, and that look at the gradients of what was trained."""

from pathlib import Path
from typing import Annotated

import typer

from jagg.cli.arguments import Config, Out, note, out_file, prepare_torch
from jagg.config import load_study
from jagg.errors import InputError
from jagg.keys import StudyPaths, checked_key


def train(
    config: Config,
    backbone: Annotated[str, typer.Option(help="Name of a backbone of the study.", show_default=False)],
    algorithm: Annotated[str, typer.Option(help="Name of an algorithm of the study.", show_default=False)],
    arm: Annotated[str, typer.Option(help="Name of an arm of the study.", show_default=False)],
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Training seed.", show_default=False)],
    out: Out,
) -> None:
    """Train one run; an interrupted run continues from its own state."""
    study = load_study(config)
    key = checked_key(study, backbone, algorithm, arm, seed)
    prepare_torch(study)
    from jagg.train.loop import train_run

    paths = StudyPaths.of(study)
    train_run(
        study,
        key,
        backbone_folder=paths.backbone(backbone),
        scorer_folders={metric: paths.scorer(metric) for metric in study.reward.weights},
        prompts_path=paths.prompts("train"),
        out=out,
        note=note,
    )


def probe(
    config: Config,
    backbone: Annotated[str, typer.Option(help="Name of a backbone of the study.", show_default=False)],
    algorithm: Annotated[str, typer.Option(help="Name of an algorithm of the study.", show_default=False)],
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Training seed of the probe.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Table to write, .parquet or .csv.", show_default=False, callback=out_file)],
) -> None:
    """Measure the estimators' gradients against the exact one, per window, on checkpoints of the reference run."""
    study = load_study(config)
    key = checked_key(study, backbone, algorithm, study.comparison.reference, seed)
    if study.probe is None:
        raise InputError("the study has no probe", where=config, expected="a section `probe`", got="none")
    prepare_torch(study)
    from jagg.probe.cell import probe_cell
    from jagg.records import write_table

    rows = probe_cell(study, key, StudyPaths.of(study), note=note)
    write_table(out, rows)
    note(f"{out}: {rows.num_rows} rows")


VERBS = (train, probe)
