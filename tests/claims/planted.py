"""Result tables of known truth, made through the real comparison, and what the real audit says of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from jagg.claims.registry import Claim
from jagg.claims.results import Results
from jagg.claims.verdicts import audit
from jagg.records import SCORES
from jagg.stats.compare import compare

MARGIN = 0.01
METRICS = ("hpsv2", "pickscore")
CELLS = (("flux", "dancegrpo"), ("qwen_image", "dancegrpo"))


def scores_of(
    effects: Mapping[tuple[str, str], Sequence[float]], num_seeds: int, sd: float, rng: np.random.Generator
) -> pa.Table:
    """Scores of two arms at steps 0, 6, 12; `effects`: (backbone, metric) -> true difference at steps 6 and 12.

    The seeds' differences are normal with deviation `sd` around the truth; prompts add noise of the same size.
    """
    columns: dict[str, list] = {name: [] for name in SCORES.names}
    for (backbone, metric), truth in effects.items():
        for seed in range(num_seeds):
            level = 0.3 + 0.02 * rng.normal()
            for step, effect in zip((0, 6, 12), (0.0, *truth)):
                shift = 0.0 if step == 0 else effect + sd * rng.normal()
                for arm, value in (("baseline", level), ("jagg", level + shift)):
                    for prompt in ("a", "b"):
                        noise = 0.0 if step == 0 else 0.1 * sd * rng.normal()
                        row = (backbone, "dancegrpo", arm, seed, step, prompt, 0, metric, value + noise, "cosine",
                               "s@1", "", "", "", None)  # fmt: skip
                        for name, cell in zip(SCORES.names, row):
                            columns[name].append(cell)
    return pa.table(columns, schema=SCORES)


def results_of(scores: pa.Table, level: float = 0.95) -> Results:
    """The real comparison's table beside its scores."""
    margins = dict.fromkeys(METRICS, MARGIN)
    differences = compare(scores, reference="baseline", level=level, margins=margins)
    return Results({"paired_differences.csv": differences, "scores.parquet": scores})


def claim_of(estimand: str = "difference", **test: object) -> Claim:
    """A claim about jagg with one test and no particular model."""
    scope = test.pop("scope", {})
    return Claim(id="P", statement="planted", scope=scope, tests=[{"estimand": estimand, "arm": "jagg", **test}])  # type: ignore[arg-type]


def verdict_of(claim: Claim, results: Results) -> dict:
    """The claim's one row."""
    (row,) = audit([("planted", claim)], results).to_pylist()
    return row


@dataclass(frozen=True)
class Planted:
    """A claim and a truth for which it is true or false."""

    relation: str
    steps: str
    effects: tuple[float, float, float, float]
    """True difference of each cell and metric, at every checkpoint."""
    true: bool


HAIR = 1e-9
PLANTED = (
    Planted("non-inferior", "last", (-MARGIN, 0.01, 0.01, 0.01), False),
    Planted("non-inferior", "last", (HAIR - MARGIN,) * 4, True),
    Planted("non-inferior", "all", (-MARGIN, 0.01, 0.01, 0.01), False),
    Planted("equivalent", "last", (MARGIN, 0.0, 0.0, 0.0), False),
    Planted("equivalent", "all", (MARGIN - HAIR, HAIR - MARGIN, MARGIN - HAIR, HAIR - MARGIN), True),
    Planted("superior", "last", (0.0, 0.02, 0.02, 0.02), False),
    Planted("superior", "last", (HAIR,) * 4, True),
    Planted("inferior", "all", (-HAIR,) * 4, True),
)
"""At the edge of each claim, where a wrong verdict is likeliest: for a conjunction one false part among clear ones, or
every part barely true."""


def false_certifications(num_tables: int, seed: int) -> tuple[int, dict[str, int]]:
    """Of planted tables: how many verdicts are wrong, and how often each verdict was given."""
    rng = np.random.default_rng(seed)
    wrong, given = 0, dict.fromkeys(("reproduced", "contradicted", "inconclusive", "not-testable"), 0)
    places = [(backbone, metric) for backbone, _ in CELLS for metric in METRICS]
    for number in range(num_tables):
        planted = PLANTED[number % len(PLANTED)]
        effects = {place: (effect, effect) for place, effect in zip(places, planted.effects)}
        results = results_of(scores_of(effects, int(rng.choice((3, 5, 10))), 0.002, rng))
        verdict = verdict_of(claim_of(relation=planted.relation, steps=planted.steps), results)["verdict"]
        given[verdict] += 1
        wrong += verdict == ("contradicted" if planted.true else "reproduced")
    return wrong, given
