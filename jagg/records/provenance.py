"""What made a file: hashes of contents, package versions and the machine."""

import hashlib
import json
import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_sha256(folder: Path, keep: Callable[[Path], bool] = lambda path: True) -> str:
    """SHA-256 over the relative names and contents of a folder's files, in hex."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and keep(path)):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{file_sha256(path)}\n".encode())
    return digest.hexdigest()


def text_sha256(text: str) -> str:
    """SHA-256 of a text in UTF-8, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


_LOCKED = ("torch", "diffusers", "transformers", "open_clip_torch", "peft", "numpy", "scipy", "pillow", "pyarrow")


def lock_sha256(packages: dict[str, str]) -> str:
    """Hash of package versions, by name."""
    return text_sha256(json.dumps(packages, sort_keys=True))


def environment() -> dict[str, Any]:
    """What this process runs on: interpreter, locked package versions and their hash, machine."""
    versions = {name: metadata.version(name) for name in _LOCKED}
    return {
        "python": platform.python_version(),
        "packages": versions,
        "lock_sha256": lock_sha256(versions),
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
