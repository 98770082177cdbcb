"""One writer a run."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jagg.errors import InputError
from jagg.train.lock import is_held, run_lock


def write_lock(folder: Path, pid: int, host: str | None = None, silent_s: float = 0.0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    path.write_text(json.dumps({"host": host or socket.gethostname(), "pid": pid, "since": 0.0}))
    os.utime(path, (time.time() - silent_s, time.time() - silent_s))
    return path


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_second_start_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    with run_lock(tmp_path):
        before = sorted(tmp_path.iterdir())
        assert is_held(tmp_path)
        with (
            pytest.raises(InputError, match=f"locked by host {socket.gethostname()}, pid {os.getpid()}"),
            run_lock(tmp_path),
        ):
            pytest.fail("two holders")
        assert sorted(tmp_path.iterdir()) == before
    assert list(tmp_path.iterdir()) == []
    assert not is_held(tmp_path)


def test_another_process_is_refused_too(tmp_path: Path) -> None:
    code = (
        f"from pathlib import Path; from jagg.train.lock import run_lock; run_lock(Path({str(tmp_path)!r})).__enter__()"
    )
    with run_lock(tmp_path):
        process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert f"pid {os.getpid()}" in process.stderr


@pytest.mark.parametrize("kind", ["dead process", "silent host"])
def test_a_dead_lock_is_taken_over_and_the_event_is_known(tmp_path: Path, kind: str) -> None:
    pid = dead_pid()
    if kind == "dead process":
        write_lock(tmp_path, pid)
    else:
        write_lock(tmp_path, os.getpid(), host="elsewhere", silent_s=700)
    assert not is_held(tmp_path)
    with run_lock(tmp_path) as lock:
        assert lock.taken_over
        assert lock.taken_over["pid"] == (pid if kind == "dead process" else os.getpid())
        lock.verify()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_with_a_heartbeat_on_another_host_stands(tmp_path: Path) -> None:
    path = write_lock(tmp_path, dead_pid(), host="elsewhere", silent_s=10)
    assert is_held(tmp_path)
    with pytest.raises(InputError, match="locked by host elsewhere"), run_lock(tmp_path):
        pytest.fail("two holders")
    assert path.exists()


def test_the_heartbeat_keeps_the_lock_fresh(tmp_path: Path) -> None:
    with run_lock(tmp_path, heartbeat_s=0.02):
        path = tmp_path / ".lock"
        os.utime(path, (0, 0))
        deadline = time.time() + 5
        while path.stat().st_mtime == 0 and time.time() < deadline:
            time.sleep(0.01)
        assert path.stat().st_mtime > 0


def test_a_holder_notices_that_it_was_robbed_and_leaves_the_new_lock_alone(tmp_path: Path) -> None:
    with run_lock(tmp_path) as lock:
        write_lock(tmp_path, 1, host="thief")
        with pytest.raises(InputError, match="taken over by another process"):
            lock.verify()
    assert json.loads((tmp_path / ".lock").read_text())["host"] == "thief"
