"""Prompt sets: disjoint, stable under their counts, and checked when read."""

import json
from pathlib import Path

import pytest

from jagg.config import FilePrompts, load_study
from jagg.errors import InputError
from jagg.prompts import Prompt, build_prompts, prompts_sha256, read_prompts, write_prompts

STUDY = load_study(Path(__file__).parents[2] / "configs" / "small.yaml")


def scene(text: str) -> tuple[str, ...]:
    """Shape, colour and background of a caption, whatever else it says."""
    words = text.split(",", maxsplit=1)[0].split()
    return tuple(word for word in words if word not in {"a", "on", "background", "small", "large"})


def test_training_and_evaluation_share_no_scene() -> None:
    sets = build_prompts(STUDY)
    train, evaluation = ({scene(prompt.text) for prompt in sets[split]} for split in ("train", "evaluation"))
    assert len(sets["train"]) == STUDY.prompts.train
    assert len(evaluation) == STUDY.prompts.evaluation
    assert not train & evaluation


def test_more_training_prompts_keep_the_evaluation_prompts() -> None:
    more = STUDY.model_copy(update={"prompts": STUDY.prompts.model_copy(update={"train": 200})})
    assert build_prompts(more)["evaluation"] == build_prompts(STUDY)["evaluation"]
    assert build_prompts(more)["train"][: STUDY.prompts.train] == build_prompts(STUDY)["train"]
    assert len({prompt.id for prompt in build_prompts(more)["train"]}) == 200


def test_another_study_seed_draws_other_prompts() -> None:
    other = STUDY.model_copy(update={"seed": 1})
    assert build_prompts(other)["evaluation"] != build_prompts(STUDY)["evaluation"]


def test_too_few_prompts_are_refused_with_the_number_there_is() -> None:
    greedy = STUDY.model_copy(update={"prompts": STUDY.prompts.model_copy(update={"train": 5000})})
    with pytest.raises(InputError, match="at most 864"):
        build_prompts(greedy)


def test_round_trip_and_hash_do_not_depend_on_order(tmp_path: Path) -> None:
    prompts = [Prompt("a", "x", "s"), Prompt("b", "y", "s")]
    write_prompts(tmp_path / "p.json", prompts)
    assert read_prompts(tmp_path / "p.json") == prompts
    assert prompts_sha256(prompts) == prompts_sha256(prompts[::-1])
    assert prompts_sha256(prompts) != prompts_sha256([Prompt("a", "z", "s"), prompts[1]])


@pytest.mark.parametrize(
    "content",
    [[], {}, [{"id": "a"}], [{"id": "a", "text": 1}], [{"id": "../a", "text": "x"}], [{"id": "a", "text": "x"}] * 2],
)
def test_files_that_are_no_prompts(tmp_path: Path, content: object) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"p\.json"):
        read_prompts(path)


def test_prompts_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("one\n\ntwo\nthree\n")
    source = STUDY.prompts.model_copy(
        update={"source": FilePrompts(kind="file", path=str(path)), "train": 1, "evaluation": 2}
    )
    sets = build_prompts(STUDY.model_copy(update={"prompts": source}))
    assert [prompt.text for prompt in sets["evaluation"]] == ["one", "two"]
    assert [prompt.text for prompt in sets["train"]] == ["three"]
    path.write_text("one\none\n")
    with pytest.raises(InputError, match="one"):
        build_prompts(STUDY.model_copy(update={"prompts": source}))
