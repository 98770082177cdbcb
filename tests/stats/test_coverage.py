"""Simulations through the real code: intervals hold the truth, and false certificates are as rare as declared."""

import math

import numpy as np
import pytest
from planted_scores import planted_scores
from simulate_coverage import SEED_SDS, SHAPES, coverage, coverage_table

from jagg.records import COVERAGE, read_table
from jagg.stats import COVERAGE_FILE
from jagg.stats.compare import compare
from jagg.stats.estimates import mean_over_cells, paired_t

MARGIN = 0.01


def at_most(rate: float, trials: int) -> float:
    """A rate that `trials` with this true rate exceed once in about 700."""
    return rate + 3 * math.sqrt(rate * (1 - rate) / trials)


@pytest.mark.coverage
def test_seeds_are_covered_as_declared_and_pooled_prompts_are_not() -> None:
    """A difference as skewed as an exponential is beyond both intervals at such numbers of seeds: about 90 %."""
    for row in coverage_table(4000):
        if row["shape"] == "normal":
            assert 0.94 <= row["t"] <= 0.96, row
        assert row["crossed"] >= (0.88 if row["shape"] == "one arm skewed" else 0.93), row
        if row["seed_sd"] == "large":
            assert row["prompts_pooled"] < 0.75, row


def test_the_table_that_the_report_shows_has_every_row() -> None:
    kept = read_table(COVERAGE_FILE, COVERAGE).to_pylist()
    assert [(row["num_seeds"], row["shape"], row["seed_sd"]) for row in kept] == [
        (n, shape, size) for n in (3, 5, 10, 20) for shape in SHAPES for size in SEED_SDS
    ]
    assert {row["studies"] for row in kept} == {10_000}


@pytest.mark.coverage
def test_the_table_that_the_report_shows_is_what_the_simulation_gives() -> None:
    """The first row, drawn again to its last study."""
    row = read_table(COVERAGE_FILE, COVERAGE).to_pylist()[0]
    again = coverage(row["num_seeds"], row["shape"], SEED_SDS[row["seed_sd"]], row["studies"])
    assert {name: row[name] for name in again} == again


def test_pooled_prompts_under_cover_and_the_other_intervals_do_not() -> None:
    held = coverage(n=5, shape="normal", seed_sd=1.0, studies=1000)
    assert held["prompts_pooled"] < 0.6
    assert min(held["t"], held["crossed"]) > 0.93


FALSE_WORDS = {
    -MARGIN: ("equivalent", "non-inferior", "superior"),
    0.0: ("superior", "inferior"),
    MARGIN: ("equivalent", "inferior"),
}
"""True difference -> words that are wrong for it; at 0 also with a margin, as a difference is claimed."""


@pytest.mark.coverage
@pytest.mark.parametrize("truth", sorted(FALSE_WORDS))
def test_a_thousand_planted_studies_are_certified_falsely_at_most_as_often_as_declared(truth: float) -> None:
    """Per row at most 2.5 % on a side of the interval, per study at most 5 % by the family-wise words."""
    studies, rng = 1000, np.random.default_rng([7, round(1e4 * (truth + 1))])
    wrong, wrong_by_family, rejected = 0, 0, 0
    for _ in range(studies):
        table = compare(
            planted_scores(rng, truth, num_seeds=4), reference="baseline", optimised_metrics=["hpsv2"],
            margins=dict.fromkeys(("hpsv2", "clipscore"), MARGIN),
        )  # fmt: skip
        rows = [row for row in table.to_pylist() if row["step"] == 10]
        (primary,) = (row for row in rows if row["family"] == "primary")
        wrong += primary["verdict"] in FALSE_WORDS[truth]
        wrong_by_family += any(row["verdict_family"] in FALSE_WORDS[truth] for row in rows)
        rejected += any(row["p_holm"] <= 0.05 for row in rows)
    assert wrong / studies <= at_most(0.05 if truth == 0 else 0.025, studies)
    assert wrong_by_family / studies <= at_most(0.05, studies)
    if truth == 0:
        assert rejected / studies <= at_most(0.05, studies)


def test_cells_that_share_seeds_are_not_independent() -> None:
    """Adding the cells' variances certifies falsely far too often; the mean over cells within a seed does not."""
    rng = np.random.default_rng(3)
    by_seed, by_cell, studies = 0, 0, 1000
    for _ in range(studies):
        cells = rng.normal(size=(4, 1)) + 0.2 * rng.normal(size=(4, 4))
        by_seed += paired_t(cells.mean(axis=1)).p_value < 0.05
        by_cell += mean_over_cells([paired_t(cell) for cell in cells.T]).p_value < 0.05
    assert by_seed / studies <= at_most(0.05, studies)
    assert by_cell / studies > 0.2
