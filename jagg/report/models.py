"""The models behind a study's numbers, named as their records name them."""

from typing import Any

from jagg.config import EmbeddedBackbone
from jagg.keys import RunKey
from jagg.records import read_json
from jagg.report.data import Row, StudyData
from jagg.report.traceable_values import UNKNOWN

ALGORITHM_NAMES = {"dancegrpo": "DanceGRPO", "flow_grpo_fast": "Flow-GRPO-Fast"}


def is_embedded(data: StudyData) -> bool:
    """Whether any backbone of the study is a small embedded one."""
    return any(isinstance(backbone.source, EmbeddedBackbone) for backbone in data.study.backbones.values())


def algorithm_name(data: StudyData, name: str) -> str:
    """The published name of an algorithm's family, with the study's own name where that is another."""
    family = str(data.study.algorithms[name].family)
    published = ALGORITHM_NAMES.get(family, family)
    return published if name == family else f"{published} “{name}”"


def backbones(data: StudyData) -> list[Row]:
    """Each backbone: what its record says that it is, and what its check measured."""
    return [_backbone(data, name) for name in data.study.backbones]


def _backbone(data: StudyData, name: str) -> Row:
    record = _record(data.paths.backbone(name) / "model.json")
    config = data.study.backbones[name]
    return {
        "name": name,
        "label": backbone_label(data, name),
        "kind": config.source.kind,
        "config": config,
        "quality": _backbone_quality(record.get("quality", {})),
    }


def backbone_label(data: StudyData, name: str) -> str:
    """The model that a backbone really is, with its size, as in `embedded flux (0.47 M parameters)`."""
    record = _record(data.paths.backbone(name) / "model.json")
    label: str = record.get("label", name)
    parameters = record.get("num_parameters")
    return label if parameters is None or "parameters" in label else f"{label} ({_size(parameters)} parameters)"


def _size(parameters: int) -> str:
    scale, unit = (1e9, "B") if parameters >= 1e9 else (1e6, "M")
    return f"{parameters / scale:.3g} {unit}"


def _record(path: Any) -> Row:
    found: Row = read_json(path) if path.exists() else {}
    return found


def _backbone_quality(quality: Row) -> str:
    """What an embedded backbone's own check measured on held-out captions."""
    if not quality:
        return UNKNOWN
    colours = quality["colour_accuracy"]
    return (
        f"right background {colours['background']:.0%}, right shape colour {colours['shape']:.0%} of "
        f"{quality['colour_accuracy_samples']} samples; autoencoder {quality['autoencoder_psnr_db']:.1f} dB"
    )


def scorers(data: StudyData) -> list[Row]:
    """Each metric: its role, its scorer as the record names it, and what its check measured."""
    return [_scorer(data, metric) for metric in data.study.scorers]


def _scorer(data: StudyData, metric: str) -> Row:
    record = _record(data.paths.scorer(metric) / "scorer.json")
    weight = data.study.reward.weights.get(metric)
    return {
        "name": metric,
        "label": record.get("label", metric),
        "kind": data.study.scorers[metric].source.kind,
        "role": "held out" if weight is None else f"optimised, weight {weight:g}",
        "truncated": data.truncated.get(metric, UNKNOWN),
        "quality": _scorer_quality(record.get("held_out_accuracy", {})),
    }


def _scorer_quality(accuracy: Row) -> str:
    """How often an embedded scorer ranks a right caption above one with one word wrong, on held-out images."""
    pairs = {"colour": "right_colour", "shape": "right_shape", "background": "right_background"}
    if not accuracy:
        return UNKNOWN
    return ", ".join(f"{word} {accuracy[name]:.0%}" for word, name in pairs.items()) + " (chance 50 %)"


def aggregation(data: StudyData) -> str:
    """How prompts are averaged, and the sizes of their groups, as the comparison's rows say."""
    sizes = next((row["prompt_groups"] for row in data.differences if row["prompt_groups"]), "")
    names = {"pooled": "every prompt alike", "equal_weight": "groups of equal weight"}
    return names[data.study.comparison.aggregation] + (f" ({sizes})" if sizes else "")


def environments(data: StudyData) -> list[Row]:
    """Environments that the complete runs record, with the number of runs in each."""
    found: dict[str, Row] = {}
    for key in data.complete_keys():
        environment = _environment(data, key)
        if environment is not None:
            entry = found.setdefault(environment["lock_sha256"], {**environment, "runs": 0})
            entry["runs"] += 1
    return [found[name] for name in sorted(found)]


def _environment(data: StudyData, key: RunKey) -> Row | None:
    environment: Row | None = data.record(key).get("environment")
    return environment
