"""The probe of gradient quality: what is measured, on which rollouts, and on which of them routing is calibrated."""

from typing import Annotated, Literal

from pydantic import Field

from jagg.config.base import Fraction, PositiveInt, Section
from jagg.config.methods import EstimatorName

Checkpoint = Annotated[int, Field(ge=0)]


class ProbeSplit(Section):
    """Rollouts of one half of the probe; those of the two halves differ by prompts, and by seeds or checkpoints."""

    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        min_length=1, description="Training seeds whose reference runs are probed."
    )
    checkpoints: tuple[Checkpoint, ...] = Field(min_length=1, description="Training steps of the probed checkpoints.")
    prompts: PositiveInt = Field(
        description="Number of prompts, each with `group_size` images; calibration takes the first training prompts, "
        "holdout the first evaluation prompts."
    )


class ProbeStress(Section):
    """Settings under which the calibration rollouts are drawn and measured again, in every combination."""

    estimators: tuple[EstimatorName, ...] = Field(("jagg",), min_length=1, description="Estimators measured here.")
    windows: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (), description="Window lengths W, in transitions; empty: the algorithm's."
    )
    sampling_steps: tuple[Annotated[int, Field(ge=2)], ...] = Field(
        (), description="Denoising steps T of the rollouts; empty: the algorithm's."
    )
    precisions: tuple[Literal["float32", "bfloat16"], ...] = Field(
        (), description="Number formats of the transformer; empty: as trained."
    )


class Probe(Section):
    """Gradient quality per window on checkpoints of the reference arm (math.md 3 and 5)."""

    estimators: tuple[EstimatorName, ...] = Field(
        ("jagg", "endpoint_only", "midpoint", "quadratic", "kriging", "monte_carlo", "debiased"),
        min_length=1,
        description="Estimators held against the exact gradient.",
    )
    threshold: Fraction = Field(0.5, description="Cosine from which a window's gradient counts as good (no unit).")
    bound: bool = Field(True, description="Estimate the error bound and what the error is made of, for jagg.")
    whole_batch: bool = Field(True, description="Measure the gradient of all rollouts together too.")
    calibration: ProbeSplit
    holdout: ProbeSplit
    stress: ProbeStress | None = Field(None, description="More conditions; null: none.")
