"""The resumable state of an unfinished run, kept apart from its outputs and keyed by what determines the run."""

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from jagg.records import atomic_path, read_json, write_json


@dataclass(frozen=True)
class RunState:
    """Files of one identity's state: state/<first 16 digits>/."""

    folder: Path

    @classmethod
    def of(cls, states: Path, identity_sha256: str) -> "RunState":
        return cls(states / identity_sha256[:16])

    def stale(self) -> list[str]:
        """States of other identities of this run; they are never used."""
        others = self.folder.parent.iterdir() if self.folder.parent.is_dir() else ()
        return sorted(path.name for path in others if path != self.folder)

    def save(self, step: int, trained: dict[str, Any], history: list[dict[str, Any]]) -> None:
        """Save everything that the next step depends on, in one file, whole or not at all."""
        with atomic_path(self._file) as temporary:
            torch.save({"step": step, "trained": trained, "history": history}, temporary)

    def load(self) -> dict[str, Any] | None:
        """The saved state; None where there is none."""
        return torch.load(self._file, map_location="cpu", weights_only=True) if self._file.exists() else None

    def discard(self) -> None:
        """Forget the saved step; the record of attempts stays."""
        self._file.unlink(missing_ok=True)

    @property
    def _file(self) -> Path:
        return self.folder / "state.pt"

    @property
    def attempts_file(self) -> Path:
        return self.folder / "attempts.json"


@dataclass
class Attempts:
    """Who worked on a run and how far; written at every step, so that a killed attempt's lost work is known."""

    file: Path
    entries: list[dict[str, Any]]

    @classmethod
    def begin(cls, state: RunState, resumed_at: int) -> "Attempts":
        """Start the next attempt, which continues after step `resumed_at`."""
        entries = read_json(state.attempts_file) if state.attempts_file.exists() else []
        if entries:
            entries[-1]["lost_steps"] = list(range(resumed_at + 1, entries[-1]["last_step"] + 1))
        entries.append(
            {
                "attempt": len(entries) + 1,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "started": time.time(),
                "resumed_at": resumed_at,
                "last_step": resumed_at,
                "lost_steps": [],
            }
        )
        attempts = cls(state.attempts_file, entries)
        write_json(attempts.file, entries)
        return attempts

    @property
    def current(self) -> int:
        return self.entries[-1]["attempt"]

    def done(self, step: int) -> None:
        """Record that a step of this attempt is complete."""
        self.entries[-1]["last_step"] = step
        write_json(self.file, self.entries)
