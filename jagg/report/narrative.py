"""Verdicts, counts and limits in words; every sentence follows from rows of the tables."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from jagg.identity import flattened, run_settings, train_identity
from jagg.keys import RunKey
from jagg.report.data import Row, StudyData, key_of
from jagg.report.models import is_embedded
from jagg.report.tables import COMPLETE, DIVERGED, MISSING, RATIO_FAILED
from jagg.stats.compare import POOLED
from jagg.stats.estimates import sign_flip_floor
from jagg.stats.join import Cell

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
    "arm.noise_streams",
)


def run_counts(data: StudyData) -> dict[str, int]:
    """Wanted, complete, diverged and missing runs, and those that failed the ratio check, if any."""
    counts = Counter(row["status"] for row in data.runs)
    statuses = [COMPLETE, DIVERGED, MISSING, *([RATIO_FAILED] if counts[RATIO_FAILED] else [])]
    return {"wanted": len(data.runs), **{status: counts[status] for status in statuses}}


WORDS = {
    "superior": "higher",
    "inferior": "lower",
    "equivalent": "equivalent within the margin",
    "non-inferior": "not worse than the margin allows",
    "inconclusive": "inconclusive",
    "not-estimable": "no claim (not estimable)",
}
"""Verdicts as the page words them, strongest first."""


def verdict_sentence(data: StudyData, rows: Sequence[Row]) -> str:
    """What an arm's rows of one cell say together, from their intervals alone."""
    grouped: dict[str, list[str]] = {}
    for metric in data.study.scorers:
        for row in rows:
            if row["metric"] == metric:
                grouped.setdefault(phrase(row), []).append(data.metric_label(metric))
    sentence = "; ".join(f"{words} in {_listed(metrics)}" for words, metrics in grouped.items())
    mixed = any(_side(row) > 0 for row in rows) and any(_side(row) < 0 for row in rows)
    return f"mixed: {sentence}" if mixed else sentence


def _side(row: Row) -> int:
    """1 or -1 if the interval lies above or below 0, else 0."""
    if row["ci_low"] is None:
        return 0
    return int(row["ci_low"] > 0) - int(row["ci_high"] < 0)


def phrase(row: Row) -> str:
    """A row's verdict in words; one inside the margin says its side of 0, if it is above the A/A floor."""
    side = "" if _is_noise(row) else {1: "higher, but ", -1: "lower, but ", 0: ""}[_side(row)]
    return (side if row["verdict"] in ("equivalent", "non-inferior") else "") + WORDS[row["verdict"]]


def _is_noise(row: Row) -> bool:
    """Whether the arm is higher by no more than other noise alone can make it."""
    return row["aa_floor"] is not None and row["difference"] is not None and 0 < row["difference"] <= row["aa_floor"]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def verdicts(data: StudyData) -> list[Row]:
    """One block an arm: how many comparisons came out how, and a line a cell, the mean over cells last."""
    rows = data.last_differences()
    blocks = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        mine = [row for row in rows if row["arm"] == arm]
        in_cells = [row for row in mine if row["backbone"] != POOLED]
        lines = [
            {"cell": cell, "sentence": verdict_sentence(data, inner), "rows": _by_metric(data, inner)}
            for cell, inner in _by_cell(mine).items()
        ]
        blocks.append(
            {
                "arm": arm,
                "comparisons": len(in_cells),
                "counts": verdict_counts(in_cells),
                "lines": lines,
            }
        )
    return blocks


def verdict_counts(rows: Sequence[Row]) -> list[tuple[int, str]]:
    """How many rows have each verdict, in the page's words, strongest first."""
    counts = Counter(row["verdict"] for row in rows)
    return [(counts[word], text) for word, text in WORDS.items() if counts[word]]


def _by_cell(rows: Sequence[Row]) -> dict[Cell, list[Row]]:
    grouped: dict[Cell, list[Row]] = {}
    for row in rows:
        grouped.setdefault((row["backbone"], row["algorithm"]), []).append(row)
    return grouped


def _by_metric(data: StudyData, rows: Sequence[Row]) -> list[Row]:
    order = list(data.study.scorers)
    return sorted(rows, key=lambda row: order.index(row["metric"]))


def gains(data: StudyData) -> list[Row]:
    """Per arm and metric: in how many complete runs the evaluation score rose from step 0 to the last checkpoint."""
    scores = {(key_of(row), row["metric"], row["step"]): row["score"] for row in data.scores}
    found = []
    for arm in data.study.arms:
        keys = [key for key in data.complete_keys() if key.arm == arm]
        for metric in data.study.scorers:
            risen = sum(scores[key, metric, data.last_step] > scores[key, metric, 0] for key in keys)
            found.append({"arm": arm, "metric": metric, "runs": len(keys), "risen": risen})
        if data.study.reward.mix == "raw_weighted_sum":
            risen = sum(_mix(data, scores, key, data.last_step) > _mix(data, scores, key, 0) for key in keys)
            found.append({"arm": arm, "metric": "reward", "runs": len(keys), "risen": risen})
    return found


def _mix(data: StudyData, scores: dict[tuple[RunKey, str, int], float], key: RunKey, step: int) -> float:
    return sum(weight * scores[key, metric, step] for metric, weight in data.study.reward.weights.items())


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
    short = [row for row in data.last_differences() if "cannot be expected to show" in (row["note"] or "")]
    if short:
        needed = [row["seeds_needed"] for row in short]
        most = f"up to {max(needed)}" if None not in needed else "more than the planner looks for"
        lines.append(
            f"{len(short)} of {len(data.last_differences())} comparisons have too few seeds for their margin; "
            f"the seeds needed are {most}."
        )
    if data.study.probe is not None:
        probe = data.study.probe
        splits = (("calibration", probe.calibration), ("holdout", probe.holdout))
        rollouts = " and ".join(
            f"{len(split.seeds)} seed(s) x {split.prompts} prompt(s) for {name}" for name, split in splits
        )
        lines.append(
            f"Gradient quality is that of rollouts of {rollouts} a cell: rollouts of one prompt or seed are alike, so "
            "its shares and intervals say less about other prompts and seeds than their numbers of rollouts suggest."
        )
    lines += [
        "The optimised metrics are part of the training reward and can be gamed; only held-out metrics speak for "
        "quality, and an automatic score is not a person's judgement.",
        "Times are those of the machine that ran this study; counts of passes hold everywhere. FLOPs are not measured.",
        f"Comparisons at checkpoints before the last (step {data.last_step}) are outside the declared family of tests: "
        "exploratory. Curves over checkpoints have bands that hold all checkpoints at once.",
        "Differences at equal cost read the curves between checkpoints: they are as coarse as the checkpoints.",
        "Seeds vary training alone: prompts, evaluation noise, base models and scorers are the same for all seeds, so "
        "intervals say nothing about other base models, and about other prompts only where they are said to.",
    ]
    return lines
