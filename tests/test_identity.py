"""What determines a run, and which edits concern which runs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from analytic import analytic_study, key

from jagg import identity
from jagg.config import Study
from jagg.identity import code_sha256, stage_identity, train_identity

STAGES = [
    ("backbone", "flux"),
    ("scorer", "red"),
    ("sample", "flux"),
    ("evaluate", "flux"),
    *((s, None) for s in ("prompts", "tables")),
]


def probing() -> Study:
    split = {"seeds": [0], "checkpoints": [0], "prompts": 1}
    return analytic_study(probe={"calibration": split, "holdout": split})


def test_a_probe_depends_on_every_estimator_and_not_on_the_threshold_of_the_cosine(copied_code: Path) -> None:
    study = probing()
    before = stage_identity(study, "probe", "flux/dance")
    assert stage_identity(study, "probe", "flux/fast") != before
    lenient = study.model_copy(update={"probe": study.probe.model_copy(update={"threshold": 0.2})})
    assert stage_identity(lenient, "probe", "flux/dance") == before
    edited(
        copied_code / "gradients" / "estimators" / "kriging.py", "torch.linalg.solve(gram", "torch.linalg.solve(+gram"
    )
    forget()
    assert stage_identity(study, "probe", "flux/dance") != before


def test_other_arms_seeds_and_places_do_not_enter() -> None:
    study = analytic_study()
    before = train_identity(study, key())
    more = {"exact_again": {"estimator": "exact"}} | {name: arm.model_dump() for name, arm in study.arms.items()}
    for changes in (
        {"seeds": [0, 1, 2]},
        {"results": "elsewhere"},
        {"training__save_state_every": 5},
        {"evaluation__sampling_steps": 9},
        {"arms": more},
        {"resources": {"threads": 2}},
    ):
        assert train_identity(analytic_study(**changes), key()) == before, changes


def test_whatever_moves_the_result_enters() -> None:
    study = analytic_study()
    before = train_identity(study, key())
    assert train_identity(study, key(seed=1)) != before
    assert train_identity(study, key("baseline")) != before
    for changes in (
        {"training__learning_rate": 0.02},
        {"training__micro_batch_size": 6},
        {"seed": 1},
        {"reward__weights": {"red": 1.0}},
        {"algorithms__dance__eta": 0.4},
        {"scorers__red__batch_size": 3},
        {"prompts__train": 5},
        {"training__max_grad_norm": {"flux": 2.0}},
    ):
        assert train_identity(analytic_study(**changes), key()) != before, changes


def test_only_other_noise_enters_the_settings() -> None:
    """The shared noise is what runs drew before arms could name another."""
    study = analytic_study()
    assert "noise_streams" not in train_identity(study, key())
    other = study.arms[key().arm].model_copy(update={"noise_streams": 1})
    again = study.model_copy(update={"arms": study.arms | {key().arm: other}})
    assert '"noise_streams":1' in train_identity(again, key()).replace(" ", "")


def test_settings_by_name_are_resolved() -> None:
    study = analytic_study()
    by_name = study.arms["ablation"].model_dump() | {"routing": {"jagg_frac": {"dance": 0.6, "fast": 0.9}}}
    arms = {name: arm.model_dump() for name, arm in study.arms.items()} | {"ablation": by_name}
    changed = analytic_study(arms=arms)
    assert train_identity(changed, key("ablation")) == train_identity(study, key("ablation"))
    fast = key("ablation", algorithm="fast")
    assert train_identity(changed, fast) != train_identity(study, fast)
    one = analytic_study(training__max_grad_norm={"flux": 1.0})
    assert train_identity(one, key()) == train_identity(study, key())


@pytest.fixture
def copied_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package whose source the identity reads."""
    copy = tmp_path / "jagg"
    shutil.copytree(identity._ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(identity, "_ROOT", copy)
    forget()
    yield copy
    forget()


def forget() -> None:
    for cached in (identity._tree, identity._source_sha256, identity._imports):
        cached.cache_clear()


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    forget()


def identities() -> dict[str, str]:
    study = analytic_study()
    runs = {f"{a} {arm}": train_identity(study, key(arm, algorithm=a)) for a in ("dance", "fast") for arm in study.arms}
    return runs | {stage: stage_identity(study, stage, name) for stage, name in STAGES}


def changed_by(path: Path, old: str, new: str) -> set[str]:
    before = identities()
    edited(path, old, new)
    after = identities()
    return {name for name in before if before[name] != after[name]}


def test_an_edited_estimator_concerns_its_own_runs(copied_code: Path) -> None:
    path = copied_code / "gradients" / "estimators" / "jagg.py"
    assert changed_by(path, "stack([1 - alpha,", "stack([1.0 - alpha,") == {"dance jagg", "fast jagg"}


def test_an_edited_algorithm_concerns_its_own_runs(copied_code: Path) -> None:
    path = copied_code / "algorithms" / "flow_grpo_fast.py"
    concerned = changed_by(path, "tuple(plans)", "tuple(plans[:])")
    assert concerned == {f"fast {arm}" for arm in ("baseline", "jagg", "ablation")}


def test_an_edited_family_concerns_its_own_backbone(copied_code: Path) -> None:
    other = copied_code / "pretrain" / "qwen_image.py"
    assert not changed_by(other, "def ", "def more() -> None: ...\n\n\ndef ")
    own = copied_code / "pretrain" / "flux.py"
    assert changed_by(own, "class EmbeddedFlux", "def more() -> None: ...\n\n\nclass EmbeddedFlux") == {"backbone"}


def test_an_edited_helper_concerns_everything_that_reaches_it(copied_code: Path) -> None:
    concerned = changed_by(
        copied_code / "flow" / "transition.py",
        "latents * rounded(shrink, latents)",
        "rounded(shrink, latents) * latents",
    )
    assert {name for name in concerned if " " in name} == {n for n in identities() if " " in n}
    assert "sample" in concerned
    assert not {"prompts", "scorer"} & concerned


def test_comments_docstrings_and_layout_concern_nothing(copied_code: Path) -> None:
    path = copied_code / "gradients" / "estimators" / "jagg.py"
    assert not changed_by(path, '"""JAGG: ', '"""What JAGG is: ')
    assert not changed_by(path, "    alpha = ", "    # The share of the far end.\n    alpha = ")
    assert not changed_by(path, "torch.stack([1 - alpha, alpha])", "torch.stack(\n        [1 - alpha, alpha]\n    )")


def test_a_new_choice_leaves_the_old_ones_alone(copied_code: Path) -> None:
    estimators = copied_code / "gradients" / "estimators"
    shutil.copy(estimators / "jagg.py", estimators / "midpoint.py")
    assert not changed_by(
        estimators / "__init__.py", '    "jagg": jagg', '    "midpoint": midpoint.ESTIMATOR,\n    "jagg": jagg'
    )


def test_every_stage_names_code_that_exists() -> None:
    nothing = code_sha256("jagg.no_such_module")
    for modules in ("jagg.train.loop", "jagg.evaluate.sampling", "jagg.evaluate.scoring", "jagg.prompts"):
        assert identity._file(modules).is_file()
    for package in ("jagg.report", "jagg.track"):
        assert code_sha256(package) != nothing


def test_no_model_library_is_imported() -> None:
    code = "import jagg.identity, sys; print(sorted({'torch', 'diffusers', 'transformers'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
