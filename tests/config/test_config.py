"""The study files that come with the project, and what a wrong one is told."""

import json
from pathlib import Path

import pytest
import yaml

from jagg.config import canonical_json, load_study
from jagg.config.schema import key_reference, study_schema
from jagg.errors import InputError
from jagg.records import write_json

ROOT = Path(__file__).parents[2]


@pytest.fixture
def content() -> dict:
    return yaml.safe_load((ROOT / "configs" / "small.yaml").read_text())


def fault(content: dict, tmp_path: Path) -> str:
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError) as caught:
        load_study(path)
    return str(caught.value)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_study_files_of_the_project_are_valid_and_declare_what_is_tested_first(path: Path) -> None:
    study = load_study(path)
    assert study.study == path.stem
    assert study.comparison.primary_metric == "hpsv2"


def test_the_record_of_a_study_is_the_study(content: dict, tmp_path: Path) -> None:
    """Records sort their keys; that must not change what is declared, nor which arm or metric comes first."""
    content["reward"]["weights"] = {"hpsv2": 0.5, "clipscore": 0.5}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    study = load_study(tmp_path / "study.yaml")
    write_json(tmp_path / "study.json", study.model_dump(mode="json"))
    again = load_study(tmp_path / "study.json")
    assert again == study
    assert [*again.arms] == [*study.arms]
    assert next(iter(again.arms)) == study.comparison.reference
    assert [*again.reward.weights] == [*study.reward.weights] == ["clipscore", "hpsv2"]


def test_the_published_schema_is_the_current_one() -> None:
    assert (ROOT / "workflow" / "schemas" / "study.schema.json").read_text() == study_schema()


def test_the_manual_lists_every_key() -> None:
    assert (ROOT / "configs" / "README.md").read_text().endswith(key_reference())


def test_every_field_is_described() -> None:
    schema = json.loads(study_schema())
    for section in [schema, *schema["$defs"].values()]:
        for key, field in section.get("properties", {}).items():
            refers = "$ref" in field or key in ("source", "kind", "family")
            assert field.get("description") or refers, key


def test_order_of_keys_does_not_matter(content: dict, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(dict(reversed(content.items())), sort_keys=False))
    assert canonical_json(load_study(tmp_path / "a.yaml")) == canonical_json(load_study(tmp_path / "b.yaml"))


def test_names_stand_in_an_order_of_their_own_however_the_file_lists_them(content: dict, tmp_path: Path) -> None:
    content["arms"] |= {f"frac_{n}": {"estimator": "jagg"} for n in (10, 2, "02")}
    files = {"as_it_is.yaml": content, "reversed.yaml": _reversed(content)}
    for name, written in files.items():
        (tmp_path / name).write_text(yaml.safe_dump(written, sort_keys=False))
    resolved = load_study(tmp_path / "as_it_is.yaml").model_dump(mode="json")
    (tmp_path / "study.json").write_text(json.dumps(resolved, sort_keys=True))
    for name in (*files, "study.json"):
        study = load_study(tmp_path / name)
        assert list(study.arms) == ["baseline", "ablation", "frac_02", "frac_2", "frac_10", "jagg"], name
        assert list(study.scorers) == ["clipscore", "hpsv2", "pickscore"], name
        assert list(study.reward.weights) == ["clipscore", "hpsv2"], name
        assert (list(study.backbones), list(study.algorithms)) == (
            ["flux", "qwen_image"],
            ["dancegrpo", "flow_grpo_fast"],
        )


def _reversed(content: object) -> object:
    if not isinstance(content, dict):
        return content
    return {name: _reversed(inner) for name, inner in reversed(content.items())}


@pytest.mark.parametrize(
    "wrong", [{"arms": ["baseline"]}, {"arms": {1: {}}}, {"comparison": 3}, {"reward": {"weights": 1}}]
)
def test_parts_that_have_no_names_are_left_to_the_checks(content: dict, tmp_path: Path, wrong: dict) -> None:
    assert next(iter(wrong)) in fault(content | wrong, tmp_path)


def test_unknown_key_names_the_key_and_the_nearest(content: dict, tmp_path: Path) -> None:
    content["training"]["learning_rat"] = 1.0
    message = fault(content, tmp_path)
    assert "training.learning_rat: unknown key; did you mean 'learning_rate'?" in message


@pytest.mark.parametrize("section", ["training", "evaluation"])
def test_guidance_cannot_differ_between_rollout_training_and_evaluation(
    content: dict, tmp_path: Path, section: str
) -> None:
    content[section]["guidance"] = {"kind": "distilled", "scale": 3.5}
    assert f"{section}.guidance: unknown key" in fault(content, tmp_path)


def test_duplicate_seeds(content: dict, tmp_path: Path) -> None:
    content["seeds"] = [0, 1, 1]
    assert "seeds: expected distinct seeds, got [0, 1, 1]" in fault(content, tmp_path)


def test_window_of_one(content: dict, tmp_path: Path) -> None:
    content["algorithms"]["dancegrpo"]["window"] = 1
    message = fault(content, tmp_path)
    assert "algorithms.dancegrpo" in message
    assert "window" in message
    assert "2" in message


@pytest.mark.parametrize("name", ["a/b", "..", "a b", "", "ä", "x" * 65])
def test_unsafe_names(content: dict, tmp_path: Path, name: str) -> None:
    content["arms"][name] = {"estimator": "exact"}
    assert "arms" in fault(content, tmp_path)
    del content["arms"][name]
    content["study"] = name
    assert "study" in fault(content, tmp_path)


def test_batch_that_does_not_divide_names_the_nearest_sizes(content: dict, tmp_path: Path) -> None:
    content["training"]["micro_batch_size"] = 7
    message = fault(content, tmp_path)
    assert "micro_batch_size" in message
    assert "48 images" in message
    assert "6 or 8" in message


def test_unknown_estimator_is_refused_with_the_list(content: dict, tmp_path: Path) -> None:
    content["arms"]["jagg"]["estimator"] = "jag"
    message = fault(content, tmp_path)
    assert "arms.jagg.estimator" in message
    assert "did you mean 'jagg'?" in message
    assert "endpoint_only" in message


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("comparison", "reference"), "base", "comparison.reference"),
        (("comparison", "margins"), {"hps": 0.1}, "comparison.margins"),
        (("comparison", "margins"), {"hpsv2": {"below": 0.0, "above": 0.1}}, "comparison.margins"),
        (("comparison", "primary_metric"), "hps", "comparison.primary_metric"),
        (("comparison", "aa_arm"), "again", "comparison.aa_arm"),
        (("comparison", "aa_arm"), "jagg", "comparison.aa_arm"),
        (("comparison", "aa_arm"), "baseline", "comparison.aa_arm"),
        (("reward", "weights"), {"hps": 1.0}, "reward.weights"),
        (("training", "checkpoints"), [0, 99], "checkpoints"),
        (("training", "checkpoints"), [10, 30], "checkpoints"),
        (("training", "learning_rate"), float("nan"), "learning_rate"),
        (("training", "max_grad_norm"), {"flux": 1.0}, "training.max_grad_norm"),
    ],
)
def test_contradictions_name_the_key(
    content: dict, tmp_path: Path, path: tuple[str, str], value: object, expected: str
) -> None:
    content[path[0]][path[1]] = value
    assert expected in fault(content, tmp_path)


def test_a_key_that_stands_twice(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("study: a\nstudy: b\n")
    with pytest.raises(InputError, match="'study' stands twice"):
        load_study(path)


@pytest.mark.parametrize("text", ["", "- 1\n", "a: [", "study: x\x00"])
def test_files_that_are_no_study(tmp_path: Path, text: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"study\.yaml"):
        load_study(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        load_study(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "text", ["? [a]\n: b\n", "study: 2020-13-45\n", "seeds: !!int x\n", "seeds: [" + "9" * 5000 + "]\n"]
)
def test_values_that_yaml_cannot_make(tmp_path: Path, text: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match="not valid YAML"):
        load_study(path)


def test_merge_keys_work_and_may_be_overridden(content: dict, tmp_path: Path) -> None:
    content["arms"] = {}
    text = yaml.safe_dump(content).replace(
        "arms: {}\n",
        "arms:\n  baseline: &exact {estimator: exact, schedule: native}\n  jagg: {<<: *exact, estimator: jagg}\n"
        "  ablation: {<<: *exact, estimator: endpoint_only}\n",
    )
    path = tmp_path / "study.yaml"
    path.write_text(text)
    arms = load_study(path).arms
    assert [arms[name].estimator for name in ("baseline", "jagg", "ablation")] == ["exact", "jagg", "endpoint_only"]


def test_a_fault_names_the_keys_of_the_file_alone(content: dict, tmp_path: Path) -> None:
    content["algorithms"]["dancegrpo"]["eta"] = -1
    content["algorithms"]["dancegrpo"]["noise_level"] = 0.7
    content["arms"]["jagg"]["routing"] = {"jagg_frac": 1.5}
    del content["algorithms"]["flow_grpo_fast"]["clip_range"]
    lines = [line.removeprefix("  got:").strip() for line in fault(content, tmp_path).splitlines()]
    assert "algorithms.dancegrpo.noise_level: unknown key" in lines
    assert "algorithms.flow_grpo_fast.clip_range: Field required" in lines
    for key in ("algorithms.dancegrpo.eta", "arms.jagg.routing.jagg_frac"):
        assert any(line.startswith(f"{key}: Input should be ") for line in lines), key


@pytest.mark.parametrize("results", ["", "my results", "a'b", "out{x}", "$HOME", "a\x00b"])
def test_a_results_folder_that_no_shell_command_could_hold(content: dict, tmp_path: Path, results: str) -> None:
    content["results"] = results
    assert "results: " in fault(content, tmp_path)


def test_a_seed_that_no_table_could_hold(content: dict, tmp_path: Path) -> None:
    content["seeds"] = [2**63]
    assert "seeds.0" in fault(content, tmp_path)
