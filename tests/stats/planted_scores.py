"""Small studies as long tables with known true differences; the cells of a seed share part of its effect."""

import numpy as np
import pyarrow as pa

from jagg.records import SCORES

CELLS = (("flux", "dancegrpo"), ("qwen_image", "dancegrpo"))
METRICS = ("clipscore", "hpsv2")
STEPS = (0, 10)
NUM_PROMPTS = 3


def planted_scores(rng: np.random.Generator, truth: float, num_seeds: int, shared: float = 0.8) -> pa.Table:
    """True difference `truth` of arm `jagg` at step 10 in every cell and metric; deviation over seeds about 0.01.

    Args:
        shared: share of the seed's variance that its cells have in common.
    """
    shape = (2, num_seeds, len(CELLS), len(METRICS), len(STEPS), NUM_PROMPTS)
    arm, seed, cell, metric, step, prompt = (index.ravel() for index in np.indices(shape))
    common = rng.normal(size=(num_seeds, 1, 1)) * shared**0.5
    own = rng.normal(size=(num_seeds, len(CELLS), len(METRICS))) * (1 - shared) ** 0.5
    effect = truth + 0.01 * (common + own)
    value = 0.3 + 0.05 * rng.normal(size=NUM_PROMPTS)[prompt] + 0.02 * rng.normal(size=num_seeds)[seed] * step
    value = value + effect[seed, cell, metric] * arm * step + 0.001 * rng.normal(size=len(arm)) * step
    texts = {
        "backbone": np.array([name for name, _ in CELLS])[cell],
        "algorithm": np.array([name for _, name in CELLS])[cell],
        "arm": np.array(["baseline", "jagg"])[arm],
        "metric": np.array(METRICS)[metric],
        "prompt_id": prompt.astype(str),
    }
    constants = {"unit": "cosine", "scorer": "s@1", "signature": "s", "environment": "e", "prompt_group": ""}
    columns = {name: pa.array(values.tolist()) for name, values in texts.items()}
    columns |= {name: pa.array([text] * len(arm)) for name, text in constants.items()}
    columns |= {
        "seed": seed,
        "step": np.array(STEPS)[step],
        "image_index": 0 * seed,
        "value": value,
        "truncated": seed < 0,
    }
    return pa.table({name: columns[name] for name in SCORES.names}).cast(SCORES)
