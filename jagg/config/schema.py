"""The configuration's JSON schema, and the table of every key in configs/README.md."""

import json
from typing import Any

from jagg.config.study import Study


def study_schema() -> str:
    """The JSON schema of a study file, as text; `workflow/schemas/study.schema.json` is kept equal to it."""
    return json.dumps(Study.model_json_schema(), indent=2, sort_keys=True) + "\n"


def key_reference() -> str:
    """Markdown tables of every key, section by section; configs/README.md is kept equal to it."""
    schema = Study.model_json_schema()
    parts = [_section("Study (top level)", schema)]
    parts += [_section(name, definition) for name, definition in schema["$defs"].items() if "properties" in definition]
    return "\n".join(parts)


def _section(name: str, definition: dict[str, Any]) -> str:
    lines = [f"### {name}", "", definition.get("description", ""), "", "| key | type | default | meaning |"]
    lines.append("| --- | --- | --- | --- |")
    required = definition.get("required", ())
    for key, field in definition["properties"].items():
        default = "required" if key in required else f"`{json.dumps(field.get('default'))}`"
        if "default" not in field and key not in required:
            default = "see section"
        lines.append(f"| `{key}` | {_type(field)} | {default} | {field.get('description', '')} |")
    return "\n".join(lines) + "\n"


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return field["$ref"].rpartition("/")[2]
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field or "oneOf" in field:
        return " or ".join(_type(option) for option in field.get("anyOf") or field["oneOf"])
    if field.get("type") == "array":
        items = field.get("items") or {}
        return f"list of {_type(items)}" if items else "list"
    if field.get("type") == "object" and "additionalProperties" in field:
        return f"name -> {_type(field['additionalProperties'])}"
    return str(field.get("type", "any"))
