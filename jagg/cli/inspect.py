"""Verbs that look without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jagg.cli.arguments import Config, note
from jagg.config import Backbone, EmbeddedBackbone, FolderModel, Study, load_study
from jagg.errors import InputError
from jagg.records import read_json
from jagg.startup import uncollected

if TYPE_CHECKING:
    from jagg.cost.passes_table import ModelCost


def passes(config: Config) -> None:
    """Print expected passes and operations a trajectory, and the memory that every schedule would take."""
    from jagg.cost.passes_table import passes_table

    study = load_study(config)
    costs = {name: _model_cost(study, model) for name, model in study.backbones.items()}
    typer.echo(passes_table(study, {name: cost for name, cost in costs.items() if cost}))


def _model_cost(study: Study, model: Backbone) -> ModelCost | None:
    """Operations and memory of one pass on torch's meta device; None for a family that is not this project's.

    A hub model is taken to have the full size of its family, FLUX.1-dev or Qwen-Image.

    Raises:
        InputError: the image size does not divide into latent patches, or a folder is not a model.
    """
    with uncollected():
        from jagg.backbones.source import DTYPES, checked_grid
        from jagg.cost.full_size import FULL_SIZE, FULL_SIZE_VAE_DOWNSCALE
        from jagg.cost.memory import model_cost

    if model.family not in FULL_SIZE:
        return None
    if isinstance(model.source, EmbeddedBackbone):
        from jagg.pretrain.backbones import EMBEDDED_VAE_DOWNSCALE, embedded_transformer_config

        sizes, downscale = embedded_transformer_config(model.family, model.source), EMBEDDED_VAE_DOWNSCALE
    elif isinstance(model.source, FolderModel):
        folder = Path(model.source.path)
        sizes, autoencoder = (read_json(folder / part / "config.json") for part in ("transformer", "vae"))
        halvings = (
            autoencoder["temperal_downsample"]
            if model.family == "qwen_image"
            else autoencoder["block_out_channels"][1:]
        )
        downscale = 2 ** len(halvings)
    else:
        sizes, downscale = FULL_SIZE[model.family], FULL_SIZE_VAE_DOWNSCALE
    return model_cost(
        model.family,
        sizes,
        checked_grid(model.image_size, downscale),
        model.max_text_tokens,
        lora=study.training.lora,
        gradient_checkpointing=study.training.gradient_checkpointing,
        dtype=DTYPES[model.precision],
    )


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
