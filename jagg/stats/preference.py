"""From scores of a preference model to the probability that its pick is the arm's image and not the reference's."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float64

from jagg.errors import InputError, unknown_name
from jagg.records import SCORES
from jagg.units import UNITS, unit_of

_LOGIT = 100.0
"""Scale of the models' logits, the unit x100."""
_PAIR = ("backbone", "algorithm", "seed", "step", "prompt_id", "image_index")
SUFFIX = "_win_probability"


def win_probability(
    cosines: Float64[np.ndarray, "pairs"], others: Float64[np.ndarray, "pairs"]
) -> Float64[np.ndarray, "pairs"]:
    """Probability that the first of two images is picked: the softmax of their logits (Kirstain et al. 2023)."""
    return 1 / (1 + np.exp(-_LOGIT * (cosines - others)))


def with_win_probability(scores: pa.Table, metric: str, reference: str) -> pa.Table:
    """Scores with rows of one more metric, `<metric>_win_probability`, in probabilities.

    An arm's row says how probably its image is picked over the reference's of the same seed, prompt and place; the
    reference's own is 1/2. A difference from the reference is then the probability beyond chance.

    Raises:
        InputError: no such metric or reference, or a unit that does not convert to a cosine.
    """
    for kind, name in (("metric", metric), ("arm", reference)):
        known = scores.column(kind).unique().to_pylist()
        if name not in known:
            raise unknown_name(kind, name, known, where=f"column {kind} of the scores")
    rows = scores.filter(pc.equal(scores.column("metric"), metric))
    rows = rows.append_column("cosine", pa.array(_cosines(rows)))
    theirs = rows.filter(pc.equal(rows.column("arm"), reference)).select([*_PAIR, "cosine"])
    pairs = rows.join(theirs, list(_PAIR), join_type="inner", right_suffix="_reference", use_threads=False)
    columns = {name: pairs.column(name) for name in SCORES.names}
    ours, others = (pairs.column(name).to_numpy() for name in ("cosine", "cosine_reference"))
    columns |= {
        "metric": pa.array([metric + SUFFIX] * len(pairs)),
        "value": pa.array(win_probability(ours, others)),
        "unit": pa.array(["probability"] * len(pairs)),
    }
    return pa.concat_tables([scores, pa.table({name: columns[name] for name in SCORES.names}).cast(SCORES)])


def _cosines(rows: pa.Table) -> np.ndarray:
    names = rows.column("unit").to_pylist()
    scales = {name: unit_of(name, where="column unit of the scores").per_cosine for name in set(names)}
    alone = sorted(name for name, scale in scales.items() if scale is None)
    if alone:
        raise InputError(
            "no win probability follows from this unit",
            where="column unit of the scores",
            expected="units of a cosine: " + ", ".join(name for name, unit in UNITS.items() if unit.per_cosine),
            got=", ".join(alone),
        )
    return rows.column("value").to_numpy() / np.array([scales[name] for name in names], float)
