"""From a YAML file to a checked `Study`, with messages that name the key."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from jagg.config.study import Study
from jagg.errors import InputError


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML keeps the last of two equal keys without a word; here they are an error."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Before merge keys (<<) are resolved, since a key may well stand for a merged one.
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key.value!r} stands twice", problem_mark=key.start_mark)
            seen.add((key.tag, str(key.value)))
        return node


def load_study(path: str | Path) -> Study:
    """Read and check a study file.

    Raises:
        InputError: the file is missing, is not YAML, or its content is at fault; every fault is listed.
    """
    return load_section(path, Study, "configuration")


Content = TypeVar("Content", bound=BaseModel)


def load_section(path: str | Path, model: type[Content], what: str) -> Content:
    """Read a YAML or JSON file and check it as a `model`; `what` names it in messages.

    Raises:
        InputError: the file is missing, is not YAML, or its content is at fault; every fault is listed.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=_UniqueKeyLoader)
    except OSError as error:
        raise InputError(f"cannot read the {what}", where=path, got=error.strerror) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{what} is not a text file", where=path, expected="UTF-8", got=str(error)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: JSON, or a number or date of YAML
        raise InputError(f"{what} is not valid YAML or JSON", where=path, got=str(error).replace("\n", " ")) from error
    if not isinstance(content, dict):
        raise InputError(
            f"{what} is not a mapping", where=path, expected="key: value lines", got=type(content).__name__
        )
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise InputError(
            f"{error.error_count()} fault(s) in the {what}",
            where=path,
            got="\n            ".join(_describe(item, content, model) for item in error.errors()),
            fix="see configs/README.md for every key",
        ) from error


def _describe(item: Any, content: Any, model: type[BaseModel]) -> str:
    key = ".".join(_key_path(item["loc"], content, item["type"])) or "(whole file)"
    if item["type"] == "extra_forbidden":
        return f"{key}: unknown key" + _suggestion(str(item["loc"][-1]), _all_keys(model))
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] in ("value_error", "missing"):
        return f"{key}: {message}"
    choices = re.findall(r"'([^']+)'", item["ctx"]["expected"]) if item["type"] == "literal_error" else []
    return f"{key}: {message}, got {item['input']!r}" + _suggestion(str(item["input"]), choices)


def _key_path(place: tuple[int | str, ...], content: Any, fault: str) -> Iterator[str]:
    """The keys of the file that lead to a fault, without the names that pydantic puts between them for a choice."""
    for depth, part in enumerate(place, start=1):
        is_key = part in content if isinstance(content, dict) else isinstance(content, list) and isinstance(part, int)
        if is_key or (fault == "missing" and depth == len(place)):
            yield str(part)
        if is_key:
            content = content[part] if isinstance(content, dict) or int(part) < len(content) else None


def _suggestion(name: str, known: Iterable[str]) -> str:
    """The nearest known name; a key that is known elsewhere only is not told to be itself."""
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {near[0]!r}?" if near and near[0] != name else ""


def _all_keys(model: type[BaseModel]) -> set[str]:
    schema = model.model_json_schema()
    keys = set(schema["properties"])
    for definition in schema.get("$defs", {}).values():
        keys |= set(definition.get("properties", ()))
    return keys


def canonical_json(value: BaseModel | dict) -> str:
    """One text for equal content: sorted keys, no spaces; used for hashes and workflow parameters."""
    content = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
