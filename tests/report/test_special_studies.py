"""Reports of studies that do not compare two methods: sweeps, schedules, and a probe of the reference alone."""

import csv
import re
from pathlib import Path

import pytest
from matplotlib.collections import FillBetweenPolyCollection
from simulated_probes import falling, write_probes
from simulated_study import only, study_like, write_runs

from jagg.config import Study
from jagg.keys import StudyPaths
from jagg.report import build_report
from jagg.report.data import read_study
from jagg.report.figures.curves import difference_curves
from jagg.report.style import COLOURS, PANEL_WIDTH
from jagg.report.tables import aggregate
from jagg.report.traceable_values import mismatches
from jagg.report.tradeoffs import is_falsification, tradeoffs

ONE_CELL = {"backbones": ["flux"], "algorithms": ["dancegrpo"], "scorers": ["hpsv2"]}


def reported(study: Study) -> tuple[str, StudyPaths]:
    """The words of a study's report, and its files; every number was held against its table."""
    paths = write_runs(study)
    if study.probe is not None:
        write_probes(study, falling)
    aggregate(study, paths)
    build_report(study, paths)
    assert mismatches(paths.report, paths.root) == []
    page = re.sub(r"<svg.*?</svg>|<style>.*?</style>", "", paths.report.read_text(encoding="utf-8"), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", page.replace("</td>", " ").replace("</th>", " ")).split()), paths


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, str, StudyPaths]:
    study = only(study_like("sweep_frac", tmp_path_factory.mktemp("sweep")), **ONE_CELL)
    return study, *reported(study)


def test_a_sweep_shows_its_arms_in_order_with_the_reference_first(sweep: tuple[Study, str, StudyPaths]) -> None:
    study, _, paths = sweep
    arms = ["baseline", "frac_00", "frac_02", "frac_04", "frac_06", "frac_08", "jagg_full"]
    assert list(study.arms) == list(read_study(study, paths).colours) == arms
    page = paths.report.read_text(encoding="utf-8")
    verdicts = page[page.index('id="verdict"') : page.index('id="differences"')]
    assert re.findall(r"<h3><span class=.arm.>.*?</span>(\w+)</span>", verdicts) == arms[1:]
    assert len(set(read_study(study, paths).colours.values())) == len(arms) <= len(COLOURS)


@pytest.mark.parametrize(
    ("name", "cost"), [("pareto", "backward_passes_per_trajectory"), ("time-pareto", "step_time_ratio")]
)
def test_the_pareto_figure_has_every_arm_with_its_cost(
    sweep: tuple[Study, str, StudyPaths], name: str, cost: str
) -> None:
    with sweep[2].figure(f"{name}.csv").open(newline="") as file:
        rows = {row["arm"]: row for row in csv.DictReader(file)}
    assert rows.keys() == set(sweep[0].arms)
    costs = [float(rows[arm][cost]) for arm in sweep[0].arms if arm != "baseline"]
    assert costs == sorted(set(costs), reverse=True)
    assert (rows["baseline"]["difference"], rows["baseline"]["verdict"]) == ("0", "reference")
    for row in (rows[arm] for arm in rows if arm != "baseline"):
        assert float(row["ci_low"]) < float(row["difference"]) < float(row["ci_high"])


def test_a_sweep_in_words_follows_from_its_verdicts(sweep: tuple[Study, str, StudyPaths]) -> None:
    study, text, paths = sweep
    data = read_study(study, paths)
    found = tradeoffs(data)
    assert found["has_margins"]
    equivalent = {row["arm"] for row in data.last_differences() if row["verdict"] == "equivalent"}
    assert {entry["arm"] for entry in found["everywhere"]} == equivalent
    assert equivalent
    named = ", ".join(f"{arm} (1 of 1)" for arm in sorted(equivalent))
    assert f"Equivalent to baseline in each of its comparisons (cells × metrics): {named}." in text
    assert "Falsification run: jagg_full approximates every window (jagg_frac = 1)" in text
    for row in data.differences:
        row["verdict"] = "not-estimable"
    nothing = tradeoffs(data)
    assert (nothing["everywhere"], nothing["nowhere"]) == ([], [])
    assert [entry["not_estimable"] for entry in nothing["not_estimable"]] == [1] * 6
    for row in data.differences:
        row["difference"] = 0.0
    same = tradeoffs(data)
    assert (len(same["identical"]), same["not_estimable"]) == (6, [])


def test_bands_of_many_arms_become_bars(
    sweep: tuple[Study, str, StudyPaths], finished: tuple[Study, StudyPaths]
) -> None:
    many, few = (difference_curves(read_study(study, paths)) for study, paths in ((sweep[0], sweep[2]), finished))
    assert "Arms are set side by side" in many.caption
    assert "Arms are set side by side" not in few.caption
    for plot, filled in ((many, 0), (few, 2)):
        axis = next(iter(plot.panels.values())).axes[0]
        assert sum(isinstance(part, FillBetweenPolyCollection) for part in axis.collections) == filled


def test_the_falsification_run_is_the_arm_that_approximates_every_window(tmp_path: Path) -> None:
    for name, arms in (("sweep_frac", ["jagg_full"]), ("sweep_window", ["jagg"]), ("lean", [])):
        study = study_like(name, tmp_path)
        whole = type("Whole", (), {"study": study, "reference": study.comparison.reference})()
        assert [arm for arm in study.arms if is_falsification(whole, arm)] == arms, name


def test_schedules_are_shown_by_what_they_cost(tmp_path: Path) -> None:
    study = only(study_like("lean", tmp_path), **ONE_CELL)
    text, paths = reported(study)
    assert "jagg_retain jagg retain 0.700× 0.500×" in text
    assert "reweight exact reweight 1.000× 0.500×" in text
    with paths.figure("cost.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["quantity"] for row in rows} == {"backward_passes", "forward_passes", "update_s", "step_s"}
    for row in rows:
        times = row["quantity"] in ("update_s", "step_s")
        assert bool(row["ratio_low"] and row["ratio_high"]) is times
    svg = paths.figure("cost-step-time.svg").read_text()
    (step,) = (row for row in rows if (row["quantity"], row["arm"]) == ("step_s", "jagg_retain"))
    assert f"{float(step['ratio']):.3g} [{float(step['ratio_low']):.3g}, {float(step['ratio_high']):.3g}]" in svg


def test_a_study_of_the_reference_alone_says_so_and_leads_with_what_it_measured(tmp_path: Path) -> None:
    whole = study_like("probe_stress", tmp_path, seeds=[0, 1])
    study = only(whole, backbones=["flux_100", "flux_1000"], algorithms=["dancegrpo"], scorers=["hpsv2"])
    text, paths = reported(study)
    page = paths.report.read_text(encoding="utf-8")
    assert "There is no other arm to compare with baseline, so this page holds no verdict on an arm" in text
    assert "What this study measures stands under Gradient quality." in text
    headings = re.findall(r"<section id=\"(\w+)\">", page)
    assert headings == ["verdict", "quality", "cost", "training", "images", "limits", "what", "intervals", "versions"]
    assert re.findall(r'<li><a href="#(\w+)">', page[: page.index("</nav>")]) == headings
    assert page.count('id="figure-gradient-stress"') == 1
    assert {path.name for path in paths.figure("").glob("gradient-stress-flux_*.svg")} == {
        "gradient-stress-flux_100-dancegrpo.svg",
        "gradient-stress-flux_1000-dancegrpo.svg",
    }
    assert not list(paths.figure("").glob("pareto*"))


def test_legends_and_panels_are_no_wider_than_a_phone(sweep: tuple[Study, str, StudyPaths]) -> None:
    for path in sweep[2].figure("").glob("*.svg"):
        width = re.search(r'viewBox="0 0 ([\d.]+)', path.read_text())
        assert width
        assert float(width[1]) == pytest.approx(72 * PANEL_WIDTH)
