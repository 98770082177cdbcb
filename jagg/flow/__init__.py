"""Flow matching: schedule, one transition and its log-probability, noise, trajectories (math.md 1)."""

from jagg.flow.noise import StepNoise, evaluation_noise
from jagg.flow.rollout import Rollout, batched_velocity, rollout, sample_ode
from jagg.flow.schedule import TransitionPlan, shifted_sigmas
from jagg.flow.transition import log_prob, sde_step

__all__ = [
    "Rollout",
    "StepNoise",
    "TransitionPlan",
    "batched_velocity",
    "evaluation_noise",
    "log_prob",
    "rollout",
    "sample_ode",
    "sde_step",
    "shifted_sigmas",
]
