"""DanceGRPO: every transition is stochastic with a constant coefficient (math.md 1)."""

from jagg.config import DanceGRPO
from jagg.flow.schedule import TransitionPlan, constant_diffusion, shifted_sigmas, transition_plan


def dancegrpo_plans(config: DanceGRPO) -> tuple[TransitionPlan, ...]:
    """The one plan of DanceGRPO; `drop_last` leaves the last transition untrained, though it stays stochastic."""
    sigmas = shifted_sigmas(config.sampling_steps, config.shift)
    return (
        transition_plan(
            sigmas,
            constant_diffusion(sigmas, config.eta),
            tuple(range(config.sampling_steps - config.drop_last)),
            window=config.window,
            quantise_timestep=config.quantise_timestep,
        ),
    )
