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
    """Which windows use the approximate estimator: those that start at j0 with j0 / T < jagg_frac."""

    jagg_frac: Fraction | dict[Name, Fraction] = Field(
        1.0, description="Share of the trajectory, one number or algorithm -> number (no unit)."
    )


class Arm(Section):
    """One method under comparison: estimator + routing + schedule."""

    estimator: Literal["exact", "jagg", "endpoint_only"] = Field(description="Gradient estimator (math.md 3).")
    routing: Routing = Routing()
    schedule: Literal["native"] = Field("native", description="Where the graphs come from (math.md 4).")
    noise_streams: int = Field(
        0,
        ge=0,
        description="Which noise the training draws; 0 is the one that all arms share, others are for an A/A arm.",
    )


AnyAlgorithm = Annotated[DanceGRPO | FlowGRPOFast, Field(discriminator="family")]
