"""Arguments that several verbs share."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from jagg.config import Study
from jagg.errors import InputError


def out_folder(path: Path | None) -> Path | None:
    """Check, before any work is done, that a folder is there to write to or can be made.

    Raises:
        InputError: a file is in the way, or writing is not allowed.
    """
    places = [] if path is None else [place for place in (path, *path.parents) if os.path.exists(place)]
    if places and not (places[0].is_dir() and os.access(places[0], os.W_OK | os.X_OK)):
        got = "not writable" if places[0].is_dir() else "a file"
        raise InputError(
            "cannot write there",
            where=f"--out {path}",
            expected="a folder, or where to make one",
            got=f"{places[0]}: {got}",
        )
    return path


def out_file(path: Path | None) -> Path | None:
    """Check, before any work is done, that a file can be written there.

    Raises:
        InputError: a folder is in the way, or as `out_folder`.
    """
    if path is not None:
        if path.is_dir():
            raise InputError("cannot write there", where=f"--out {path}", expected="a place for a file", got="a folder")
        out_folder(path.parent)
    return path


Config = Annotated[Path, typer.Argument(help="The study's YAML file.", show_default=False)]
Out = Annotated[Path, typer.Option(help="Folder that receives the result.", show_default=False, callback=out_folder)]


def note(line: str) -> None:
    """One line of progress, on stderr and at once."""
    print(line, file=sys.stderr, flush=True)


def prepare_torch(study: Study) -> None:
    """Set the threads of this job; must run before torch is imported.

    Idle OpenMP threads spin and steal the other jobs' cores, so the count is fixed for the libraries too.
    """
    threads = str(study.resources.threads)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = threads
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    import torch

    torch.set_num_threads(study.resources.threads)


class StageProgress:
    """Progress of work in stages: a bar on a terminal, about ten plain lines a stage elsewhere."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        if not sys.stderr.isatty():
            if done % max(1, total // 10) == 0 or done == total:
                note(f"{stage}: {done}/{total}")
            return
        from tqdm import tqdm

        if stage != self._stage:
            self._stage, self._bar = stage, tqdm(total=total, desc=stage, unit="step")
        self._bar.update(done - self._bar.n)
