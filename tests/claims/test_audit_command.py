"""`jagg audit` as users call it: what it writes, its exit status, and that it needs neither torch nor MLflow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jagg.cli.audit import audit
from jagg.config import Study
from jagg.errors import InputError
from jagg.keys import StudyPaths
from jagg.records import CLAIMS, read_json, read_table, write_json

ROOT = Path(__file__).parents[2]
REGISTRIES = sorted((ROOT / "configs" / "claims").glob("*.yaml"))


def jagg(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jagg", "audit", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_contradicted_claims_are_a_result_and_not_a_failure(
    finished_cell: tuple[Study, StudyPaths], tmp_path: Path
) -> None:
    _, paths = finished_cell
    out = tmp_path / "claims.csv"
    process = jagg("--tables", paths.table(""), "--out", out)
    assert process.returncode == 0, process.stderr
    assert "contradicted" in process.stderr
    assert out.read_bytes() == paths.table("claims.csv").read_bytes()


def test_a_self_audit_that_disagrees_ends_with_status_2(copied: tuple[Study, StudyPaths]) -> None:
    _, paths = copied
    path = paths.table("runs.csv")
    path.write_text(path.read_text().replace("complete", "diverged", 1))
    # The copy lies elsewhere than its record says, which does not count; the place comes from the file given.
    config = paths.root.parent / "study.json"
    write_json(config, read_json(paths.config) | {"results": str(paths.results)})
    process = jagg("--self", config)
    assert process.returncode == 2, process.stderr
    assert f"{path}, row 1, status" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("given", [("tables",), ("tables", "published"), ("itself", "out"), (), ("published",)])
def test_an_unclear_request_is_refused(tmp_path: Path, given: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="what to audit is not clear"):
        audit(**{name: tmp_path / name for name in given})


def test_a_refused_audit_writes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "claims.csv"
    with pytest.raises(InputError, match="no tables"):
        audit([REGISTRIES[0]], tables=tmp_path, out=out)
    assert list(tmp_path.iterdir()) == []


def test_claims_are_audited_without_torch_and_without_mlflow(
    finished_cell: tuple[Study, StudyPaths], tmp_path: Path
) -> None:
    _, paths = finished_cell
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from jagg.cli.audit import audit\n"
        f"audit([Path(p) for p in {list(map(str, REGISTRIES))}], tables=Path({str(paths.table(''))!r}),"
        f" out=Path({str(tmp_path / 'claims.parquet')!r}))\n"
        f"audit(published=Path('configs/claims/jagg_published.csv'), out=Path({str(tmp_path / 'findings.csv')!r}))\n"
        "import jagg.selfcheck.recompute\n"
        "heavy = {'torch', 'mlflow', 'diffusers', 'transformers', 'open_clip'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert len(read_table(tmp_path / "claims.parquet", CLAIMS)) > 40
    assert "7 of 10 checks object" in process.stderr
