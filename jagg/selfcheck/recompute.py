"""The self-audit: every number of tables and report made again from the raw files, at printed precision."""

import csv
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from jagg.claims.registry import Claim
from jagg.claims.results import read_results
from jagg.claims.verdicts import audit
from jagg.config import Study, load_study
from jagg.errors import InputError
from jagg.keys import StudyPaths, run_keys
from jagg.records import read_table, write_table
from jagg.report import build_report
from jagg.report.tables import study_tables
from jagg.report.traceable_values import mismatches, read_shown
from jagg.selfcheck.files import ClosedForm, check_base_scores, check_pairs, check_prompts, check_run
from jagg.selfcheck.inventory import check_models, check_strays
from jagg.selfcheck.mismatch import mismatch

_PLACE = ("results", "resources")
_DATE = re.compile(r'<time[^>]*datetime="([0-9-]+)"')


def self_audit(
    study: Study,
    paths: StudyPaths,
    claims: Sequence[tuple[str, Claim]],
    closed_form: ClosedForm,
    note: Callable[[str], None],
) -> None:
    """Check a study's files against each other, the closed forms and the configuration; says what it has checked.

    Raises:
        InputError: the first thing that does not agree, and where.
    """
    study = _recorded(study, paths)
    prompts = check_prompts(study, paths)
    weights = check_models(study, paths)
    finished = [key for key in run_keys(study) if paths.run(key).manifest.exists()]
    runs = {key: check_run(study, paths, key, prompts, weights[key.backbone], closed_form) for key in finished}
    check_pairs(study, paths, runs)
    note(f"{len(runs)} runs: records, ledgers, checkpoints, images, scores and pairs agree")
    tables = study_tables(study, paths)
    for name, table in tables.items():
        note(f"{paths.table(name)}: {check_table(paths.table(name), table)} values agree")
    check_strays(study, paths, (*tables, "claims.csv"))
    scores = tables["scores.parquet"].select(["backbone", "metric", "step"])
    check_base_scores(study, set(zip(*(column.to_pylist() for column in scores.columns))))
    if paths.table("claims.csv").exists():
        made = audit(claims, read_results(paths.table("")))
        note(f"{paths.table('claims.csv')}: {check_table(paths.table('claims.csv'), made)} values agree")
    if paths.report.exists():
        _check_report(study, paths, note)


def _recorded(study: Study, paths: StudyPaths) -> Study:
    """The configuration beside the outputs, whose order of names the tables have; it must be the one given.

    Where results lie and what a job may use does not count.
    """
    recorded = load_study(paths.config)
    ours, theirs = study.model_dump(mode="json"), recorded.model_dump(mode="json")
    for name in ours:
        if name not in _PLACE and ours[name] != theirs[name]:
            mismatch(f"the study was made with another {name}", paths.config, ours[name], theirs[name])
    return recorded.model_copy(update={"results": study.results})


def check_table(path: Path, table: pa.Table) -> int:
    """A table on disk holds exactly these values, at the precision that it is printed with; returns their number.

    Raises:
        InputError: a value differs, or the file is missing or damaged.
    """
    if not path.exists():
        mismatch("a table is missing", path, "a file", "none")
    if path.suffix == ".csv":
        _check_csv(path, table)
    else:
        _check_parquet(path, table)
    return len(table) * table.num_columns


def _check_csv(path: Path, table: pa.Table) -> None:
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / path.name
        write_table(again, table)
        wanted, found = _csv_rows(again), _csv_rows(path)
    if len(wanted) != len(found) or wanted[0] != found[0]:
        mismatch("a table of another form", path, f"{len(wanted) - 1} rows", f"{len(found) - 1} rows")
    for number, (ours, theirs) in enumerate(zip(wanted, found)):
        for column, our, their in zip(wanted[0], ours, theirs):
            if our != their:
                mismatch("a number is not what the raw files give", f"{path}, row {number}, {column}", our, their)


def _csv_rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def _check_parquet(path: Path, table: pa.Table) -> None:
    found = read_table(path, table.schema)
    if len(found) != len(table):
        mismatch("a table of another length", path, f"{len(table)} rows", f"{len(found)} rows")
    for name in table.column_names:
        ours, theirs = table.column(name), found.column(name)
        if pa.types.is_floating(ours.type):
            one, other = ours.to_numpy(), theirs.to_numpy()
            differs = ~((one == other) | (np.isnan(one) & np.isnan(other)))
        elif ours.equals(theirs):
            continue
        else:
            differs = np.array([our != their for our, their in zip(ours.to_pylist(), theirs.to_pylist())])
        if differs.any():
            row = int(np.flatnonzero(differs)[0])
            where = f"{path}, row {row + 1}, {name}"
            mismatch("a number is not what the raw files give", where, ours[row].as_py(), theirs[row].as_py())


def _check_report(study: Study, paths: StudyPaths, note: Callable[[str], None]) -> None:
    """Every number of the page that names its source, then the page and its figures built again, byte by byte."""
    wrong = mismatches(paths.report, paths.root)
    if wrong:
        mismatch("a number of the report is not its table's", paths.report, "the table's number", wrong[0])
    page = paths.report.read_text(encoding="utf-8")
    date = _DATE.search(page)
    with tempfile.TemporaryDirectory() as folder:
        again = StudyPaths(Path(folder), study.study)
        again.root.mkdir()
        for item in paths.root.iterdir():
            if item.name not in (paths.report.name, "figures"):
                (again.root / item.name).symlink_to(item.resolve())
        build_report(study, again, date.group(1) if date else None)
        figures, found = ({path.name for path in folder.figure("").iterdir()} for folder in (again, paths))
        if figures != found:
            mismatch("other figures than the tables give", paths.figure(""), f"{len(figures)} files",
                     f"{len(found)}; {', '.join(sorted(figures ^ found)[:5])}")  # fmt: skip
        for name in sorted(figures):
            _check_figure(paths.figure(name), again.figure(name))
        _check_text(paths.report, again.report)
    note(f"{paths.report}: {len(read_shown(page))} numbers, {len(figures)} figures and the whole page agree")


def _check_figure(path: Path, again: Path) -> None:
    if path.suffix != ".png":
        _check_text(path, again)
    elif path.read_bytes() != again.read_bytes():
        mismatch("a figure is not what its images give", path, "the same bytes", "others")


def _check_text(path: Path, again: Path) -> None:
    try:
        found = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError("self-audit: a file of the report is missing", where=path, got=error.strerror) from error
    wanted = again.read_text(encoding="utf-8").splitlines()
    for number, (ours, theirs) in enumerate(zip(wanted, found), start=1):
        if ours != theirs:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), 0)
            start = max(0, at - 40)
            mismatch("the report is not what its tables give", f"{path}, line {number}", ours[start : at + 40],
                     theirs[start : at + 40])  # fmt: skip
    if len(wanted) != len(found):
        mismatch("the report is not what its tables give", path, f"{len(wanted)} lines", f"{len(found)} lines")
