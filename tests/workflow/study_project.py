"""A copy of the project in which tests run real studies with the real commands."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from jagg.config import load_study
from jagg.keys import StudyPaths, probe_keys, run_keys
from jagg.prompts import SPLITS

ROOT = Path(__file__).parents[2]
PARTS = ("Snakefile", "workflow", "configs", "envs", "jagg", "pyproject.toml")
TABLES = (
    "scores.parquet", "history.parquet", "paired_differences.csv", "backward_passes.csv", "runs.csv",
    "gradient_quality.csv", "gradient_stress.csv", "routing_calibration.csv", "pareto.csv",
    "scores.parquet", "history.parquet", "paired_differences.csv", "backward_passes.csv", "runs.csv", "curves.csv",
    "costs.csv", "equal_cost.csv", "attrition.csv", "claims.csv",
)  # fmt: skip


@dataclass(frozen=True)
class Project:
    """A project folder; commands run inside it with its own copy of the package."""

    folder: Path

    @classmethod
    def copied_to(cls, folder: Path) -> "Project":
        folder.mkdir(parents=True)
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, folder / part)
        return cls(folder)

    def twin(self, folder: Path) -> "Project":
        """A full copy, results included, with every file's time kept."""
        shutil.copytree(self.folder, folder, copy_function=shutil.copy2)
        return Project(folder)

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.folder), "HF_HUB_OFFLINE": "1"}

    def pretend_finished(self, config: str) -> None:
        """Make every output of a study as an empty file that Snakemake takes for finished, in seconds."""
        study = load_study(self.folder / config)
        paths = StudyPaths(self.folder / study.results, study.study)
        outputs = [paths.config, paths.report, paths.tracking_record, *map(paths.prompts, SPLITS)]
        outputs += [paths.backbone(name) / "model.json" for name in study.backbones]
        outputs += [paths.scorer(metric) / "scorer.json" for metric in study.scorers]
        outputs += [*map(paths.table, TABLES), paths.root / "scorers" / "preflight.json"]
        for run in map(paths.run, run_keys(study)):
            outputs += [run.manifest, run.history, *map(run.scores, study.training.checkpoints)]
        outputs += [paths.probe(key.backbone, key.algorithm, key.seed) for key in probe_keys(study)]
        for path in outputs:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        command = [sys.executable, "-m", "snakemake", "--touch", "--forceall", "--cores", "1"]
        subprocess.run(
            [*command, "--config", f"study={config}"],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            timeout=120,
            check=True,
        )

    def jagg(self, *arguments: str, timeout: float = 1200) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "jagg", *arguments],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def pending(self, config: str, **environment: str) -> dict[str, int]:
        """Rule -> number of jobs that a run would start now; `all` is left out."""
        process = subprocess.run(
            [sys.executable, "-m", "snakemake", "--dry-run", "--cores", "2", "--config", f"study={config}"],
            cwd=self.folder,
            env=self.environment() | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        text = process.stdout + process.stderr
        assert process.returncode == 0, text
        stats = re.search(r"Job stats:\njob +count\n[- ]+\n(.*?)\ntotal", text, re.DOTALL)
        if stats is None:
            assert "Nothing to be done" in text, text
            return {}
        counts = dict(line.split() for line in stats.group(1).splitlines())
        return {rule: int(count) for rule, count in counts.items() if rule != "all"}
