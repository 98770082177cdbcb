"""Claims about the gradient itself, by window (gradient_quality.csv); rollouts are the replicates here."""

import math

from jagg.claims import registry
from jagg.claims.context import Case, cell_name
from jagg.claims.evidence import All, Part, Quantity
from jagg.claims.results import NotTestableError, Row
from jagg.stats.join import Cell

_TABLE = "gradient_quality.csv"


def window_quality(test: registry.WindowQuality, case: Case) -> Part:
    """A column lies where the claim says, in every counted window of every cell and checkpoint."""
    parts = []
    for cell in case.cells(test.estimator):
        if test.models and not _is_one_of(case, cell, test.models):
            continue
        for windows in _by_checkpoint(case, cell, test.estimator, test.split):
            for row in _counted(test, windows):
                parts.append(_quantity(test, cell, row))
    if not parts:
        bounds = ", ".join(f"{column} below {bound:g}" for column, bound in test.only_below.items())
        raise NotTestableError(
            f"{_TABLE} has no {test.split} window of {test.estimator}" + (f" with {bounds}" if bounds else "")
        )
    return All(tuple(parts))


def _is_one_of(case: Case, cell: Cell, models: tuple[str, ...]) -> bool:
    """Numbers of one published model are not asked of another; other models are asked of all."""
    model = case.results.model(cell[0])
    return model not in case.scope.models or model in models


def _by_checkpoint(case: Case, cell: Cell, estimator: str, split: str) -> list[list[Row]]:
    """Windows of a cell, noisiest first, one list a checkpoint."""
    found: dict[int, list[Row]] = {}
    for row in case.results.rows(_TABLE):
        place = (row["backbone"], row["algorithm"], row["estimator"], row["split"])
        if place == (*cell, estimator, split):
            found.setdefault(row["step"], []).append(row)
    return [sorted(found[step], key=lambda row: row["window"]) for step in sorted(found)]


def _counted(test: registry.WindowQuality, windows: list[Row]) -> list[Row]:
    if test.windows:
        count = len(windows)
        chosen = [windows[place] for place in test.windows if -count <= place < count]
    else:
        chosen = [row for place, row in enumerate(windows) if place / len(windows) < test.share]
    return [
        row
        for row in chosen
        if all(row[column] is not None and row[column] < bound for column, bound in test.only_below.items())
    ]


def _quantity(test: registry.WindowQuality, cell: Cell, row: Row) -> Quantity:
    name = f"{cell_name(cell)}, step {row['step']}, window {row['window']}: {test.column} of {test.estimator}"
    low = -math.inf if test.low is None else test.low
    high = math.inf if test.high is None else test.high
    return _mean(name, row, test.column, low, high)


def _mean(name: str, row: Row, column: str, low: float, high: float) -> Quantity:
    n, mean = row["num_rollouts"] or 0, row[column]
    sd = _spread(row, column)
    reason = "the table has no value" if mean is None else "the table has no spread of it" if sd is None else ""
    if not reason and (n < 2 or sd == 0):
        reason = f"{n} rollout(s) have no spread"
    error = None if reason or sd is None else sd / math.sqrt(n)
    pointers = ((_TABLE, row["#"]),)
    return Quantity(name, mean, low, high, error, n - 1, pointers=pointers, reason=reason, num_rollouts=n)


def _spread(row: Row, column: str) -> float | None:
    """Standard deviation over rollouts; of a share it follows from the share."""
    if column == "fraction_above_threshold":
        share = row[column]
        return None if share is None or share in (0.0, 1.0) else math.sqrt(share * (1 - share))
    spread: float | None = row.get(column.removesuffix("_mean") + "_sd")
    return spread


def window_order(test: registry.WindowOrder, case: Case) -> Part:
    """The first window's mean cosine is above the last's; their rollouts are taken as independent (Welch)."""
    parts = []
    for cell in case.cells(test.estimator):
        for windows in _by_checkpoint(case, cell, test.estimator, test.split):
            if len(windows) < 2:
                continue
            first, last = (_mean("", row, "cosine_mean", 0.0, math.inf) for row in (windows[0], windows[-1]))
            name = f"{cell_name(cell)}, step {windows[0]['step']}: cosine of the first window - that of the last"
            parts.append(_welch(name, first, last))
    if not parts:
        raise NotTestableError(f"{_TABLE} has no {test.split} windows of {test.estimator} to put in order")
    return All(tuple(parts))


def _welch(name: str, first: Quantity, last: Quantity) -> Quantity:
    pointers = first.pointers + last.pointers
    if first.mean is None or last.mean is None or not first.standard_error or not last.standard_error:
        return Quantity(name, None, reason=first.reason or last.reason or "no spread", pointers=pointers)
    variances = (first.standard_error**2, last.standard_error**2)
    degrees = sum(variance**2 / (part.df or 1.0) for variance, part in zip(variances, (first, last)))
    df = sum(variances) ** 2 / degrees
    error = math.sqrt(sum(variances))
    n = min(first.num_rollouts or 0, last.num_rollouts or 0)
    return Quantity(name, first.mean - last.mean, 0.0, math.inf, error, df, pointers=pointers, num_rollouts=n)
