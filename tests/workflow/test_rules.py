"""The rules themselves: static checks that need no run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "workflow" / "rules").glob("*.smk"))
pytestmark = pytest.mark.workflow


def rule_bodies() -> dict[str, str]:
    bodies = {}
    for path in RULES:
        for name, body in re.findall(r"^rule (\w+):\n((?:    .*\n|\n)+)", path.read_text(), re.MULTILINE):
            bodies[name] = body
    return bodies


def test_every_rule_has_a_log_a_benchmark_resources_and_a_shell_command() -> None:
    bodies = rule_bodies()
    assert {"train", "evaluate", "tables", "report", "track"} <= set(bodies)
    for name, body in bodies.items():
        for section in ("log", "benchmark", "resources", "params", "shell"):
            assert re.search(rf"^    {section}:", body, re.MULTILINE), (name, section)
        assert '"jagg ' in body or name == "study", name
        assert not re.search(r"^    (run|script|notebook):", body, re.MULTILINE), name
        assert "lambda" not in body, name


def test_no_rule_names_an_absolute_path_or_a_folder() -> None:
    for name, body in rule_bodies().items():
        sections = re.findall(r"^    (?:input|output):\n((?:        .*\n)+)", body, re.MULTILINE)
        paths = re.findall(r'f"([^"]*)"', "".join(sections))
        assert paths or name == "tables", name
        for path in paths:
            assert path.startswith(("{ROOT}/", "{RUN}/")), (name, path)
            assert re.search(r"\.(json|parquet|csv|html)$", path), (name, path)


def test_lint() -> None:
    command = [sys.executable, "-m", "snakemake", "--lint", "--config", "study=configs/small.yaml"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 0, process.stdout + process.stderr


def test_a_plain_dry_run_lists_the_whole_embedded_study(tmp_path: Path) -> None:
    from study_project import Project

    jobs = Project.copied_to(tmp_path / "project").pending("configs/small.yaml")
    assert jobs == {
        "study": 1,
        "prompts": 1,
        "pretrain_backbone": 2,
        "pretrain_scorer": 3,
        "train": 36,
        "evaluate": 36,
        "tables": 1,
        "report": 1,
        "track": 1,
    }
