"""Algorithms and arms: how trajectories are drawn and trained, and how the gradient is estimated."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from jagg.config.base import Fraction, Name, PositiveFloat, PositiveInt, Section


class Algorithm(Section):
    """What the two algorithms share (math.md 1 and 2)."""

    sampling_steps: int = Field(ge=2, description="Denoising steps T of a rollout.")
    shift: PositiveFloat = Field(3.0, description="Shift s of the schedule sigma' = s sigma / (1 + (s - 1) sigma).")
    window: int = Field(ge=2, description="Transitions W of a window; a shorter rest window is trained exactly.")
    clip_range: PositiveFloat = Field(description="Clip range eps of the probability ratio.")
    adv_clip: PositiveFloat = Field(5.0, description="Advantages are clamped to +- this.")
    advantage_deviation: Literal["group", "batch"] = Field(
        "group", description="Standard deviation that divides the advantage: of the prompt's group or of the batch."
    )
    quantise_timestep: bool = Field(
        False, description="Feed the transformer int(1000 sigma)/1000, as the reference DanceGRPO code does."
    )


class DanceGRPO(Algorithm):
    """Every transition stochastic with constant g = eta."""

    family: Literal["dancegrpo"]
    eta: PositiveFloat = Field(0.3, description="Diffusion coefficient g (per square root of sigma).")
    shared_initial_noise: bool = Field(True, description="One initial latent for all images of a group.")
    drop_last: bool = Field(
        False,
        description="Leave the last transition out of training: its noise never reaches the decoded image.",
    )


class FlowGRPOFast(Algorithm):
    """ODE except a contiguous window of SDE transitions, drawn per training step; only it is trained."""

    family: Literal["flow_grpo_fast"]
    noise_level: PositiveFloat = Field(0.7, description="a in g = a sqrt(sigma / (1 - sigma)).")
    sde_window_size: PositiveInt = Field(description="Stochastic (trained) transitions a trajectory.")
    sde_window_range: tuple[int, int] = Field(
        description="First and one-past-last transition that the stochastic window may cover."
    )
    shared_initial_noise: bool = Field(True, description="One initial latent for all images of a group.")

    @model_validator(mode="after")
    def _window_fits(self) -> "FlowGRPOFast":
        low, high = self.sde_window_range
        if not 0 <= low < high <= self.sampling_steps:
            raise ValueError(
                f"sde_window_range: expected 0 <= first < last <= sampling_steps = {self.sampling_steps}, "
                f"got [{low}, {high}]"
            )
        if self.sde_window_size > high - low:
            raise ValueError(
                f"sde_window_size: expected at most {high - low}, the range's length, got {self.sde_window_size}"
            )
        return self


class Routing(Section):
    """Which windows use the approximate estimator: those that start at j0 with j0 / T < jagg_frac, if confident."""

    jagg_frac: Fraction | dict[Name, Fraction] = Field(
        1.0, description="Share of the trajectory, one number or algorithm -> number (no unit)."
    )
    router: Literal["place", "confidence"] = Field(
        "place", description="place: jagg_frac alone decides; confidence: a window must also pass max_residual."
    )
    max_residual: PositiveFloat | dict[Name, PositiveFloat] | None = Field(
        None,
        description="confidence: velocity residual up to which a window is trusted, one number or algorithm -> number "
        "(no unit; the table routing_calibration holds calibrated ones).",
    )

    @model_validator(mode="after")
    def _threshold(self) -> "Routing":
        if (self.router == "confidence") != (self.max_residual is not None):
            raise ValueError(
                f"max_residual: expected a number with router: confidence and none with router: place, "
                f"got {self.max_residual!r} with router: {self.router}"
            )
        return self


class Debiased(Section):
    """Settings of the debiased estimator (math.md 3)."""

    probability: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        0.5, description="p, probability that a window takes one inner transition too: 2 + p passes on average."
    )
    draw: Literal["uniform", "proxy"] = Field(
        "uniform", description="Inner transitions are drawn uniformly or in proportion to their velocity residual."
    )
    full_residual: PositiveFloat | None = Field(
        None,
        description="Velocity residual of a window at which p reaches `probability`; below it p is smaller in "
        "proportion. null: p is the same for every window (no unit).",
    )


EstimatorName = Literal["exact", "jagg", "endpoint_only", "midpoint", "monte_carlo", "quadratic", "debiased", "kriging"]


class Arm(Section):
    """One method under comparison: estimator + routing + schedule."""

    estimator: EstimatorName = Field(description="Gradient estimator (math.md 3).")
    debiased: Debiased | None = Field(None, description="Settings of the estimator `debiased`; null: its defaults.")
    window: Annotated[int, Field(ge=2)] | None = Field(
        None, description="Transitions W of a window in this arm; null: the algorithm's."
    )
    routing: Routing = Routing()
    schedule: Literal["native", "reuse", "retain", "reweight"] = Field(
        "native",
        description="Where the graphs come from (math.md 4). native: every transition is recomputed in the update; "
        "reuse: only the nodes; retain: nodes keep their graphs from rollout to update; reweight: nodes are "
        "back-propagated in the rollout, sample by sample, and weighted by the advantages afterwards.",
    )
    off_policy: Literal["refuse", "native"] = Field(
        "refuse",
        description="What becomes of a schedule other than native under several optimizer steps a rollout, where the "
        "policy is no longer that of the rollout: the study is refused, or the arm is trained by native.",
    )
    noise_streams: int = Field(
        0,
        ge=0,
        description="Which noise the training draws; 0 is the one that all arms share, others are for an A/A arm.",
    )

    @model_validator(mode="after")
    def _settings_of_its_estimator(self) -> "Arm":
        if self.debiased is not None and self.estimator != "debiased":
            raise ValueError(f"debiased: expected only with estimator: debiased, got estimator: {self.estimator}")
        return self

    @property
    def draws_passes(self) -> bool:
        """Whether the number of backward passes is drawn, so that the closed form is its expectation."""
        return self.estimator == "debiased"

    def schedule_for(self, optimizer_steps_per_rollout: int) -> str:
        """The schedule that the arm is trained by."""
        return self.schedule if optimizer_steps_per_rollout == 1 or self.off_policy == "refuse" else "native"

    def applied_to(self, algorithm: Algorithm) -> Algorithm:
        """The algorithm as this arm runs it: with the arm's window, where it has one."""
        return algorithm if self.window is None else algorithm.model_copy(update={"window": self.window})


AnyAlgorithm = Annotated[DanceGRPO | FlowGRPOFast, Field(discriminator="family")]
