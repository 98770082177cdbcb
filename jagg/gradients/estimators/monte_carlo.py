"""The unbiased estimator of JAGG's budget: two transitions drawn at random, each with its own signal (math.md 3)."""

from itertools import combinations

import torch

from jagg.gradients.window import Estimate, Estimator, Outcome, Window


def monte_carlo(window: Window) -> list[Outcome]:
    """Two nodes drawn without replacement, weight W/2 on each one's own signal."""
    length = len(window)
    pairs = list(combinations(range(length), 2))
    outcomes = []
    for pair in pairs:
        weights = torch.zeros(2, length, dtype=torch.float64)
        weights[0, pair[0]] = weights[1, pair[1]] = length / 2
        outcomes.append(Outcome(1 / len(pairs), Estimate(pair, weights)))
    return outcomes


ESTIMATOR = Estimator(monte_carlo, expected_nodes=lambda length: 2.0)
