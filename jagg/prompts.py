"""Prompt sets: where they come from, how they are split, how they are read."""

import json
import random
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from jagg.config import EmbeddedPrompts, FilePrompts, HPDv2Prompts, Study, canonical_json
from jagg.errors import InputError
from jagg.records import read_json, text_sha256, write_json
from jagg.streams import stream_seed

SPLITS = ("train", "evaluation")
_SAFE_ID = re.compile(r"[A-Za-z0-9_-]+")
HPDV2_STYLES = ("anime", "concept-art", "paintings", "photo")


@dataclass(frozen=True)
class Prompt:
    """One prompt; `group` is its style, where the source has styles."""

    id: str
    text: str
    group: str


def build_prompts(study: Study) -> dict[str, list[Prompt]]:
    """The disjoint training and evaluation prompts of a study.

    Raises:
        InputError: the source cannot be read or holds too few prompts.
    """
    source = study.prompts.source
    if isinstance(source, EmbeddedPrompts):
        evaluation, train = _embedded(study)
    elif isinstance(source, HPDv2Prompts):
        evaluation, train = _hpdv2(source)
    else:
        evaluation, train = _file(source, study.prompts.evaluation)
    return {
        "evaluation": _first(evaluation, study.prompts.evaluation, "prompts.evaluation"),
        "train": _first(train, study.prompts.train, "prompts.train"),
    }


def write_prompts(path: Path, prompts: list[Prompt]) -> None:
    """Write one split as JSON."""
    write_json(path, [asdict(prompt) for prompt in prompts])


def read_prompts(path: Path) -> list[Prompt]:
    """Read a prompts file: a JSON list of {"id", "text", "group"}, group may be missing.

    Raises:
        InputError: the file is damaged, an entry lacks a field, or an id stands twice.
    """
    content = read_json(path)
    form = 'a list of {"id": ..., "text": ...}'
    if not isinstance(content, list) or not content:
        raise InputError("not a prompts file", where=path, expected=form, got=type(content).__name__)
    prompts = []
    for number, entry in enumerate(content):
        if not isinstance(entry, dict) or not all(isinstance(entry.get(field), str) for field in ("id", "text")):
            raise InputError("not a prompts file", where=f"{path}, entry {number}", expected=form, got=entry)
        if not _SAFE_ID.fullmatch(entry["id"]):
            raise InputError(
                "a prompt id cannot be part of a file name",
                where=f"{path}, entry {number}",
                expected="letters, digits, `_` and `-`",
                got=entry["id"],
            )
        prompts.append(Prompt(entry["id"], entry["text"], str(entry.get("group", ""))))
    ids = [prompt.id for prompt in prompts]
    twice = sorted({name for name in ids if ids.count(name) > 1}) if len(set(ids)) < len(ids) else []
    if twice:
        raise InputError("prompt ids stand twice", where=path, expected="distinct ids", got=", ".join(twice))
    return prompts


def prompts_sha256(prompts: list[Prompt]) -> str:
    """Hash of ids and texts, whatever their order."""
    return text_sha256(canonical_json({prompt.id: prompt.text for prompt in prompts}))


def _first(prompts: list[Prompt], count: int, key: str) -> list[Prompt]:
    if len(prompts) < count:
        raise InputError(
            "the prompt source holds too few prompts", where=key, expected=f"at most {len(prompts)}", got=count
        )
    return prompts[:count]


def _embedded(study: Study) -> tuple[list[Prompt], list[Prompt]]:
    from jagg.pretrain.captions import all_captions, base_captions

    prompts = [Prompt(f"caption-{i:04d}", c.text, c.shape) for i, c in enumerate(all_captions())]
    base = prompts[: len(base_captions())]
    random.Random(stream_seed("prompts", study.seed)).shuffle(base)
    # A caption with size or position added stays on the side of its base caption, so no scene is on both sides.
    evaluation = base[: study.prompts.evaluation]
    held_out = {prompt.text for prompt in evaluation}
    further = [
        prompt
        for prompt, caption in zip(prompts, all_captions())
        if (caption.size or caption.position) and replace(caption, size=None, position=None).text not in held_out
    ]
    random.Random(stream_seed("further prompts", study.seed)).shuffle(further)
    return evaluation, base[study.prompts.evaluation :] + further


def _hpdv2(source: HPDv2Prompts) -> tuple[list[Prompt], list[Prompt]]:
    evaluation: list[Prompt] = []
    train: list[Prompt] = []
    for style in HPDV2_STYLES:
        texts = json.loads(_hub_file(source, f"benchmark/{style}.json").read_text(encoding="utf-8"))
        prompts = [Prompt(f"{style}-{number:04d}", text, style) for number, text in enumerate(texts)]
        evaluation += prompts[: source.per_style]
        train += prompts[source.per_style :]
    return evaluation, train


def _hub_file(source: HPDv2Prompts, name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(source.repo, name, repo_type="dataset", revision=source.revision))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise InputError(
            "a dataset of the hub is neither in the local cache nor reachable",
            where="prompts.source",
            expected=f"{source.repo} at {source.revision}, file {name}",
            got=f"{type(error).__name__}: {str(error).splitlines()[0]}",
            fix="download it once on a machine with network (hf download), or set HF_HOME to a cache that holds it",
        ) from error


def _file(source: FilePrompts, num_evaluation: int) -> tuple[list[Prompt], list[Prompt]]:
    path = Path(source.path)
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "cannot read the prompts", where=path, expected="one prompt a line, UTF-8", got=error
        ) from error
    texts = [line for line in lines if line]
    if len(set(texts)) < len(texts):
        twice = sorted({text for text in texts if texts.count(text) > 1})
        raise InputError("prompts stand twice", where=path, expected="distinct prompts", got="; ".join(twice[:5]))
    prompts = [Prompt(f"line-{number:04d}", text, "") for number, text in enumerate(texts)]
    return prompts[:num_evaluation], prompts[num_evaluation:]
