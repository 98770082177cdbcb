"""Where the processor's seconds go in a study's jobs, and how many of them are not the transformer's arithmetic.

    python benchmarks/job_profile.py CONFIG [--backbones flux] [--algorithms dancegrpo] [--out FILE.csv]

CONFIG is a study whose models, scorers and prompts are built. For each cell one reference run is trained, evaluated
and, where the study has a probe, probed: the commands of the workflow, each in a process of its own, on a copy of the
study in a temporary folder. Seconds are the processor's and exclusive: what the transformer does inside of a probe is
the transformer's. They are to be compared within one sitting only; another version of the package is profiled by
putting its folder into PYTHONPATH.
"""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

START, REST, FORWARD, BACKWARD = "start-up", "rest", "transformer, forward", "transformer, backward"
TEXT, DECODING, SCORING, FILES = "prompt encoding", "decoding", "scoring", "files"
PARTS = (START, FORWARD, BACKWARD, TEXT, DECODING, SCORING, FILES, REST)
READ_OR_WRITTEN = {
    "jagg.train.loop": ("write_checkpoint", "write_table", "write_json"),
    "jagg.train.state": ("write_json",),
    "jagg.evaluate.sampling": ("_publish",),
    "jagg.evaluate.scoring": ("_read_images", "table_of"),
    "jagg.probe.cell": ("load_checkpoint", "table_of"),
    "jagg.records": ("write_table",),
}
"""Functions that move files or make tables, by where they are called from."""


class Clock:
    """Seconds of the process by part; a part inside of another one counts once, as itself."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._parts = [START]
        self._last = 0.0

    def change(self, parts: list[str]) -> None:
        """Give the seconds since the last change to the part that ran."""
        now = time.process_time()
        self.seconds[self._parts[-1]] += now - self._last
        self._last, self._parts = now, parts

    def times(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its seconds counted as `part`'s."""

        def timed(*positional: Any, **named: Any) -> Any:
            around = self._parts
            self.change([*around, part])
            try:
                return function(*positional, **named)
            finally:
                self.change(around)

        return timed

    def started(self) -> None:
        """What belongs to no part was start-up until now and is `rest` from here on."""
        self.change([REST, *self._parts[1:]])


def watch(clock: Clock) -> None:
    """Put the clock around the parts of every job."""
    import torch

    from jagg import backbones, scorers

    load_backbone, load_scorer = clock.times(START, backbones.load_backbone), clock.times(START, scorers.load_scorer)

    def backbone(*positional: Any, **named: Any) -> Any:
        made = load_backbone(*positional, **named)
        made.transformer.forward = clock.times(FORWARD, made.transformer.forward)
        made.encode_prompts = clock.times(TEXT, made.encode_prompts)
        made.decode = clock.times(DECODING, made.decode)
        clock.started()
        return made

    def scorer(*positional: Any, **named: Any) -> Any:
        made = load_scorer(*positional, **named)
        made.score = clock.times(SCORING, made.score)
        return made

    backbones.load_backbone, scorers.load_scorer = backbone, scorer
    torch.autograd.backward = clock.times(BACKWARD, torch.autograd.backward)
    torch.autograd.grad = clock.times(BACKWARD, torch.autograd.grad)
    for name, functions in READ_OR_WRITTEN.items():
        module = importlib.import_module(name)
        for function in functions:
            setattr(module, function, clock.times(FILES, getattr(module, function)))


def run_job(job: str, config: Path, backbone: str, algorithm: str) -> Counter[str]:
    """Run one job of a cell's first reference run in this process; seconds by part."""
    clock = Clock()
    from jagg.cli import evaluation, runs
    from jagg.cli.arguments import prepare_torch
    from jagg.config import load_study
    from jagg.keys import RunKey, StudyPaths

    study = load_study(config)
    prepare_torch(study)
    watch(clock)
    arm, seed = study.comparison.reference, first_seed(study)
    folder = StudyPaths.of(study).run(RunKey(backbone, algorithm, arm, seed)).folder
    if job == "train":
        runs.train(config, backbone, algorithm, arm, seed, folder)
    elif job == "evaluate":
        evaluation.evaluate(config, folder, list(study.training.checkpoints))
    else:
        runs.probe(config, backbone, algorithm, seed, config.with_name("probe.parquet"))
    clock.change([REST])
    return clock.seconds


def first_seed(study: Any) -> int:
    """A seed that the probe, if there is one, looks at."""
    return study.probe.calibration.seeds[0] if study.probe else study.seeds[0]


def copied_study(config: Path, folder: Path) -> Path:
    """The study's file for a results folder of its own, where its models lie ready."""
    content = yaml.safe_load(config.read_text(encoding="utf-8"))
    made = Path(content.get("results", "results")).absolute() / content["study"]
    content["results"] = str(folder)
    (folder / content["study"]).mkdir(parents=True)
    for part in ("models", "scorers", "prompts"):
        (folder / content["study"] / part).symlink_to(made / part)
    copy = folder / "study.yaml"
    copy.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return copy


def measure(config: Path, backbones: list[str] | None, algorithms: list[str] | None) -> list[dict[str, Any]]:
    """Rows of every job of every cell, and of the study: each job as often as the study runs it."""
    from jagg.config import load_study

    study = load_study(config)
    runs = len(study.arms) * len(study.seeds)
    times = {"train": runs, "evaluate": runs}
    if study.probe:
        times["probe"] = len({*study.probe.calibration.seeds, *study.probe.holdout.seeds})
    rows, whole = [], Counter(dict.fromkeys(PARTS, 0.0))
    with tempfile.TemporaryDirectory() as folder:
        copy = copied_study(config, Path(folder))
        for backbone in backbones or study.backbones:
            for algorithm in algorithms or study.algorithms:
                for job, number in times.items():
                    print(f"{backbone} {algorithm} {job}", file=sys.stderr, flush=True)
                    command = [sys.executable, __file__, str(copy), "--job", job, backbone, algorithm]
                    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                    seconds = json.loads(done.stdout.splitlines()[-1])
                    rows.append(row(job, backbone, algorithm, seconds))
                    whole.update({part: number * value for part, value in seconds.items()})
    return [*rows, row("all jobs", "", "", whole)]


def row(job: str, backbone: str, algorithm: str, seconds: dict[str, float]) -> dict[str, Any]:
    """One line of the table."""
    total = sum(seconds.values())
    arithmetic = seconds.get(FORWARD, 0) + seconds.get(BACKWARD, 0)
    by_part = {part: seconds.get(part, 0.0) for part in PARTS}
    return {
        "job": job, "backbone": backbone, "algorithm": algorithm, "cpu_s": total, **by_part,
        "not_transformer": 1 - arithmetic / total,
    }  # fmt: skip


def show(rows: list[dict[str, Any]]) -> None:
    """The table for people."""
    names = [f"{row['backbone']} {row['algorithm']}" for row in rows]
    width = max(map(len, names))
    heads = [part.replace("transformer, ", "") for part in PARTS]
    print(
        f"{'job':<9} {'cell':<{width}} {'CPU s':>8}"
        + "".join(f"{head:>16}" for head in heads)
        + f"{'not arithmetic':>16}"
    )
    for name, line in zip(names, rows):
        cells = "".join(f"{line[part]:>9.2f} {line[part] / line['cpu_s']:>6.1%}" for part in PARTS)
        print(f"{line['job']:<9} {name:<{width}} {line['cpu_s']:>8.1f}{cells}{line['not_transformer']:>16.1%}")
    print("forward, backward: the transformer's; all jobs: each as often as the study runs it")


def main() -> None:
    """Profile the jobs of a study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--backbones", nargs="+")
    parser.add_argument("--algorithms", nargs="+")
    parser.add_argument("--out", type=Path, help="also write a CSV file")
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        job, backbone, algorithm = arguments.job
        print(json.dumps(run_job(job, arguments.config, backbone, algorithm)))
        return
    rows = measure(arguments.config, arguments.backbones, arguments.algorithms)
    show(rows)
    if arguments.out:
        import pyarrow as pa

        from jagg.records import write_table

        write_table(arguments.out, pa.Table.from_pylist(rows))


if __name__ == "__main__":
    main()
