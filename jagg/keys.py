"""Run keys, and the only code that turns them into paths, table columns and tags."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jagg.config import Study
from jagg.errors import InputError, unknown_name


@dataclass(frozen=True, order=True)
class RunKey:
    """One training run: (backbone, algorithm) is its cell, seed its unit of replication."""

    backbone: str
    algorithm: str
    arm: str
    seed: int

    def row(self) -> dict[str, str | int]:
        """The key's columns, first in every table."""
        return {"backbone": self.backbone, "algorithm": self.algorithm, "arm": self.arm, "seed": self.seed}

    def tags(self) -> dict[str, str]:
        """The key as MLflow tags."""
        return {f"jagg.{name}": str(value) for name, value in self.row().items()}

    def __str__(self) -> str:
        return f"{self.backbone}/{self.algorithm}/{self.arm}/seed-{self.seed}"


def run_keys(study: Study) -> Iterator[RunKey]:
    """Every run of the study, cell by cell, seeds innermost."""
    for backbone in study.backbones:
        for algorithm in study.algorithms:
            for arm in study.arms:
                for seed in study.seeds:
                    yield RunKey(backbone, algorithm, arm, seed)


def probe_keys(study: Study) -> Iterator[RunKey]:
    """The reference runs whose gradients are probed; none without a probe."""
    if study.probe is not None:
        seeds = {*study.probe.calibration.seeds, *study.probe.holdout.seeds}
        yield from (key for key in run_keys(study) if key.arm == study.comparison.reference and key.seed in seeds)


def checked_key(study: Study, backbone: str, algorithm: str, arm: str, seed: int) -> RunKey:
    """A key of names given by hand; the seed may be one that the study does not list.

    Raises:
        InputError: a name that the study does not have.
    """
    for kind, name, known in (
        ("backbone", backbone, study.backbones),
        ("algorithm", algorithm, study.algorithms),
        ("arm", arm, study.arms),
    ):
        if name not in known:
            raise unknown_name(kind, name, known, where=f"study {study.study}")
    return RunKey(backbone, algorithm, arm, seed)


@dataclass(frozen=True)
class RunPaths:
    """Files of one run; `folder` is results/<study>/runs/<backbone>/<algorithm>/<arm>/seed-<seed>."""

    folder: Path

    @property
    def manifest(self) -> Path:
        return self.folder / "run.json"

    @property
    def history(self) -> Path:
        return self.folder / "history.parquet"

    @property
    def state(self) -> Path:
        """The resumable state of an unfinished run; gone once the run is complete."""
        return self.folder / "state"

    def checkpoint(self, step: int) -> Path:
        return self.folder / "checkpoints" / f"step-{step}"

    def images(self, step: int) -> Path:
        return self.folder / "images" / f"step-{step}"

    def scores(self, step: int) -> Path:
        return self.folder / "scores" / f"step-{step}.parquet"

    def key(self) -> RunKey:
        """The key that this folder's place in the tree says.

        Raises:
            InputError: the folder is not laid out as a run's folder.
        """
        parts = self.folder.resolve().parts
        if len(parts) < 5 or parts[-5] != "runs" or not parts[-1].removeprefix("seed-").isdigit():
            raise InputError(
                "not the folder of a run", where=self.folder, expected=".../runs/<backbone>/<algorithm>/<arm>/seed-<n>"
            )
        return RunKey(parts[-4], parts[-3], parts[-2], int(parts[-1].removeprefix("seed-")))


IMAGES_MANIFEST = "images.json"
"""Name of the record beside sampled images; its presence means that the folder is complete."""


def image_name(prompt_id: str, image_index: int) -> str:
    """File name of one evaluation image."""
    return f"{prompt_id}_{image_index}.png"


def parse_image_name(name: str) -> tuple[str, int]:
    """(prompt_id, image_index) of a file name that `image_name` made.

    Raises:
        InputError: the name has another form.
    """
    stem, _, index = name.removesuffix(".png").rpartition("_")
    if not name.endswith(".png") or not stem or not index.isdigit():
        raise InputError("not the name of an evaluation image", got=name, expected="<prompt_id>_<image_index>.png")
    return stem, int(index)


@dataclass(frozen=True)
class StudyPaths:
    """Files of one study under <results>/<study>/."""

    results: Path
    study: str

    @classmethod
    def of(cls, study: Study) -> "StudyPaths":
        return cls(Path(study.results), study.study)

    @property
    def root(self) -> Path:
        return self.results / self.study

    def backbone(self, name: str) -> Path:
        return self.root / "models" / name

    def scorer(self, metric: str) -> Path:
        return self.root / "scorers" / metric

    def prompts(self, split: str) -> Path:
        """The prompt set of a split, train or evaluation, as JSON."""
        return self.root / "prompts" / f"{split}.json"

    def run(self, key: RunKey) -> RunPaths:
        return RunPaths(self.root / "runs" / key.backbone / key.algorithm / key.arm / f"seed-{key.seed}")

    def probe(self, backbone: str, algorithm: str, seed: int) -> Path:
        """Measured gradient quality of one cell and seed."""
        return self.root / "probes" / backbone / algorithm / f"seed-{seed}.parquet"

    def table(self, name: str) -> Path:
        return self.root / "tables" / name

    def figure(self, name: str) -> Path:
        return self.root / "figures" / name

    @property
    def report(self) -> Path:
        return self.root / "report.html"

    @property
    def config(self) -> Path:
        """The resolved configuration, written beside the outputs."""
        return self.root / "study.json"

    @property
    def tracking_record(self) -> Path:
        """What `jagg track` last brought into MLflow."""
        return self.root / "tracking.json"

    @property
    def tracking_uri(self) -> str:
        return f"sqlite:///{self.results / 'mlflow.db'}"

    @property
    def artifacts(self) -> Path:
        return self.results / "mlartifacts"
