"""Verbs that make the study's models and prompts ready."""

from pathlib import Path
from typing import Annotated

import typer

from jagg.cli.arguments import Config, Out, StageProgress, note, out_file, prepare_torch
from jagg.config import load_study
from jagg.errors import InputError, unknown_name
from jagg.keys import StudyPaths
from jagg.startup import uncollected


def prompts(config: Config, out: Out) -> None:
    """Write the study's prompt sets, train.json and evaluation.json."""
    from jagg.prompts import SPLITS, build_prompts, write_prompts

    sets = build_prompts(load_study(config))
    for split in SPLITS:
        write_prompts(out / f"{split}.json", sets[split])
        note(f"{out / split}.json: {len(sets[split])} prompts")


def pretrain(
    config: Config,
    out: Out,
    backbone: Annotated[str | None, typer.Option(help="Name of the backbone to build.", show_default=False)] = None,
    scorer: Annotated[str | None, typer.Option(help="Metric whose scorer to build.", show_default=False)] = None,
) -> None:
    """Build one embedded model; for a hub or folder model, check that it is there and write a pointer."""
    study = load_study(config)
    if (backbone is None) == (scorer is None):
        raise InputError("name one model", expected="--backbone or --scorer", got="both" if backbone else "neither")
    kind, name, known = ("backbone", backbone, study.backbones) if backbone else ("metric", scorer, study.scorers)
    if name not in known:
        raise unknown_name(kind, str(name), known, where=config)
    prepare_torch(study)
    if backbone:
        with uncollected():
            from jagg.pretrain.backbones import pretrain_backbone

        record = pretrain_backbone(study.backbones[backbone], out, progress=StageProgress())
    else:
        with uncollected():
            from jagg.pretrain.scorers import pretrain_scorer

        record = pretrain_scorer(study.scorers[str(scorer)], out, progress=StageProgress())
    note(f"{out}: {record['label']}")


def preflight(
    config: Config,
    out: Annotated[Path, typer.Option(help="Record to write, .json.", show_default=False, callback=out_file)],
) -> None:
    """Let every scorer of the study score one bundled image, so that none fails after days of training."""
    study = load_study(config)
    prepare_torch(study)
    from jagg import scorers
    from jagg.records import environment, write_json

    folder = StudyPaths.of(study).scorer
    loaded = {metric: scorers.load_scorer(scorer, folder(metric)) for metric, scorer in study.scorers.items()}
    values = scorers.preflight(loaded)
    record = {metric: {"scorer": loaded[metric].name, "value": value} for metric, value in values.items()}
    write_json(out, {"scorers": record, "environment": environment()})
    note(f"{out}: {', '.join(f'{metric} {value:.4f}' for metric, value in values.items())}")


VERBS = (prompts, pretrain, preflight)
