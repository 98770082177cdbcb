"""Time and memory of a comparison: 20 seeds x 400 prompts x 6 checkpoints x 3 metrics x 4 cells, 3 arms.

python benchmarks/compare_speed.py [--profile]
"""

import cProfile
import pstats
import resource
import sys
import time

import numpy as np
import pyarrow as pa

from jagg.records import SCORES
from jagg.stats.compare import compare_arms
from jagg.stats.design import Design

CELLS = [(backbone, algorithm) for backbone in ("flux", "qwen_image") for algorithm in ("dancegrpo", "flow_grpo_fast")]
ARMS, METRICS = ("baseline", "jagg", "ablation"), ("hpsv2", "clipscore", "pickscore")
SEEDS, PROMPTS, STEPS = 20, 400, (0, 20, 40, 60, 80, 100)


def simulated_scores(seed: int = 0) -> pa.Table:
    """576,000 rows an arm in the long format, in random order."""
    shape = (len(CELLS), len(ARMS), SEEDS, len(STEPS), len(METRICS), PROMPTS)
    rng = np.random.default_rng(seed)
    order = rng.permutation(int(np.prod(shape)))
    cell, arm, run, step, metric, prompt = (index.ravel()[order] for index in np.indices(shape))
    text = {
        "backbone": ([backbone for backbone, _ in CELLS], cell),
        "algorithm": ([algorithm for _, algorithm in CELLS], cell),
        "arm": (ARMS, arm),
        "prompt_id": ([f"{number:05d}" for number in range(PROMPTS)], prompt),
        "metric": (METRICS, metric),
        "unit": (["cosine"], 0 * cell),
        "scorer": ([f"{name}@0123456789ab" for name in METRICS], metric),
        "signature": ([f"720px {backbone}" for backbone, _ in CELLS], cell),
        "environment": (["0123456789ab"], 0 * cell),
        "prompt_group": (["anime", "concept-art", "paintings", "photo"], prompt % 4),
    }
    columns = {name: pa.array(np.array(values, object)[codes], pa.string()) for name, (values, codes) in text.items()}
    columns |= {"seed": run, "step": np.array(STEPS)[step], "image_index": 0 * cell}
    columns["truncated"] = np.zeros(len(order), bool)
    columns["value"] = 0.3 + 0.01 * rng.normal(size=len(order))
    return pa.table({name: columns[name] for name in SCORES.names}).cast(SCORES)


def main() -> None:
    scores = simulated_scores()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    design = Design("baseline", margins=dict.fromkeys(METRICS, 0.005), optimised_metrics=METRICS[:2])
    profile = cProfile.Profile(builtins=False) if "--profile" in sys.argv else None
    started, started_cpu = time.perf_counter(), time.process_time()
    if profile:
        profile.enable()
    compared = compare_arms(scores, design)
    differences, curves = compared.differences(), compared.curves()
    if profile:
        profile.disable()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{scores.num_rows:,} rows of {len(ARMS)} arms -> {differences.num_rows} differences, {curves.num_rows} points"
    )
    print(f"{seconds:.2f} s, of which {cpu_seconds:.2f} s on the processor")
    print(f"peak memory {peak / 2**20:.2f} GiB ({before / 2**20:.2f} GiB before, with the table)")
    if profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(25)


if __name__ == "__main__":
    main()
