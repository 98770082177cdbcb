"""Running Snakemake on a study: one driver at a time for a study."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jagg.config import Study
from jagg.errors import InputError
from jagg.records import write_json

_DRIVERS = Path(".snakemake/jagg-drivers")
_LOCKS = Path(".snakemake/locks")


def snakemake(config: Path, cores: int, arguments: list[str]) -> int:
    """Run Snakemake on a study's file in the working directory; returns its exit status."""
    command = [
        sys.executable,
        # Not from the working directory: the workflow must load the package that its jobs run.
        *("-P", "-m", "snakemake"),
        *("--config", f"study={config.as_posix()}"),  # not last: it would take targets for further settings
        *("--cores", str(cores)),
        *("--workflow-profile", "workflow/profiles/default"),
        *arguments,
    ]
    return subprocess.run(command, check=False).returncode


@contextmanager
def driving(study: Study) -> Iterator[bool]:
    """Hold the study; yields whether Snakemake's locks here are those of a dead driver, to be lifted with --unlock.

    Raises:
        InputError: another driver of this study is alive, or this is not the project's folder.
    """
    if not Path("Snakefile").is_file():
        raise InputError(
            "no Snakefile here", where=Path.cwd(), expected="the project's folder", fix="cd into the project and repeat"
        )
    own = _DRIVERS / f"{study.study}.json"
    alive = {path: record for path in _DRIVERS.glob("*.json") if _is_alive(record := json.loads(path.read_text()))}
    if own in alive:
        record = alive[own]
        raise InputError(
            "the study is being run already",
            where=study.study,
            got=f"process {record['pid']} on {record['host']}",
            fix=f"wait for it or stop it; if it is gone for certain, remove {own}",
        )
    # The locks lie in this folder whichever study they belong to: they are stale only when no driver is left.
    stale = not alive and _LOCKS.is_dir() and any(_LOCKS.iterdir())
    write_json(own, {"host": socket.gethostname(), "pid": os.getpid()})
    try:
        yield stale
    finally:
        own.unlink(missing_ok=True)


def _is_alive(record: dict) -> bool:
    """Whether a driver lives; one on another host is taken to live, since nobody can tell from here."""
    if record["host"] != socket.gethostname():
        return True
    try:
        os.kill(record["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
