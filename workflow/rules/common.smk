import os
import sys
from pathlib import Path

# Snakemake looks for modules beside the Snakefile first. Jobs run the installed package, so the workflow must, too.
_BESIDE = str(workflow.basedir)
if _BESIDE in sys.path and _BESIDE not in os.environ.get("PYTHONPATH", "").split(
    os.pathsep
):
    sys.path.remove(_BESIDE)

from jagg.config import load_study
from jagg.identity import stage_identity, train_identity
from jagg.keys import RunKey, StudyPaths, probe_keys, run_keys
from jagg.records import write_json

# A job finds the `jagg` of the interpreter that runs the workflow, whether or not its environment is activated.
os.environ.update(
    PATH=os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", "")))
)

config.setdefault("study", "configs/small.yaml")
STUDY = load_study(config["study"])
PATHS = StudyPaths.of(STUDY)
ROOT = PATHS.root.as_posix()
RUN = f"{ROOT}/runs/{{backbone}}/{{algorithm}}/{{arm}}/seed-{{seed}}"
RUN_LOG = "{backbone}.{algorithm}.{arm}.seed-{seed}"
KEYS = list(run_keys(STUDY))
CHECKPOINTS = STUDY.training.checkpoints
CLAIMS = sorted(path.as_posix() for path in Path("configs/claims").glob("*.yaml"))


def key_of(wildcards):
    return RunKey(
        wildcards.backbone, wildcards.algorithm, wildcards.arm, int(wildcards.seed)
    )


def identity_of_run(wildcards):
    return train_identity(STUDY, key_of(wildcards))


def identity_of_backbone(wildcards):
    return stage_identity(STUDY, "backbone", wildcards.backbone)


def identity_of_scorer(wildcards):
    return stage_identity(STUDY, "scorer", wildcards.metric)


def identity_of_evaluation(wildcards):
    return stage_identity(STUDY, "evaluate", wildcards.backbone)


def identity_of_probe(wildcards):
    return stage_identity(STUDY, "probe", f"{wildcards.backbone}/{wildcards.algorithm}")


def step_options():
    return " ".join(f"--step {step}" for step in CHECKPOINTS)


def scores_of_study(wildcards):
    return [
        PATHS.run(key).scores(step).as_posix() for key in KEYS for step in CHECKPOINTS
    ]


def runs_of_study(wildcards):
    return [PATHS.run(key).manifest.as_posix() for key in KEYS]


def probes_of_study(wildcards):
    return [
        PATHS.probe(key.backbone, key.algorithm, key.seed).as_posix()
        for key in probe_keys(STUDY)
    ]


def histories_of_study(wildcards):
    return [PATHS.run(key).history.as_posix() for key in KEYS]


wildcard_constraints:
    backbone="[A-Za-z0-9_-]+",
    algorithm="[A-Za-z0-9_-]+",
    arm="[A-Za-z0-9_-]+",
    metric="[A-Za-z0-9_-]+",
    seed=r"\d+",
