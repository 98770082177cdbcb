"""What is checked before a study starts: where its jobs run, and whether its MLflow store can be written from there."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import yaml

from jagg.cli.checks import NETWORK_FILE_SYSTEMS, file_system
from jagg.config import Study
from jagg.errors import InputError
from jagg.keys import StudyPaths

LOCAL = "local"
TESTED_EXECUTORS = (LOCAL,)
_SQLITE = "sqlite:///"


def executor_of(arguments: Sequence[str]) -> str:
    """The executor that Snakemake's arguments or the profile that they name choose."""
    options = _options(arguments)
    for name in ("--executor", "-e"):
        if name in options:
            return options[name]
    for name in ("--profile", "--workflow-profile"):
        for path in (Path(options.get(name, "")) / file for file in ("config.v8+.yaml", "config.yaml")):
            if name in options and path.is_file():
                return str((yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("executor", LOCAL))
    return LOCAL


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """Option -> value, written as `--name value` or `--name=value`."""
    options = dict(pairwise(arguments))
    return options | {name: value for name, equals, value in (text.partition("=") for text in arguments) if equals}


def check_start(
    study: Study, arguments: Sequence[str], note: Callable[[str], None], mounts: Path = Path("/proc/mounts")
) -> None:
    """Say what was never tried, and refuse what damages the store.

    Raises:
        InputError: jobs of several machines would write SQLite on a network file system, which has no safe locks.
    """
    executor = executor_of(arguments)
    if executor not in TESTED_EXECUTORS:
        note(f"executor {executor}: this project was not tested with it; tested are {', '.join(TESTED_EXECUTORS)}")
    uri = study.tracking.uri or StudyPaths.of(study).tracking_uri
    if not uri.startswith(_SQLITE):
        return
    kind = file_system(Path(uri.removeprefix(_SQLITE)).parent, mounts)
    if kind not in NETWORK_FILE_SYSTEMS:
        return
    alternatives = "set tracking.uri to an MLflow server (http://...), or put `results` on a local disk"
    if executor != LOCAL:
        raise InputError(
            "MLflow's SQLite store would be written from several machines over a network file system",
            where=uri,
            expected="a server, or a file on a local disk",
            got=f"{kind}, executor {executor}",
            fix=alternatives,
        )
    note(f"MLflow's SQLite store lies on a network file system ({kind}), where it can be damaged: {alternatives}")
