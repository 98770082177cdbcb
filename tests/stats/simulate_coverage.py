"""How often intervals hold the truth, in simulations; `make coverage` prints the table."""

import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from jagg.stats.crossed import crossed
from jagg.stats.estimates import paired_t

NUM_PROMPTS, PROMPT_SD, REST_SD = 24, 0.5, 1.0
SEED_SDS = {"small": 0.1, "large": 1.0}


def draw(rng: np.random.Generator, skewed: bool, size: tuple[int, int]) -> np.ndarray:
    """Mean 0 and variance 1: normal, or exponential (skewness 2)."""
    return rng.exponential(size=size) - 1 if skewed else rng.normal(size=size)


def coverage(n: int, skewed: bool, seed_sd: float, studies: int, seed: int = 0) -> dict[str, float]:
    """Share of studies whose interval holds the truth: of these prompts (t), of all prompts (crossed, pooled prompts).

    `pooled prompts` is the mistake: every (seed, prompt) difference as a replicate.
    """
    rng = np.random.default_rng([seed, n, int(skewed), round(100 * seed_sd)])
    held = dict.fromkeys(("t", "crossed", "pooled prompts"), 0)
    for _ in range(studies):
        prompts = PROMPT_SD * draw(rng, skewed, (1, NUM_PROMPTS))
        differences = seed_sd * draw(rng, skewed, (n, 1)) + prompts + REST_SD * draw(rng, skewed, (n, NUM_PROMPTS))
        for name, estimate, truth in (
            ("t", paired_t(differences.mean(axis=1)), float(prompts.mean())),
            ("crossed", crossed(differences), 0.0),
            ("pooled prompts", paired_t(differences.ravel()), 0.0),
        ):
            held[name] += estimate.ci_low <= truth <= estimate.ci_high
    return {name: count / studies for name, count in held.items()}


def coverage_table(studies: int) -> Iterator[dict[str, Any]]:
    for n in (3, 5, 10, 20):
        for skewed in (False, True):
            for size, seed_sd in SEED_SDS.items():
                shape = "skewed" if skewed else "normal"
                yield {"n": n, "shape": shape, "seed_sd": size, **coverage(n, skewed, seed_sd, studies)}


def main(studies: int = 10_000) -> None:
    error = math.sqrt(0.95 * 0.05 / studies)
    print(f"Coverage of nominal 95 % intervals, {studies} studies a row (standard error {100 * error:.2f} %),")
    print(f"{NUM_PROMPTS} prompts, prompt sd {PROMPT_SD}, rest sd {REST_SD}, seed sd small {SEED_SDS['small']}, "
          f"large {SEED_SDS['large']}; skewed: exponential")  # fmt: skip
    print(f"{'n':>3} {'shape':>7} {'seed sd':>8} {'t':>7} {'crossed':>8} {'prompts pooled':>15}")
    for row in coverage_table(studies):
        shares = [f"{100 * row[name]:.1f} %" for name in ("t", "crossed", "pooled prompts")]
        print(f"{row['n']:>3} {row['shape']:>7} {row['seed_sd']:>8} {shares[0]:>7} {shares[1]:>8} {shares[2]:>15}",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
