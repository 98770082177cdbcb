"""A model's folder appears complete or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jagg.errors import InputError


@contextmanager
def replaced_folder(out: Path, record: str) -> Iterator[Path]:
    """A new folder beside `out` that takes its place when the block ends well, else is removed.

    Raises:
        InputError: `out` holds something without `record`, which is not ours to replace.
    """
    if out.exists() and not (out / record).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(
            "will not replace a folder that holds other files",
            where=out,
            expected=f"no such folder, an empty one, or one with {record}",
            fix="choose another folder or remove this one",
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        building.chmod(0o755)
        yield building
        shutil.rmtree(out, ignore_errors=True)
        building.rename(out)
    finally:
        shutil.rmtree(building, ignore_errors=True)
