"""The interval for other seeds and other prompts: seeds and prompts as crossed random effects."""

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Float64

from jagg.stats.estimates import Estimate, paired_t, t_interval, unusable

METHOD = "Satterthwaite t, seeds and prompts crossed"


def crossed(
    differences: Float64[np.ndarray, "seeds prompts"], level: float = 0.95, resolution: float = 0.0
) -> Estimate:
    """Mean of paired differences with an interval for new seeds and new prompts.

    Model `d = mean + seed + prompt + rest`, all random, one value a seed and prompt. The variance of the mean is
    `(MS_seeds + MS_prompts - MS_rest) / (seeds * prompts)`. Two floors keep it from being too small by chance: MS_seeds
    and MS_prompts are taken as at least MS_rest. Degrees of freedom are Satterthwaite's (1946), always of all three, so
    that the interval does not jump where a floor begins to act. Where the result would be narrower than the paired t
    interval, which answers less, it is that one: with few seeds these degrees of freedom are often too many.
    """
    num_seeds, num_prompts = differences.shape
    if num_prompts < 2:
        return Estimate(None, method=METHOD, reason="fewer than two prompts")
    reason = unusable(differences.mean(axis=1), resolution=resolution)
    if reason:
        return Estimate(None, method=METHOD, reason=reason)
    mean, by_seed, by_prompt = differences.mean(), differences.mean(axis=1), differences.mean(axis=0)
    rest = differences - by_seed[:, None] - by_prompt[None, :] + mean
    df_rest = (num_seeds - 1) * (num_prompts - 1)
    ms_rest = float((rest**2).sum() / df_rest)
    ms_seeds = max(num_prompts * float(by_seed.var(ddof=1)), ms_rest)
    ms_prompts = max(num_seeds * float(by_prompt.var(ddof=1)), ms_rest)
    parts = [(ms_seeds, num_seeds - 1), (ms_prompts, num_prompts - 1), (-ms_rest, df_rest)]
    total = sum(part for part, _ in parts)
    df = total**2 / sum(part**2 / df for part, df in parts)
    error = math.sqrt(total / (num_seeds * num_prompts))
    interval = t_interval(float(mean), error, df, level, method=METHOD)
    fixed_prompts = paired_t(by_seed, level, resolution)
    assert interval.ci_low is not None
    assert fixed_prompts.ci_low is not None
    return interval if interval.ci_low <= fixed_prompts.ci_low else replace(fixed_prompts, method=METHOD)
