"""How often intervals hold the truth, in simulations; `make coverage` prints the table and keeps it for the report."""

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jagg.records import COVERAGE, table_of, write_table
from jagg.stats import COVERAGE_FILE
from jagg.stats.crossed import crossed
from jagg.stats.estimates import paired_t

NUM_PROMPTS, PROMPT_SD, REST_SD = 24, 0.5, 1.0
SEED_SDS = {"small": 0.1, "large": 1.0}


Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]

SHAPES: dict[str, Draw] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "both arms skewed": lambda rng, size: (rng.exponential(size=size) - rng.exponential(size=size)) / math.sqrt(2),
    "one arm skewed": lambda rng, size: rng.exponential(size=size) - 1,
}
"""How differences are spread, with mean 0 and variance 1; skewed: exponential, skewness 2. Of two skewed arms the
difference is symmetric with heavy tails; where the other arm is constant it is as skewed as the arm, the worst case."""


def coverage(n: int, shape: str, seed_sd: float, studies: int, seed: int = 0) -> dict[str, float]:
    """Share of studies whose interval holds the truth: of these prompts (t), of all prompts (crossed, prompts_pooled).

    `prompts_pooled` is the mistake: every (seed, prompt) difference as a replicate.
    """
    draw = SHAPES[shape]
    rng = np.random.default_rng([seed, n, list(SHAPES).index(shape), round(100 * seed_sd)])
    held = dict.fromkeys(("t", "crossed", "prompts_pooled"), 0)
    for _ in range(studies):
        prompts = PROMPT_SD * draw(rng, (1, NUM_PROMPTS))
        differences = seed_sd * draw(rng, (n, 1)) + prompts + REST_SD * draw(rng, (n, NUM_PROMPTS))
        for name, estimate, truth in (
            ("t", paired_t(differences.mean(axis=1)), float(prompts.mean())),
            ("crossed", crossed(differences), 0.0),
            ("prompts_pooled", paired_t(differences.ravel()), 0.0),
        ):
            held[name] += estimate.ci_low <= truth <= estimate.ci_high
    return {name: count / studies for name, count in held.items()}


def coverage_table(studies: int) -> Iterator[dict[str, Any]]:
    for n in (3, 5, 10, 20):
        for shape in SHAPES:
            for size, seed_sd in SEED_SDS.items():
                shares = coverage(n, shape, seed_sd, studies)
                yield {"num_seeds": n, "shape": shape, "seed_sd": size, "studies": studies, **shares}


def main(studies: int = 10_000) -> None:
    error = math.sqrt(0.95 * 0.05 / studies)
    print(f"Coverage of nominal 95 % intervals, {studies} studies a row (standard error {100 * error:.2f} %),")
    print(f"{NUM_PROMPTS} prompts, prompt sd {PROMPT_SD}, rest sd {REST_SD}, seed sd small {SEED_SDS['small']}, "
          f"large {SEED_SDS['large']}; skewed: exponential")  # fmt: skip
    print(f"{'n':>3} {'shape':>17} {'seed sd':>8} {'t':>7} {'crossed':>8} {'prompts pooled':>15}")
    rows = []
    for row in coverage_table(studies):
        shares = [f"{100 * row[name]:.1f} %" for name in ("t", "crossed", "prompts_pooled")]
        print(f"{row['num_seeds']:>3} {row['shape']:>17} {row['seed_sd']:>8} {shares[0]:>7} {shares[1]:>8} "
              f"{shares[2]:>15}", flush=True)  # fmt: skip
        rows.append(row)
    write_table(COVERAGE_FILE, table_of(rows, COVERAGE))
    print(f"written to {COVERAGE_FILE}, which the report shows")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
