"""The whole study: one YAML file, checked as a whole."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from jagg.config.base import Name, PositiveFloat, PositiveInt, Section
from jagg.config.methods import AnyAlgorithm, Arm
from jagg.config.models import Backbone, Revision, Reward, Scorer
from jagg.config.order import ordered
from jagg.config.probe import Probe


class EmbeddedPrompts(Section):
    """Captions that the project can draw: shapes, colours, backgrounds, sizes, positions."""

    kind: Literal["embedded"]


class HPDv2Prompts(Section):
    """The HPDv2 benchmark: the first `per_style` prompts of each of its four styles are for evaluation."""

    kind: Literal["hpdv2"]
    repo: str = Field("zhwang/HPDv2", description="Dataset repository on the hub.")
    revision: Revision
    per_style: PositiveInt = Field(100, description="Evaluation prompts of each style.")


class FilePrompts(Section):
    """A text file, one prompt a line; evaluation prompts come first."""

    kind: Literal["file"]
    path: str = Field(description="Path of the file, relative to the working directory.")


class Prompts(Section):
    """Prompts of training and evaluation; the two sets are disjoint."""

    source: Annotated[EmbeddedPrompts | HPDv2Prompts | FilePrompts, Field(discriminator="kind")]
    train: PositiveInt = Field(description="Number of training prompts.")
    evaluation: PositiveInt = Field(description="Number of evaluation prompts.")


class LoRA(Section):
    """Low-rank adapters on the transformer (peft)."""

    rank: PositiveInt = Field(description="Rank of each adapter.")
    alpha: PositiveFloat = Field(description="Scale: the adapter's output is multiplied by alpha / rank.")


class Training(Section):
    """The GRPO training loop, the same for every arm."""

    trained_steps: PositiveInt = Field(description="Training steps: rollout, reward, update.")
    prompts_per_step: PositiveInt = Field(description="Prompts (groups) of a training step.")
    group_size: int = Field(ge=2, description="Images of a prompt, G.")
    micro_batch_size: PositiveInt = Field(description="Images that go through the transformer at a time.")
    optimizer_steps_per_rollout: PositiveInt = Field(
        1, description="Optimizer steps of a training step; the images are split among them."
    )
    learning_rate: PositiveFloat = Field(description="Learning rate (AdamW, constant).")
    weight_decay: float = Field(0.0, ge=0.0, description="Decoupled weight decay (AdamW).")
    max_grad_norm: PositiveFloat | dict[Name, PositiveFloat] = Field(
        1.0, description="Gradient norm is clipped to this; one number or backbone -> number."
    )
    lora: LoRA | None = Field(None, description="Adapters; null trains all parameters of the transformer.")
    ema_decay: Annotated[float, Field(gt=0.0, lt=1.0)] | None = Field(
        None, description="Decay of the moving average of trained weights that checkpoints hold; null: none."
    )
    gradient_checkpointing: bool = Field(False, description="Recompute activations in the backward pass.")
    checkpoints: tuple[int, ...] = Field(
        min_length=2, description="Training steps after which a checkpoint is kept; 0 is the untouched model."
    )
    measured_steps: tuple[PositiveInt, ...] = Field(
        (),
        description="Training steps on which the transformer's operations and the saved activations are counted on the "
        "real run; these steps are slower, and their seconds are not to be compared.",
    )
    save_state_every: PositiveInt = Field(10, description="Training steps between saves of the resumable state.")

    @model_validator(mode="after")
    def _geometry(self) -> "Training":
        images = self.prompts_per_step * self.group_size
        per_update = images // self.optimizer_steps_per_rollout
        if images % self.optimizer_steps_per_rollout:
            near = _nearest_divisors(images, self.optimizer_steps_per_rollout)
            raise ValueError(
                f"optimizer_steps_per_rollout: expected a divisor of the {images} images of a step "
                f"(prompts_per_step x group_size), got {self.optimizer_steps_per_rollout}; nearest valid: {near}"
            )
        if per_update % self.micro_batch_size:
            near = _nearest_divisors(per_update, self.micro_batch_size)
            raise ValueError(
                f"micro_batch_size: expected a divisor of the {per_update} images of an optimizer step, "
                f"got {self.micro_batch_size}; nearest valid: {near}"
            )
        if list(self.checkpoints) != sorted(set(self.checkpoints)):
            raise ValueError(f"checkpoints: expected increasing distinct steps, got {list(self.checkpoints)}")
        if self.checkpoints[0] != 0 or self.checkpoints[-1] > self.trained_steps:
            raise ValueError(
                f"checkpoints: expected 0 first and nothing beyond trained_steps = {self.trained_steps}, "
                f"got {list(self.checkpoints)}"
            )
        return self


def _nearest_divisors(total: int, wanted: int) -> str:
    divisors = [d for d in range(1, total + 1) if total % d == 0]
    below = [d for d in divisors if d < wanted]
    above = [d for d in divisors if d > wanted]
    return " or ".join(str(d) for d in [*below[-1:], *above[:1]])


class Evaluation(Section):
    """Sampling of checkpoints on fixed prompts and fixed noise, the same for every run."""

    images_per_prompt: PositiveInt = Field(description="Images of each evaluation prompt.")
    sampling_steps: int = Field(ge=2, description="Denoising steps of the ODE sampler.")
    shift: PositiveFloat = Field(3.0, description="Shift of the evaluation schedule (no unit).")
    batch_size: PositiveInt = Field(description="Images sampled at a time; part of the evaluation signature.")
    noise_seed: int = Field(1, ge=0, description="Seed of the evaluation noise; nothing was chosen on it.")


class AsymmetricMargin(Section):
    """Differences that do not matter, in raw units of the metric."""

    below: PositiveFloat = Field(description="What the arm may be lower by.")
    above: PositiveFloat | None = Field(description="What it may be higher by; null: only being lower matters.")


class Comparison(Section):
    """The statistics of the study, declared before it runs: paired by seed against one reference arm."""

    reference: Name = Field(description="Arm that the others are compared with.")
    ci_level: Annotated[float, Field(gt=0.5, lt=1.0)] = Field(0.95, description="Level of the intervals.")
    margins: dict[Name, PositiveFloat | AsymmetricMargin] = Field(
        default_factory=dict, description="Metric -> margin of equivalence, in raw units of the metric."
    )
    primary_metric: Name | None = Field(
        None,
        description="Metric that is tested first, before cells and other metrics; null: the reward's first by name.",
    )
    aggregation: Literal["pooled", "equal_weight"] = Field(
        "pooled",
        description="How the prompts of a seed are averaged. pooled: every prompt alike; equal_weight: every group of "
        "prompts alike (the styles of HPDv2, the shapes of embedded prompts), and every prompt within its group.",
    )
    independent_cells: bool = Field(
        False, description="Whether equal seeds of two cells have nothing in common; here they share prompts and noise."
    )
    max_ratio_deviation: PositiveFloat | None = Field(
        1.0,
        description="How far the probability ratio of a training step's first optimizer step, which should be 1, may "
        "be from 1, in units of the algorithm's clip_range (beyond 1 rounding alone clips transitions). A run that "
        "goes further is marked `ratio check failed` and left out of every comparison; null: none is left out for it.",
    )
    aa_arm: Name | None = Field(
        None,
        description="The reference once more with other `noise_streams`: shows how large a difference means nothing.",
    )


class Tracking(Section):
    """The MLflow store; files are the truth and the store is a view of them."""

    uri: str | None = Field(None, description="MLflow tracking URI; null: sqlite store mlflow.db under `results`.")


class Resources(Section):
    """What a job asks of the machine."""

    threads: PositiveInt = Field(1, description="CPU threads of a job.")
    memory_mb: PositiveInt = Field(4000, description="Main memory of a job, in MB.")
    gpus: int = Field(0, ge=0, description="Accelerators of a job that runs a model.")
    runtime_min: PositiveInt = Field(240, description="Time limit of a job, in minutes.")


class Study(Section):
    """A study: backbones x algorithms x arms x seeds, evaluated and compared; named parts stand in natural order."""

    study: Name = Field(description="Name of the study; its files lie in <results>/<study>/.")
    description: str = Field("", description="One sentence that the report shows.")
    results: str = Field(
        "results",
        pattern=r"^[\w.,:=@+/-]+$",
        description="Folder of all outputs, relative to the working directory; its name stands in shell commands, so "
        "without spaces and quotes.",
    )
    seed: int = Field(0, ge=0, description="Seed of the study; enters every random stream.")
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = Field(
        min_length=1, description="Training seeds (replicates)."
    )
    backbones: dict[Name, Backbone] = Field(min_length=1, description="Backbone name -> backbone.")
    algorithms: dict[Name, AnyAlgorithm] = Field(min_length=1, description="Algorithm name -> algorithm.")
    arms: dict[Name, Arm] = Field(min_length=1, description="Arm name -> arm.")
    scorers: dict[Name, Scorer] = Field(min_length=1, description="Metric name -> scorer.")
    reward: Reward
    prompts: Prompts
    training: Training
    evaluation: Evaluation
    comparison: Comparison
    probe: Probe | None = Field(None, description="Gradient quality of the estimators; null: not measured.")
    tracking: Tracking = Tracking()
    resources: Resources = Resources()

    @model_validator(mode="before")
    @classmethod
    def _in_order(cls, content: Any) -> Any:
        return ordered(content) if isinstance(content, dict) else content

    @model_validator(mode="after")
    def _references(self) -> "Study":
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds: expected distinct seeds, got {list(self.seeds)}")
        _expect_known("reward.weights", self.reward.weights, self.scorers, "scorers")
        _expect_known("comparison.reference", [self.comparison.reference], self.arms, "arms")
        if self.comparison.primary_metric is not None:
            _expect_known("comparison.primary_metric", [self.comparison.primary_metric], self.scorers, "scorers")
        self._expect_aa_arm()
        if self.comparison.aggregation == "equal_weight" and self.prompts.source.kind == "file":
            raise ValueError(
                "comparison.aggregation: expected pooled, since a file of prompts has no groups, got equal_weight"
            )
        _expect_known("comparison.margins", self.comparison.margins, self.scorers, "scorers")
        for name, arm in self.arms.items():
            for setting in ("jagg_frac", "max_residual"):
                value = getattr(arm.routing, setting)
                if isinstance(value, dict):
                    _expect_exactly(f"arms.{name}.routing.{setting}", value, self.algorithms, "algorithms")
            count = self.training.optimizer_steps_per_rollout
            if count > 1 and arm.schedule_for(count) != "native":
                raise ValueError(
                    f"arms.{name}.schedule: expected native with training.optimizer_steps_per_rollout = {count}, since "
                    f"the second step's policy is no longer that of the rollout, got {arm.schedule}; set "
                    f"optimizer_steps_per_rollout: 1, or arms.{name}.off_policy: native to train this arm by native"
                )
        if isinstance(self.training.max_grad_norm, dict):
            _expect_exactly("training.max_grad_norm", self.training.max_grad_norm, self.backbones, "backbones")
        if self.probe is not None:
            self._check_probe(self.probe)
        return self

    def _check_probe(self, probe: Probe) -> None:
        for name, split, prompts in (
            ("calibration", probe.calibration, self.prompts.train),
            ("holdout", probe.holdout, self.prompts.evaluation),
        ):
            where = f"probe.{name}"
            for key, given, known in (
                ("seeds", split.seeds, self.seeds),
                ("checkpoints", split.checkpoints, self.training.checkpoints),
            ):
                if len(set(given)) != len(given) or not set(given) <= set(known):
                    raise ValueError(f"{where}.{key}: expected distinct ones of {list(known)}, got {list(given)}")
            if split.prompts > prompts:
                raise ValueError(f"{where}.prompts: expected at most {prompts}, got {split.prompts}")

    def _expect_aa_arm(self) -> None:
        name, reference = self.comparison.aa_arm, self.arms[self.comparison.reference]
        if name is None:
            return
        _expect_known("comparison.aa_arm", [name], self.arms, "arms")
        other = self.arms[name]
        if other == reference or other.model_copy(update={"noise_streams": reference.noise_streams}) != reference:
            raise ValueError(
                f"comparison.aa_arm: expected the settings of {self.comparison.reference} with other noise_streams, "
                f"got {name}: {other.model_dump(mode='json')}"
            )


def _expect_known(key: str, names: object, known: dict, section: str) -> None:
    missing = [name for name in names if name not in known]  # type: ignore[attr-defined]
    if missing:
        raise ValueError(f"{key}: expected names of {section} ({', '.join(known)}), got {', '.join(missing)}")


def _expect_exactly(key: str, names: dict, known: dict, section: str) -> None:
    if set(names) != set(known):
        raise ValueError(
            f"{key}: expected one entry for each of {section} ({', '.join(known)}), got {', '.join(names)}"
        )
