"""What determines an output: its part of the configuration and a hash of the code that makes it.

The texts made here are the workflow's parameters, so they must be equal for equal content and quick to make: no
model library is imported. Code is hashed by its syntax tree, so comments, docstrings and layout change nothing, and
only the modules that an output can reach count: editing one estimator concerns the arms that use it alone.
"""

import ast
import json
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jagg.config import Algorithm, Arm, Study, canonical_json, resolve
from jagg.errors import InputError
from jagg.keys import RunKey, RunPaths
from jagg.records import file_sha256, folder_sha256, read_json, text_sha256

_ROOT = Path(__file__).parent
# Configuration enters by its values; keys, records and the command line move and store results but do not make them.
_NOT_MAKING = ("cli", "config", "errors", "identity", "keys", "records")


def train_identity(study: Study, key: RunKey) -> str:
    """Canonical JSON of exactly what determines one training run; other arms, seeds and scorers do not enter.

    Names of settings that have one value per backbone or algorithm are resolved to this run's.
    """
    algorithm, arm, backbone = study.algorithms[key.algorithm], study.arms[key.arm], study.backbones[key.backbone]
    scorers = {metric: study.scorers[metric] for metric in study.reward.weights}
    content = {
        "key": key.row(),
        "study_seed": study.seed,
        "backbone": _dump(backbone),
        "algorithm": _dump(algorithm),
        "arm": resolved_arm(arm, key.algorithm),
        "training": resolved_training(study, key.backbone),
        "reward": _dump(study.reward),
        "scorers": {metric: _dump(scorer) for metric, scorer in scorers.items()},
        "prompts": _dump(study.prompts),
        "code": code_sha256(
            "jagg.train.loop",
            f"jagg.backbones.{backbone.family}",
            f"jagg.algorithms.{_family(algorithm)}",
            f"jagg.gradients.estimators.{arm.estimator}",
            f"jagg.gradients.schedules.{arm.schedule}",
            *(f"jagg.scorers.{scorer.family}" for scorer in scorers.values()),
        ),
    }
    return canonical_json(content)


def run_settings(identity: dict[str, Any]) -> dict[str, Any]:
    """The resolved settings in a run's recorded identity: what determines it, without its key and the code."""
    return {name: value for name, value in identity.items() if name not in ("key", "code")}


def ended_run(study: Study, key: RunKey, run: RunPaths) -> dict[str, Any]:
    """The record of a run that has ended, checked to be of this key and made with the study's settings.

    Raises:
        InputError: the run has not ended, is another one, or was made with other settings.
    """
    record: dict[str, Any] = read_json(run.manifest)
    found = {name: record.get(name) for name in key.row()}
    if found != key.row():
        raise InputError("the record of another run", where=run.manifest, expected=key.row(), got=found)
    made = flattened(run_settings(record["identity"]))
    wanted = flattened(run_settings(json.loads(train_identity(study, key))))
    changed = sorted(name for name in made.keys() | wanted.keys() if made.get(name) != wanted.get(name))
    if changed:
        raise InputError(
            "a run was made with other settings than the study's",
            where=run.manifest,
            expected=", ".join(f"{name} {wanted.get(name)}" for name in changed),
            got=", ".join(f"{name} {made.get(name)}" for name in changed),
            fix="use the configuration that the run was made with, or run the study again",
        )
    return record


def flattened(content: Any, prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, with dotted keys; lists stay whole."""
    if not isinstance(content, dict):
        return {prefix: content}
    return {
        name: value
        for key, inner in content.items()
        for name, value in flattened(inner, f"{prefix}.{key}" if prefix else key).items()
    }


def stage_identity(study: Study, stage: str, name: str | None = None) -> str:
    """Canonical JSON of what determines another stage's outputs; `name` is the backbone or metric it is for."""
    content, modules = _STAGES[stage](study, name)
    return canonical_json({"stage": stage, "name": name, **content, "code": code_sha256(*modules)})


def resolved_arm(arm: Arm, algorithm: str) -> dict[str, Any]:
    """An arm's settings for one algorithm."""
    routing = arm.routing
    resolved = {
        "jagg_frac": resolve(routing.jagg_frac, algorithm),
        "max_residual": None if routing.max_residual is None else resolve(routing.max_residual, algorithm),
    }
    settings = _dump(arm) | {"routing": _dump(routing) | resolved}
    if not arm.noise_streams:  # the shared noise was there before the field
        del settings["noise_streams"]
    return settings


def resolved_training(study: Study, backbone: str) -> dict[str, Any]:
    """The training settings for one backbone, without those that leave the result as it is."""
    settings = _dump(study.training) | {"max_grad_norm": resolve(study.training.max_grad_norm, backbone)}
    del settings["save_state_every"]
    return settings


Stage = tuple[dict[str, Any], tuple[str, ...]]


def _backbone_stage(study: Study, name: str | None) -> Stage:
    backbone = study.backbones[str(name)]
    modules = ("jagg.pretrain.backbones", f"jagg.pretrain.{backbone.family}", f"jagg.backbones.{backbone.family}")
    return {"backbone": _dump(backbone)}, modules


def _scorer_stage(study: Study, name: str | None) -> Stage:
    scorer = study.scorers[str(name)]
    return {"scorer": _dump(scorer)}, ("jagg.pretrain.scorers", f"jagg.scorers.{scorer.family}")


def _prompts_stage(study: Study, name: str | None) -> Stage:
    return {"prompts": _dump(study.prompts), "study_seed": study.seed}, ("jagg.prompts",)


def _sample_stage(study: Study, name: str | None) -> Stage:
    backbone = study.backbones[str(name)]
    content = {"backbone": _dump(backbone), "evaluation": _dump(study.evaluation)}
    return content, ("jagg.evaluate.sampling", f"jagg.backbones.{backbone.family}")


def _preflight_stage(study: Study, name: str | None) -> Stage:
    families = (f"jagg.scorers.{scorer.family}" for scorer in study.scorers.values())
    return {"scorers": {metric: _dump(scorer) for metric, scorer in study.scorers.items()}}, (
        "jagg.scorers.first_score",
        *families,
    )


def _score_stage(study: Study, name: str | None) -> Stage:
    families = (f"jagg.scorers.{scorer.family}" for scorer in study.scorers.values())
    content = {"scorers": {metric: _dump(scorer) for metric, scorer in study.scorers.items()}}
    return content, ("jagg.evaluate.scoring", *families)


def _summary_stage(*modules: str) -> Any:
    def stage(study: Study, name: str | None) -> Stage:
        return {"study": study.model_dump(mode="json", exclude={"results", "resources"})}, modules

    return stage


def _report_stage(study: Study, name: str | None) -> Stage:
    content, modules = _summary_stage("jagg.report")(study, name)
    made = {
        "templates": folder_sha256(_ROOT / "report" / "templates"),
        "coverage": file_sha256(_ROOT / "stats" / "coverage.csv"),
    }
    return content | made, modules


def _evaluate_stage(study: Study, name: str | None) -> Stage:
    images, sampling = _sample_stage(study, name)
    scores, scoring = _score_stage(study, None)
    return images | scores, sampling + scoring


def _probe_stage(study: Study, name: str | None) -> Stage:
    """`name`: backbone/algorithm. The runs that are probed are inputs and bring their own identity; the threshold of
    the cosine enters the tables alone."""
    assert study.probe is not None
    backbone, _, algorithm = str(name).partition("/")
    families = (f"jagg.scorers.{study.scorers[metric].family}" for metric in study.reward.weights)
    content = {
        "probe": study.probe.model_dump(mode="json", exclude={"threshold"}),
        "backbone": _dump(study.backbones[backbone]),
        "algorithm": _dump(study.algorithms[algorithm]),
        "training": resolved_training(study, backbone),
        "reward": _dump(study.reward),
        "study_seed": study.seed,
    }
    modules = (
        "jagg.probe.cell",
        f"jagg.backbones.{study.backbones[backbone].family}",
        f"jagg.algorithms.{_family(study.algorithms[algorithm])}",
        "jagg.gradients.estimators",
        *families,
    )
    return content, modules


_STAGES = {
    "backbone": _backbone_stage,
    "scorer": _scorer_stage,
    "prompts": _prompts_stage,
    "preflight": _preflight_stage,
    "sample": _sample_stage,
    "evaluate": _evaluate_stage,
    "probe": _probe_stage,
    "tables": _summary_stage("jagg.report.tables"),
    "audit": _summary_stage("jagg.claims.verdicts", "jagg.claims.estimands"),
    "report": _report_stage,
    "track": _summary_stage("jagg.track"),
}


def _dump(section: Any) -> dict[str, Any]:
    return section.model_dump(mode="json")


def _family(algorithm: Algorithm) -> str:
    return str(algorithm.family)  # type: ignore[attr-defined]


def code_sha256(*modules: str) -> str:
    """SHA-256 over the syntax trees of modules and of all that they import from this package.

    A package stands for all its modules. What a package's `__init__` defines itself is left out: it holds doors and
    dicts of choices, and a new choice must not change the old ones. For the same reason the module of a backbone's
    family counts only where it is named. A module that is not there (a plug-in's) adds nothing: its package's version
    is recorded with the run.
    """
    found: set[str] = set()
    waiting = [inner for module in modules for inner in _modules_of(module)]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting.extend(inner for inner in _imports(module) if not _is_choice(inner))
    return text_sha256("\n".join(f"{module} {_source_sha256(module)}" for module in sorted(found)))


def _is_choice(module: str) -> bool:
    """Whether a module of pretraining belongs to one family, as those of `jagg.backbones` of the same name do."""
    *_, room, name = module.split(".")
    return room == "pretrain" and _file(f"jagg.backbones.{name}").is_file()


def _file(module: str) -> Path:
    return _ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")


def _package(module: str) -> Path:
    return _ROOT.joinpath(*module.split(".")[1:])


def _makes_results(module: str) -> bool:
    return module.startswith("jagg.") and module.split(".")[1] not in _NOT_MAKING


def _modules_of(module: str) -> list[str]:
    if _file(module).is_file():
        return [module]
    inner = sorted(_package(module).glob("*.py"))
    return [f"{module}.{path.stem}" for path in inner if path.stem != "__init__"]


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def _source_sha256(module: str) -> str:
    tree = _tree(_file(module))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [item for item in body if not _is_text(item)] or [ast.Pass()]  # type: ignore[attr-defined]
    return text_sha256(ast.unparse(tree))


def _is_text(item: ast.AST) -> bool:
    return isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)


@cache
def _imports(module: str) -> tuple[str, ...]:
    """Modules of this package that a module imports, at its top or inside functions."""
    return tuple(dict.fromkeys(_imported_by(_tree(_file(module)))))


def _imported_by(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from _existing(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield from _existing(_defining(node.module, alias.name))


def _existing(modules: Iterable[str]) -> Iterator[str]:
    return (module for module in modules if _makes_results(module) and _file(module).is_file())


def _defining(module: str, name: str) -> list[str]:
    """The module that `from module import name` takes the name from, through the doors of packages."""
    if not _makes_results(module + ".") or _file(module).is_file():
        return [module]
    if _file(f"{module}.{name}").is_file():
        return [f"{module}.{name}"]
    door = _package(module) / "__init__.py"
    if not door.is_file():
        return []
    for node in _tree(door).body:
        if isinstance(node, ast.ImportFrom) and node.module and name in {a.asname or a.name for a in node.names}:
            original = next(a.name for a in node.names if (a.asname or a.name) == name)
            return _defining(node.module, original)
    return []
