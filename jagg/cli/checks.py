"""What `jagg doctor` checks."""

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from jagg.config import HubModel, Study
from jagg.config.models import FolderModel

_PACKAGES = ("torch", "diffusers", "transformers", "open_clip_torch", "hpsv2", "peft", "mlflow", "snakemake", "scipy")
NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "lustre", "cifs", "smb3", "fuse.sshfs", "beegfs", "gpfs")


@dataclass(frozen=True)
class Check:
    """One finding; `ok` false means that a study cannot run before it is mended."""

    what: str
    ok: bool
    found: str


def machine_checks() -> list[Check]:
    """Interpreter, packages, cores, memory and disk."""
    checks = [
        Check("Python 3.11 or newer", sys.version_info >= (3, 11), platform.python_version()),
        Check("CPU cores", True, str(os.cpu_count())),
        Check("memory", True, f"{_memory_gb():.0f} GB"),
        Check("free disk", shutil.disk_usage(".").free > 5e9, f"{shutil.disk_usage('.').free / 1e9:.0f} GB here"),
        Check("make", shutil.which("make") is not None, shutil.which("make") or "not found"),
    ]
    for name in _PACKAGES:
        try:
            checks.append(Check(f"package {name}", True, metadata.version(name)))
        except metadata.PackageNotFoundError:
            checks.append(Check(f"package {name}", False, "not installed; run `make setup`"))
    return checks


def study_checks(study: Study) -> list[Check]:
    """Accelerators, weights of hub and folder models, and the place of the MLflow store."""
    import torch

    wanted = study.resources.gpus
    have = torch.cuda.device_count()
    checks = [Check(f"accelerators, {wanted} a job", have >= wanted, str(have))]
    for kind, models in (("backbone", study.backbones), ("scorer", study.scorers)):
        for name, model in models.items():
            source = model.source
            if isinstance(source, HubModel):
                checks.append(_hub_check(f"{kind} {name}", source))
            elif isinstance(source, FolderModel):
                checks.append(Check(f"{kind} {name}", Path(source.path).is_dir(), source.path))
    if study.tracking.uri is None:
        kind = file_system(Path(study.results))
        checks.append(Check("MLflow store on a local disk", kind not in NETWORK_FILE_SYSTEMS, kind))
    return checks


def _hub_check(what: str, source: HubModel) -> Check:
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE) / f"models--{source.repo.replace('/', '--')}" / "snapshots" / source.revision
    found = folder.is_dir()
    name = f"{source.repo} at {source.revision[:12]}"
    return Check(what, found, f"{name} is in the local cache" if found else f"{name} is not in {HF_HUB_CACHE}")


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def file_system(path: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """Type of the mount that holds a path; unknown where the system does not list its mounts."""
    if not mounts.exists():
        return "unknown"
    target = path.resolve()
    best, kind = Path("/"), "unknown"
    for line in mounts.read_text(encoding="utf-8").splitlines():
        _, mount, mounted, *_ = line.split()
        place = Path(mount.replace(r"\040", " "))
        if target.is_relative_to(place) and len(place.parts) >= len(best.parts):
            best, kind = place, mounted
    return kind
