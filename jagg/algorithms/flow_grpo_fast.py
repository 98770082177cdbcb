"""Flow-GRPO-Fast: an ODE trajectory but for one contiguous stretch of stochastic, trained transitions (math.md 1)."""

from jagg.config import FlowGRPOFast
from jagg.flow.schedule import TransitionPlan, flow_grpo_diffusion, shifted_sigmas, transition_plan


def flow_grpo_fast_plans(config: FlowGRPOFast) -> tuple[TransitionPlan, ...]:
    """One plan for each place of the stochastic stretch inside its range; all are equally likely."""
    sigmas = shifted_sigmas(config.sampling_steps, config.shift)
    g = flow_grpo_diffusion(sigmas, config.noise_level)
    first, last = config.sde_window_range
    plans = []
    for start in range(first, last - config.sde_window_size + 1):
        trained = tuple(range(start, start + config.sde_window_size))
        diffusion = tuple(g[j] if j in trained else 0.0 for j in range(config.sampling_steps))
        plans.append(
            transition_plan(
                sigmas, diffusion, trained, window=config.window, quantise_timestep=config.quantise_timestep
            )
        )
    return tuple(plans)
