"""A registry of claims: what was said, about which models, and the test that it must stand."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from jagg.config.base import Fraction, Name, PositiveFloat, PositiveInt, Section
from jagg.config.loader import load_section
from jagg.errors import InputError


class Published(Section):
    """A number as its source prints it."""

    what: str = Field("", description="What the number is.")
    value: str = Field(description="The number, as printed.")
    n: int | None = Field(None, ge=1, description="Training seeds behind it; null: not stated or not of training.")


class Scope(Section):
    """What a claim is about; an empty list is everything that the study has."""

    models: tuple[str, ...] = Field((), description="Repository names of models; empty: no model in particular.")
    algorithms: tuple[Name, ...] = Field((), description="Names of the study's algorithms.")
    metrics: tuple[Name, ...] = Field((), description="Names of the study's metrics.")
    setting: dict[str, float | bool | str] = Field(
        default_factory=dict,
        description="Settings of the algorithm, and the arm's jagg_frac, that a cell must have to be counted.",
    )


class _Paired(Section):
    arm: Name = Field(description="Arm that the claim is about.")
    reference: Name = Field("baseline", description="Arm that it is compared with.")

    @model_validator(mode="after")
    def _two_arms(self) -> "_Paired":
        if self.arm == self.reference:
            raise ValueError(f"reference: expected an arm other than {self.arm}, got the same")
        return self


class _Region(Section):
    low: float | None = Field(None, description="Lower end of the values that the claim allows; null: none.")
    high: float | None = Field(None, description="Upper end of the values that the claim allows; null: none.")

    @model_validator(mode="after")
    def _not_empty(self) -> "_Region":
        if self.low is None and self.high is None:
            raise ValueError("low, high: expected at least one of them, got neither")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low: expected at most high = {self.high}, got {self.low}")
        return self


class Difference(_Paired):
    """Mean over seeds of score(arm) - score(reference), in every cell and metric of the scope (math.md 6)."""

    estimand: Literal["difference"]
    relation: Literal["equivalent", "non-inferior", "superior", "inferior"] = Field(
        description="What the claim says of every difference; the first two need a margin."
    )
    margin: PositiveFloat | dict[Name, PositiveFloat] | None = Field(
        None, description="Margin in raw units, one or metric -> margin; null: the one that the table holds."
    )
    steps: Literal["last", "all"] = Field("last", description="At the last checkpoint, or at each after step 0.")


NonNegative = Annotated[float | None, Field(ge=0.0)]


class Passes(_Paired, _Region):
    """Counted backward passes: exact, or a mean over seeds where the algorithm draws its windows."""

    estimand: Literal["passes"]
    low: NonNegative = Field(None, description="Lower end of the counts or ratios that the claim allows; null: none.")
    high: PositiveFloat | None = Field(None, description="Upper end of them; null: none.")
    quantity: Literal["per_trajectory", "reduction", "window_reduction"] = Field(
        description="per_trajectory: of the arm; reduction: reference over arm; window_reduction: the same inside a "
        "window that the arm approximates."
    )


class Time(_Paired, _Region):
    """Mean log ratio of training times, arm over reference, paired by seed; `low` and `high` are ratios."""

    estimand: Literal["time"]
    low: NonNegative = Field(None, description="Lower end of the ratios that the claim allows; null: none.")
    high: PositiveFloat | None = Field(None, description="Upper end of them; null: none.")
    stage: Literal["step", "update"] = Field(description="The whole training step, or its update.")


class TimeOrder(_Paired):
    """The time ratio arm over reference is lower under one algorithm than under another."""

    estimand: Literal["time_order"]
    stage: Literal["step", "update"] = Field(description="The whole training step, or its update.")
    lower: Name = Field(description="Algorithm under which the ratio is said to be lower.")
    higher: Name = Field(description="Algorithm under which it is said to be higher.")


class LateChange(_Paired):
    """From some checkpoint on to the last, the reference's score falls while the arm's rises."""

    estimand: Literal["late_change"]


class WindowQuality(_Region):
    """A column of gradient_quality.csv in some windows; rollouts are the replicates of this quantity."""

    estimand: Literal["window_quality"]
    column: Literal[
        "cosine_mean", "fraction_above_threshold", "norm_ratio_mean", "relative_error_mean", "velocity_residual_mean"
    ] = Field(description="Column of the table.")
    estimator: Name = Field("jagg", description="Gradient estimator.")
    split: Literal["calibration", "holdout"] = Field("holdout", description="Rollouts that count.")
    windows: tuple[int, ...] = Field((), description="Windows, 0 is the noisiest, -1 the last; empty: see `share`.")
    share: Fraction = Field(1.0, description="Of the windows in order, the first part: window / windows < share.")
    models: tuple[str, ...] = Field((), description="Published models that these numbers are of; empty: all.")
    only_below: dict[str, PositiveFloat] = Field(
        default_factory=dict, description="Column -> bound: windows that do not stay below it do not count."
    )


class WindowOrder(Section):
    """The mean cosine of the first window is above that of the last."""

    estimand: Literal["window_order"]
    estimator: Name = Field("jagg", description="Gradient estimator.")
    split: Literal["calibration", "holdout"] = Field("holdout", description="Rollouts that count.")


class WindowSweep(_Paired):
    """Arms like `arm`, or algorithms, differ in the window W alone: the reduction of passes over W is one number."""

    estimand: Literal["window_sweep"]
    tolerance: PositiveFloat = Field(0.1, description="Largest relative spread that still counts as proportional.")


class SameStart(_Paired):
    """At the first training step, from equal weights and noise, two arms have the same loss and gradient norm."""

    estimand: Literal["same_start"]
    tolerance: float = Field(0.0, ge=0.0, description="Largest relative difference; 0 is bitwise.")


class SeedCoverage(Section):
    """Every metric, checkpoint, cell and arm has its interval, from enough seeds."""

    estimand: Literal["seed_coverage"]
    min_seeds: PositiveInt = Field(description="Fewest seeds of a row.")


class TableCoverage(Section):
    """A table has rows, and these columns are filled in all of them."""

    estimand: Literal["table_coverage"]
    table: Literal["backward_passes.csv", "gradient_quality.csv"] = Field(description="The table.")
    columns: tuple[str, ...] = Field(min_length=1, description="Columns that must hold a value in every row.")
    splits: tuple[Name, ...] = Field((), description="Values of the column `split` that must all occur.")
    estimators: tuple[Name, ...] = Field((), description="Rows of these estimators count; empty: all rows.")


class Ledger(Section):
    """Counted backward passes are those of the closed form in every run."""

    estimand: Literal["ledger"]


class FractionSweep(Section):
    """Enough arms of one estimator that differ in jagg_frac alone, all evaluated at the last checkpoint."""

    estimand: Literal["fraction_sweep"]
    estimator: Name = Field("jagg", description="Gradient estimator.")
    min_fractions: PositiveInt = Field(description="Fewest distinct values of jagg_frac above 0.")


class Formula(Section):
    """A statement about the method that no table of results can show."""

    estimand: Literal["formula"]
    held_by: str = Field(description="Where the statement is held, or why nothing here holds it.")


Test = Annotated[
    Difference | Passes | Time | TimeOrder | LateChange | WindowQuality | WindowOrder | WindowSweep | SameStart
    | SeedCoverage | TableCoverage | Ledger | FractionSweep | Formula,
    Field(discriminator="estimand"),
]  # fmt: skip


class Claim(Section):
    """One claim, and the tests that it must stand together."""

    id: Name = Field(description="Short name, distinct among all claims of an audit.")
    statement: str = Field(min_length=1, description="What is claimed, in one sentence.")
    scope: Scope = Scope()
    published: tuple[Published, ...] = Field((), description="The source's own numbers.")
    tests: tuple[Test, ...] = Field(min_length=1, description="All must hold.")
    counterpart: tuple[Test, ...] = Field(
        (), description="Tests on other models than the scope's; empty: the same tests."
    )


class Registry(Section):
    """A file of claims from one source."""

    source: str = Field(min_length=1, description="Where the claims stand.")
    claims: tuple[Claim, ...] = Field(min_length=1, description="The claims.")


def load_claims(paths: Iterable[Path]) -> list[tuple[str, Claim]]:
    """(source, claim) of every claim in some registries, in order.

    Raises:
        InputError: a file is missing or at fault, or two claims have one id.
    """
    found = [(registry.source, claim) for registry in map(_registry, paths) for claim in registry.claims]
    ids = [claim.id for _, claim in found]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice or not found:
        raise InputError(
            "claims cannot be told apart" if twice else "no claims",
            where="the registries",
            expected="one claim an id" if twice else "at least one file of claims",
            got=", ".join(twice) or "none",
        )
    return found


def _registry(path: Path) -> Registry:
    return load_section(path, Registry, "claims")
