"""Verdicts, counts and limits in words; every sentence follows from rows of the tables."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from jagg.config import EmbeddedBackbone
from jagg.identity import flattened, run_settings, train_identity
from jagg.keys import RunKey
from jagg.report.data import Row, StudyData
from jagg.report.tables import COMPLETE, DIVERGED, MISSING
from jagg.stats.compare import POOLED
from jagg.stats.estimates import sign_flip_floor

ALLOWED_DIFFERENCES = (
    "arm.estimator",
    "arm.debiased",
    "arm.debiased.probability",
    "arm.debiased.draw",
    "arm.debiased.full_residual",
    "arm.window",
    "arm.routing.jagg_frac",
    "arm.routing.router",
    "arm.routing.max_residual",
    "arm.schedule",
    "arm.off_policy",
)


def number(value: float | None, digits: int = 4) -> str:
    """A number as the page prints it; what is unknown is a dash."""
    if value is None:
        return "–"
    text = f"{value:.{digits}f}" if value == 0 or abs(value) >= 10.0 ** (1 - digits) else f"{value:.2g}"
    return text.replace("-", "−")


def signed(value: float | None) -> str:
    """A difference with its sign."""
    return number(value) if value is None or value <= 0 else "+" + number(value)


def p_text(value: float | None) -> str:
    """A p-value with three significant digits."""
    return "–" if value is None else f"{value:.3g}"


def run_counts(data: StudyData) -> dict[str, int]:
    """Wanted, complete, diverged and missing runs."""
    counts = Counter(row["status"] for row in data.runs)
    return {"wanted": len(data.runs), **{status: counts[status] for status in (COMPLETE, DIVERGED, MISSING)}}


def verdict_sentence(data: StudyData, rows: Sequence[Row]) -> str:
    """What an arm's rows of one cell say together, from their intervals alone."""
    grouped: dict[str, list[str]] = {}
    for metric in data.study.scorers:
        for row in rows:
            if row["metric"] == metric:
                grouped.setdefault(_phrase(row), []).append(data.metric_label(metric))
    sentence = "; ".join(f"{phrase} {_listed(metrics)}" for phrase, metrics in grouped.items())
    mixed = any(_side(row) > 0 for row in rows) and any(_side(row) < 0 for row in rows)
    return f"mixed: {sentence}" if mixed else sentence


def _side(row: Row) -> int:
    """1 or -1 if the interval lies above or below 0, else 0."""
    if row["ci_low"] is None:
        return 0
    return int(row["ci_low"] > 0) - int(row["ci_high"] < 0)


def _phrase(row: Row) -> str:
    words = {
        "superior": "higher in",
        "inferior": "lower in",
        "non-inferior": "not worse than the margin allows in",
        "inconclusive": "inconclusive in",
        "not-estimable": "no claim (not estimable) in",
    }
    if row["verdict"] == "equivalent":
        side = {1: "higher, but ", -1: "lower, but ", 0: ""}[_side(row)]
        return f"{side}equivalent within the margin in"
    return words[row["verdict"]]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def verdicts(data: StudyData) -> list[Row]:
    """One row a cell (the mean over cells last) and arm, with its sentence and its rows of differences."""
    grouped: dict[tuple[str, str, str], list[Row]] = {}
    for row in data.last_differences():
        grouped.setdefault((row["backbone"], row["algorithm"], row["arm"]), []).append(row)
    return [
        {
            "cell": "mean over cells" if backbone == POOLED else f"{backbone}, {algorithm}",
            "arm": arm,
            "sentence": verdict_sentence(data, rows),
            "num_seeds": min(row["num_seeds"] for row in rows),
        }
        for (backbone, algorithm, arm), rows in grouped.items()
    ]


def gains(data: StudyData) -> list[Row]:
    """Per arm and metric: in how many complete runs the evaluation score rose from step 0 to the last checkpoint."""
    scores = {(*(row[name] for name in _RUN), row["metric"], row["step"]): row["score"] for row in data.scores}
    found = []
    for arm in data.study.arms:
        keys = [key for key in data.complete_keys() if key.arm == arm]
        row: dict[str, Any] = {"arm": arm, "runs": len(keys)}
        risen: dict[str, int] = {}
        for metric in data.study.scorers:
            steps = [[scores[(*_place(key), metric, step)] for step in (0, data.last_step)] for key in keys]
            risen[metric] = sum(last > first for first, last in steps)
        if data.study.reward.mix == "raw_weighted_sum":
            mixes = [[_mix(data, scores, key, step) for step in (0, data.last_step)] for key in keys]
            risen["reward"] = sum(last > first for first, last in mixes)
        found.append(row | {"risen": risen})
    return found


_RUN = ("backbone", "algorithm", "arm", "seed")


def _place(key: RunKey) -> tuple[str, str, str, int]:
    return key.backbone, key.algorithm, key.arm, key.seed


def _mix(data: StudyData, scores: dict[tuple, float], key: RunKey, step: int) -> float:
    return sum(weight * scores[(*_place(key), metric, step)] for metric, weight in data.study.reward.weights.items())


def arm_differences(data: StudyData) -> list[Row]:
    """Resolved settings in which an arm differs from the reference, by algorithm."""
    backbone, seed = next(iter(data.study.backbones)), data.study.seeds[0]
    found = []
    for algorithm in data.study.algorithms:
        keys = {arm: RunKey(backbone, algorithm, arm, seed) for arm in data.study.arms}
        settings = {arm: run_settings(json.loads(train_identity(data.study, key))) for arm, key in keys.items()}
        for arm in data.study.arms:
            differences = setting_differences(settings[data.reference], settings[arm])
            found += [{"algorithm": algorithm, "arm": arm, **difference} for difference in differences]
    return found


def setting_differences(reference: dict[str, Any], other: dict[str, Any]) -> list[Row]:
    """Settings that differ, a missing one included; `expected` if arms are meant to differ there."""
    base, changed = flattened(reference), flattened(other)
    rows = [
        {"key": name, "reference": base.get(name, "absent"), "value": changed.get(name, "absent")}
        for name in sorted(base.keys() | changed.keys())
    ]
    return [row | {"expected": row["key"] in ALLOWED_DIFFERENCES} for row in rows if row["reference"] != row["value"]]


def is_embedded(data: StudyData) -> bool:
    """Whether any backbone of the study is a small embedded one."""
    return any(isinstance(backbone.source, EmbeddedBackbone) for backbone in data.study.backbones.values())


def limits(data: StudyData) -> list[str]:
    """What this study cannot show."""
    n = len(data.study.seeds)
    lines = [
        f"The unit of replication is the training seed: n = {n}. Prompts and images are repeated measures in a seed.",
        f"With {n} seeds the exact sign-flip test cannot go below p = {sign_flip_floor(n):.3g}.",
        "“Inconclusive” means that these seeds cannot tell; it does not mean that the arms are equal.",
    ]
    if is_embedded(data):
        lines.insert(0, "Nothing here is a result on FLUX.1-dev or Qwen-Image: the backbones are small models.")
    short = [row for row in data.last_differences() if "cannot be expected to show equivalence" in (row["note"] or "")]
    if short:
        needed = [row["seeds_needed"] for row in short]
        most = f"up to {max(needed)}" if None not in needed else "more than the planner looks for"
        lines.append(
            f"{len(short)} of {len(data.last_differences())} comparisons have too few seeds for their margin; "
            f"the seeds needed are {most}."
        )
    lines += [
        "The optimised metrics are part of the training reward and can be gamed; only held-out metrics speak for "
        "quality, and an automatic score is not a person's judgement.",
        "Times are those of the machine that ran this study; counts of passes hold everywhere. FLOPs are not measured.",
        f"Comparisons at checkpoints before the last (step {data.last_step}) and means over cells are outside the "
        "corrected family of tests: exploratory.",
    ]
    return lines
