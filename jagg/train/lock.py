"""One writer a run: a lock file with host and process id, kept fresh by a heartbeat."""

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jagg.errors import InputError

HEARTBEAT_S = 30.0
STALE_S = 600.0
_NAME = ".lock"


@dataclass(frozen=True)
class RunLock:
    """A lock that this process holds."""

    path: Path
    record: dict[str, Any]
    taken_over: dict[str, Any] | None
    """The record of a dead holder whose lock was taken over."""

    def verify(self) -> None:
        """Check that nobody took the lock over, as may happen to a process that was suspended for long.

        Raises:
            InputError: another process holds the lock now.
        """
        holder = _read(self.path)
        if holder != self.record:
            raise InputError("the run was taken over by another process", where=self.path.parent, got=_who(holder))


def is_held(folder: Path, stale_s: float = STALE_S) -> bool:
    """Whether a live process holds the run's lock."""
    path = folder / _NAME
    return path.exists() and not _is_dead(path, _read(path), stale_s)


@contextlib.contextmanager
def run_lock(folder: Path, heartbeat_s: float = HEARTBEAT_S, stale_s: float = STALE_S) -> Iterator[RunLock]:
    """Hold a run's folder; the lock of a dead process, or one without heartbeat for `stale_s` seconds, is taken over.

    Raises:
        InputError: a live process holds the lock; nothing is written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _NAME
    record = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
    taken_over = None if _create(path, record) else _take_over(path, record, stale_s)
    lock = RunLock(path, record, taken_over)
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(path, stop, heartbeat_s), daemon=True)
    beat.start()
    try:
        yield lock
    finally:
        stop.set()
        beat.join()
        if _read(path) == record:
            path.unlink(missing_ok=True)


def _create(path: Path, record: dict[str, Any]) -> bool:
    """Make the lock file with its content in one step; false if there is one."""
    handle, name = tempfile.mkstemp(prefix=".lock.", dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(record, file)
    try:
        os.link(name, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(name)
    return True


def _take_over(path: Path, record: dict[str, Any], stale_s: float) -> dict[str, Any]:
    holder = _read(path)
    aside = path.with_name(f"{_NAME}.{os.getpid()}.stale")
    if not _is_dead(path, holder, stale_s):
        raise _locked(path, holder)
    # Two processes may judge the same lock dead: a rename succeeds for one, and who moved a fresh lock puts it back.
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, aside)
        if _read(aside) != holder:
            os.rename(aside, path)
        aside.unlink(missing_ok=True)
    if not _create(path, record):
        raise _locked(path, _read(path))
    return holder


def _locked(path: Path, holder: dict[str, Any]) -> InputError:
    return InputError(
        f"the run is locked by {_who(holder)}",
        where=path.parent,
        expected="one process a run",
        fix="wait for it or stop it; the lock of a dead process is taken over by itself",
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}


def _who(holder: dict[str, Any]) -> str:
    return f"host {holder.get('host', 'unknown')}, pid {holder.get('pid', 'unknown')}"


def _is_dead(path: Path, holder: dict[str, Any], stale_s: float) -> bool:
    try:
        silent_s = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return True
    if silent_s > stale_s:
        return True
    if holder.get("host") != socket.gethostname():
        return False
    try:
        os.kill(int(holder["pid"]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _beat(path: Path, stop: threading.Event, heartbeat_s: float) -> None:
    while not stop.wait(heartbeat_s):
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)
