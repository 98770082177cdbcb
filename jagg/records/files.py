"""Atomic writes, and JSON records."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jagg.errors import InputError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder that replaces `path` when the block ends well, else is removed.

    Raises:
        InputError: no file can be made there.
    """
    if path.is_dir():
        raise InputError("cannot write a file", where=path, expected="the place of a file", got="a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(
            "cannot write a file", where=path, expected="a folder that can be written", got=error.strerror
        ) from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically: sorted keys, two spaces, no NaN."""
    text = json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read a JSON record.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError("cannot read a record", where=path, got=str(error), fix="make the file again") from error
