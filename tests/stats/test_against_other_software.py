"""Every number of the compared tables against scipy, statsmodels and plain loops, none of it made by jagg.stats."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW, ttost_paired
from test_compare import DEFAULT, table

from jagg.records import SCORES
from jagg.stats.compare import Compared, compare_arms
from jagg.stats.costs import COUNTS, TIMES, cost_rows
from jagg.stats.design import Design
from jagg.stats.equal_cost import BUDGETS, equal_cost_rows

CELLS = (("flux", "dancegrpo"), ("qwen_image", "dancegrpo"), ("flux", "flow_grpo_fast"))
ARMS, METRICS, STEPS, SEEDS, PROMPTS = ("baseline", "jagg", "other"), ("hpsv2", "pickscore"), (0, 10, 20), 4, 6
POOLED = ("pooled", "pooled")
PRIMARY, MARGIN, ALPHA = "pickscore", 0.02, 0.1
Matrix = np.ndarray


def planted() -> dict[tuple, Matrix]:
    """(cell, metric, step, arm) -> scores by seed and prompt; arms are equal at step 0."""
    rng = np.random.default_rng(11)
    scores: dict[tuple, Matrix] = {}
    for cell, metric in itertools.product(CELLS, METRICS):
        start = 0.3 + 0.01 * rng.normal(size=(SEEDS, 1)) + 0.05 * rng.normal(size=(1, PROMPTS))
        for step, arm in itertools.product(STEPS, ARMS):
            effect = {"baseline": 0.0, "jagg": 0.012, "other": -0.03}[arm]
            noise = effect + 0.006 * rng.normal(size=(SEEDS, 1)) + 0.01 * rng.normal(size=(SEEDS, PROMPTS))
            scores[cell, metric, step, arm] = start + noise * (step > 0)
    return scores


@pytest.fixture(scope="module")
def raw() -> dict[tuple, Matrix]:
    return planted()


@pytest.fixture(scope="module")
def compared(raw: dict[tuple, Matrix]) -> Compared:
    rows = [
        DEFAULT | {"backbone": cell[0], "algorithm": cell[1], "metric": metric, "step": step, "arm": arm, "seed": seed,
                   "prompt_id": f"p{prompt}", "value": float(value)}
        for (cell, metric, step, arm), values in raw.items()
        for (seed, prompt), value in np.ndenumerate(values)
    ]  # fmt: skip
    assert set(rows[0]) == set(SCORES.names)
    design = Design("baseline", 1 - ALPHA, dict.fromkeys(METRICS, MARGIN), METRICS, PRIMARY)
    return compare_arms(table(rows), design)


def scores_at(raw: dict[tuple, Matrix], row: dict, arm: str, step: int | None = None) -> Matrix:
    """Scores by seed and prompt; of pooled rows the mean over cells."""
    cells = CELLS if row["backbone"] == "pooled" else [(row["backbone"], row["algorithm"])]
    step = row["step"] if step is None else step
    return np.mean([raw[cell, row["metric"], step, arm] for cell in cells], axis=0)


def agree(row: dict, **expected: object) -> None:
    for column, value in expected.items():
        assert row[column] == (None if value is None else pytest.approx(float(value), rel=1e-8, abs=1e-14)), column


def test_paired_columns(raw: dict[tuple, Matrix], compared: Compared) -> None:
    rows = compared.differences().to_pylist()
    assert len(rows) == 2 * len(METRICS) * len(STEPS) * (len(CELLS) + 1)
    for row in rows:
        arm, reference = (scores_at(raw, row, name).mean(axis=1) for name in (row["arm"], "baseline"))
        d = arm - reference
        means = {"mean_arm": arm.mean(), "mean_reference": reference.mean(), "difference": d.mean()}
        agree(row, num_seeds=SEEDS, sign_flip_floor=2 / 2**SEEDS, sign_flip_arrangements=2**SEEDS, **means)
        agree(
            row,
            reference_gain=None
            if row["step"] == 0
            else (scores_at(raw, row, "baseline") - scores_at(raw, row, "baseline", 0)).mean(),
        )
        if row["step"] == 0:
            agree(row, ci_low=None, ci_high=None, p_value=None, p_holm=None, p_equivalence=None, df_crossed=None)
            assert row["verdict"] == "not-estimable"
            continue
        low, high = DescrStatsW(d).tconfint_mean(ALPHA)
        _, p, df = DescrStatsW(d).ttest_mean(0)
        agree(row, ci_low=low, ci_high=high, p_value=p, df=df, standard_error=stats.sem(d), sd_difference=d.std(ddof=1))
        flips = [abs(np.dot(signs, d)) >= abs(d.sum()) - 1e-12 for signs in itertools.product((1, -1), repeat=SEEDS)]
        left_out = [np.delete(d, seed).mean() for seed in range(SEEDS)]
        agree(row, sign_flip_p=np.mean(flips), leave_one_seed_out_low=min(left_out))
        agree(row, leave_one_seed_out_high=max(left_out), seed_correlation=stats.pearsonr(arm, reference)[0])
        welch = CompareMeans(DescrStatsW(arm), DescrStatsW(reference))
        low, high = welch.tconfint_diff(ALPHA, usevar="unequal")
        agree(row, ci_low_unpaired=low, ci_high_unpaired=high, p_unpaired=welch.ttest_ind(usevar="unequal")[1])


def test_claims_of_sameness_and_power(raw: dict[tuple, Matrix], compared: Compared) -> None:
    words = set()
    for row in (row for row in compared.differences().to_pylist() if row["step"] > 0):
        arm, reference = (scores_at(raw, row, name).mean(axis=1) for name in (row["arm"], "baseline"))
        d = arm - reference
        agree(row, p_noninferiority=stats.ttest_1samp(d, -MARGIN, alternative="greater").pvalue)
        agree(row, p_equivalence=ttost_paired(arm, reference, -MARGIN, MARGIN)[0])
        effect = TTestPower().solve_power(nobs=SEEDS, alpha=ALPHA, power=0.8)
        assert row["smallest_detectable"] == pytest.approx(float(np.squeeze(effect)) * d.std(ddof=1), rel=1e-4)
        sd, needed = d.std(ddof=1), row["seeds_needed"]
        assert _equivalence_power(sd, needed) >= 0.8
        assert needed == 2 or _equivalence_power(sd, needed - 1) < 0.8
        low, high = DescrStatsW(d).tconfint_mean(ALPHA)
        inside, above, no_worse, below = low > -MARGIN and high < MARGIN, low > 0, low > -MARGIN, high < 0
        word = (
            "equivalent" if inside else "superior" if above else "non-inferior" if no_worse else
            "inferior" if below else "inconclusive"
        )  # fmt: skip
        assert row["verdict"] == word
        assert (row["p_equivalence"] < ALPHA / 2) == (word == "equivalent")
        words.add(word)
    assert len(words) >= 4


def _equivalence_power(sd: float, n: int) -> float:
    """Two one-sided tests at ALPHA / 2, true difference 0: the normal probability over a fine grid of deviations."""
    quantiles = (np.arange(4000) + 0.5) / 4000
    half = stats.t.ppf(1 - ALPHA / 2, n - 1) * np.sqrt(stats.chi2.ppf(quantiles, n - 1) / (n - 1))
    bound = math.sqrt(n) * MARGIN / sd
    return float(np.maximum(stats.norm.cdf(bound - half) - stats.norm.cdf(half - bound), 0).mean())


def test_crossed_intervals(raw: dict[tuple, Matrix], compared: Compared) -> None:
    for row in (row for row in compared.differences().to_pylist() if row["step"] > 0):
        d = scores_at(raw, row, row["arm"]) - scores_at(raw, row, "baseline")
        n, p = d.shape
        grand, seeds, prompts = d.mean(), d.mean(axis=1), d.mean(axis=0)
        between = p * ((seeds - grand) ** 2).sum(), n * ((prompts - grand) ** 2).sum()
        rest = (((d - grand) ** 2).sum() - sum(between)) / ((n - 1) * (p - 1))
        ms_seeds, ms_prompts = max(between[0] / (n - 1), rest), max(between[1] / (p - 1), rest)
        total = ms_seeds + ms_prompts - rest
        parts = ms_seeds**2 / (n - 1) + ms_prompts**2 / (p - 1) + rest**2 / ((n - 1) * (p - 1))
        df = total**2 / parts
        half = stats.t.ppf(1 - ALPHA / 2, df) * math.sqrt(total / (n * p))
        low, high = DescrStatsW(seeds).tconfint_mean(ALPHA)
        crossed = (grand - half, grand + half, df) if grand - half <= low else (low, high, n - 1)
        agree(row, ci_low_crossed=crossed[0], ci_high_crossed=crossed[1], df_crossed=crossed[2])


def test_families(raw: dict[tuple, Matrix], compared: Compared) -> None:
    rows = compared.differences().to_pylist()
    by_place = {
        (row["arm"], (row["backbone"], row["algorithm"]), row["metric"]): row for row in rows if row["step"] == 20
    }
    others = [metric for metric in METRICS if metric != PRIMARY]
    tiers = {
        "primary": [(POOLED, PRIMARY)],
        "cells": [(cell, PRIMARY) for cell in CELLS],
        "secondary": [(cell, metric) for metric in others for cell in (*CELLS, POOLED)],
    }
    tests = sum(map(len, tiers.values()))
    for arm in ARMS[1:]:
        gate = 0.0
        for family, members in tiers.items():
            tested = [by_place[arm, cell, metric] for cell, metric in members]
            p_values = [
                stats.ttest_rel(*(scores_at(raw, row, name).mean(axis=1) for name in (arm, "baseline"))).pvalue
                for row in tested
            ]
            corrected = np.maximum(multipletests(p_values, method="holm")[1], gate)
            for row, p in zip(tested, corrected):
                d = (scores_at(raw, row, arm) - scores_at(raw, row, "baseline")).mean(axis=1)
                low, high = DescrStatsW(d).tconfint_mean(ALPHA / tests)
                agree(row, p_holm=p, family_size=len(members), family_tests=tests, ci_low_family=low)
                agree(row, ci_high_family=high)
                assert row["family"] == family
            gate = corrected.max()


def test_bands(raw: dict[tuple, Matrix], compared: Compared) -> None:
    for row in compared.curves().to_pylist():
        if row["step"] == 0:
            agree(row, band_low=None, band_high=None)
            continue
        d = (scores_at(raw, row, row["arm"]) - scores_at(raw, row, "baseline")).mean(axis=1)
        low, high = DescrStatsW(d).tconfint_mean(ALPHA / 2)  # two checkpoints can differ
        agree(row, band_low=low, band_high=high, difference=d.mean())


def test_costs_and_differences_at_equal_cost(raw: dict[tuple, Matrix], compared: Compared) -> None:
    rng = np.random.default_rng(3)
    runs = list(itertools.product(CELLS, ARMS, range(SEEDS)))
    each = {
        run: {"trained_steps": 1.0, "backward_passes": 20.0 if run[1] == "baseline" else 14.0,
              "wall_clock_s": float(rng.uniform(1.0, 1.2))}
        for run in runs
    }  # fmt: skip
    spent = {
        run: {budget: {step: cost * step for step in range(21)} for budget, cost in costs.items()}
        for run, costs in each.items()
    }
    for row in equal_cost_rows(compared.joined, spent, ARMS[1:], compared.design):
        cell, step, metric = (row["backbone"], row["algorithm"]), row["step"], row["metric"]
        differences, levels = [], []
        for seed in range(SEEDS):
            both = [each[cell, name, seed][row["budget"]] for name in (row["arm"], "baseline")]
            levels.append(min(both) * step)
            read = []
            for name, cost in zip((row["arm"], "baseline"), both):
                scores = [raw[cell, metric, at, name][seed].mean() for at in STEPS]
                after = next(i for i, at in enumerate(STEPS) if cost * at >= levels[-1] * (1 - 1e-12))
                before = max(0, after - 1)
                share = (levels[-1] / cost - STEPS[before]) / (STEPS[after] - STEPS[before])
                read.append(scores[before] + share * (scores[after] - scores[before]))
            differences.append(read[0] - read[1])
        low, high = DescrStatsW(np.array(differences)).tconfint_mean(ALPHA)
        agree(row, difference=np.mean(differences), ci_low=low, ci_high=high, spent_low=min(levels))
        agree(row, spent_high=max(levels))
    assert {row["budget"] for row in equal_cost_rows(compared.joined, spent, ["jagg"], compared.design)} == set(BUDGETS)
    totals = {
        run: dict.fromkeys(COUNTS, 20 * costs["backward_passes"]) | dict.fromkeys(TIMES, 20 * costs["wall_clock_s"])
        for run, costs in each.items()
    }
    for row in cost_rows(totals, ARMS[1:], compared.design):
        cell = row["backbone"], row["algorithm"]
        pairs = np.array(
            [[totals[cell, name, seed][row["quantity"]] for name in (row["arm"], "baseline")] for seed in range(SEEDS)]
        )
        if row["quantity"] in COUNTS:
            agree(row, ratio=0.7, ratio_low=None, ratio_high=None)
            continue
        logs = DescrStatsW(np.log(pairs[:, 0] / pairs[:, 1]))
        low, high = logs.tconfint_mean(ALPHA)
        agree(row, ratio=math.exp(logs.mean), ratio_low=math.exp(low), ratio_high=math.exp(high))
