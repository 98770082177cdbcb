"""The rules themselves: static checks that need no run."""

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from study_project import Project

from jagg.records import read_json

ROOT = Path(__file__).parents[2]
SMALL, SMOKE = "configs/small.yaml", "configs/smoke.yaml"
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
        for section in ("log", "benchmark", "resources", "shell"):
            assert re.search(rf"^    {section}:", body, re.MULTILINE), (name, section)
        assert (name == "study") != bool(re.search(r"^    params:", body, re.MULTILINE)), name
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
    jobs = Project.copied_to(tmp_path / "project").pending("configs/small.yaml")
    assert jobs == {
        "study": 1,
        "prompts": 1,
        "pretrain_backbone": 2,
        "pretrain_scorer": 3,
        "preflight": 1,
        "train": 36,
        "evaluate": 36,
        "probe": 8,
        "tables": 1,
        "audit": 1,
        "report": 1,
        "track": 1,
    }


@pytest.fixture(scope="module")
def pretended(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.copied_to(tmp_path_factory.mktemp("pretended") / "project")
    project.pretend_finished(SMOKE)
    assert project.pending(SMOKE) == {}
    return project


METRIC = {"family": "clipscore", "source": {"kind": "embedded", "contrastive_steps": 7}}
RUNS = {"train": 24, "evaluate": 24, "probe": 8}


@pytest.mark.parametrize(
    ("key", "value", "jobs"),
    [
        ("training.learning_rate", 1e-3, RUNS),
        ("arms.jagg.routing.jagg_frac.dancegrpo", 1.0, {"train": 4, "evaluate": 4}),
        ("evaluation.sampling_steps", 7, {"evaluate": 24}),
        ("scorers.pickscore.source.contrastive_steps", 7, {"pretrain_scorer": 1, "preflight": 1, "evaluate": 24}),
        ("scorers.more", METRIC, {"pretrain_scorer": 1, "preflight": 1, "evaluate": 24}),
        ("scorers.hpsv2.source.contrastive_steps", 7, {"pretrain_scorer": 1, "preflight": 1, **RUNS}),
        ("backbones.flux.source.flow_steps", 7, {"pretrain_backbone": 1, "train": 12, "evaluate": 12, "probe": 4}),
        ("prompts.train", 9, {"prompts": 1, **RUNS}),
        ("comparison.margins", {}, {}),
        ("probe.estimators", ["jagg"], {"probe": 8}),
        ("probe.threshold", 0.6, {}),
    ],
)
def test_a_changed_setting_runs_what_depends_on_it(
    pretended: Project, key: str, value: object, jobs: dict[str, int]
) -> None:
    path = pretended.folder / SMOKE
    content = yaml.safe_load(path.read_text())
    *sections, last = key.split(".")
    place = content
    for section in sections:
        place = place[section]
    place[last] = value
    changed = path.with_name("changed.yaml")
    changed.write_text(yaml.safe_dump(content))
    assert pretended.pending("configs/changed.yaml") == {**jobs, "tables": 1, "audit": 1, "report": 1, "track": 1}


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The embedded study (3 seeds, 2 backbones, 2 algorithms, 3 arms: 36 trainings) as if it were finished."""
    project = Project.copied_to(tmp_path_factory.mktemp("embedded") / "project")
    project.pretend_finished(SMALL)
    return project


REST = {"tables": 1, "audit": 1, "report": 1, "track": 1}


@pytest.mark.parametrize(
    ("part", "jobs"),
    [
        ("seed", {"train": 12, "evaluate": 12}),
        ("backbone", {"pretrain_backbone": 1, "train": 18, "evaluate": 18, "probe": 4}),
    ],
)
def test_what_is_new_in_the_embedded_study_runs_alone(embedded: Project, part: str, jobs: dict[str, int]) -> None:
    content = yaml.safe_load((embedded.folder / SMALL).read_text())
    if part == "seed":
        content["seeds"].append(3)
    else:
        content["backbones"]["third"] = content["backbones"]["flux"]
    (embedded.folder / "configs/grown.yaml").write_text(yaml.safe_dump(content))
    assert embedded.pending("configs/grown.yaml") == jobs | REST


@pytest.mark.parametrize("seed", range(5))
def test_neither_the_order_of_keys_nor_of_hashes_runs_anything(pretended: Project, seed: int) -> None:
    def shuffled(value: object) -> object:
        if not isinstance(value, dict):
            return value
        items = [(key, shuffled(inner)) for key, inner in value.items()]
        random.Random(seed).shuffle(items)
        return dict(items)

    content = shuffled(yaml.safe_load((pretended.folder / SMOKE).read_text()))
    (pretended.folder / "configs/shuffled.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    assert pretended.pending("configs/shuffled.yaml", PYTHONHASHSEED=str(seed)) == {}


def test_a_module_of_the_same_name_in_the_working_directory_is_not_taken(tmp_path: Path) -> None:
    """A copy of the workflow beside another `jagg` runs the installed one."""
    for part in ("Snakefile", "workflow", "configs"):
        target = tmp_path / part
        shutil.copytree(ROOT / part, target) if (ROOT / part).is_dir() else shutil.copy(ROOT / part, target)
    (tmp_path / "jagg.py").write_text("raise ImportError('the wrong module')\n")
    command = [sys.executable, "-P", "-m", "jagg", "study", "run", SMOKE, "--cores", "1", "--", "--dry-run"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr


def test_resources_run_nothing(pretended: Project) -> None:
    content = yaml.safe_load((pretended.folder / SMOKE).read_text()) | {"resources": {"memory_mb": 5000}}
    (pretended.folder / "configs/changed.yaml").write_text(yaml.safe_dump(content))
    assert pretended.pending("configs/changed.yaml") == {}


def test_a_model_of_other_settings_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    project = Project.copied_to(tmp_path / "project")
    config, record = project.folder / SMOKE, "results/smoke/scorers/clipscore/scorer.json"
    for contrastive_steps in (1, 2):
        content = yaml.safe_load(config.read_text())
        content["scorers"]["clipscore"]["source"]["contrastive_steps"] = contrastive_steps
        config.write_text(yaml.safe_dump(content))
        process = project.jagg("study", "run", SMOKE, "--cores", "1", "--", record)
        assert process.returncode == 0, process.stdout + process.stderr
        assert read_json(project.folder / record)["source"]["contrastive_steps"] == contrastive_steps
        study = read_json(project.folder / "results/smoke/study.json")
        assert study["scorers"]["clipscore"]["source"]["contrastive_steps"] == contrastive_steps
