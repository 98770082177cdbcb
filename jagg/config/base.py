"""What every section of a study's configuration shares: frozen models, no unknown keys, safe names."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$", max_length=64)]
"""A name that becomes a folder, a table value and an MLflow tag: letters, digits, `_` and `-`."""

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0.0)]


class Section(BaseModel):
    """A frozen part of the configuration; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def resolve(value: "float | dict[str, float]", name: str) -> float:
    """The value for `name`, where a setting is either one number or a mapping name -> number."""
    return value[name] if isinstance(value, dict) else value
