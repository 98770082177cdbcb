"""What the page says of gradient quality follows from the rows: cosines that stay high, fall, or are absent."""

import csv
import re
from pathlib import Path

import pytest
import yaml
from simulated_probes import near_one, write_probes
from simulated_study import only, simulated_study, write_runs

from jagg.config import Study
from jagg.keys import StudyPaths
from jagg.records import GRADIENT_QUALITY, GRADIENT_STRESS, read_table
from jagg.report import build_report
from jagg.report.content import content
from jagg.report.data import read_study
from jagg.report.gradients import jagg_quality, routing_summary, stress_summary
from jagg.report.published import COSINES, ROUTING_THRESHOLD, cosines_in_words
from jagg.report.tables import aggregate
from jagg.report.traceable_values import mismatches, read_shown

ROOT = Path(__file__).parents[2]
FIGURES = {
    "gradient-quality": 1, "gradient-share": 1, "gradient-estimators": 1, "gradient-routing": 1, "gradient-bound": 1,
    "gradient-stress": 1, "gradient-stress-estimators": 1,
}  # fmt: skip


def words(page: str) -> str:
    """What a reader reads of the section."""
    section = page[page.index('id="quality"') : page.index("</section>", page.index('id="quality"'))]
    text = re.sub(r"<svg.*?</svg>", "", section, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", text).split())


@pytest.fixture(scope="module")
def near(probed: tuple[Study, StudyPaths], tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, StudyPaths]:
    """The probed study with cosines near 1, and without stress."""
    probe = probed[0].probe
    assert probe is not None
    calm = probed[0].model_dump(mode="json") | {"probe": probe.model_dump(mode="json") | {"stress": None}}
    study = Study.model_validate(calm | {"results": str(tmp_path_factory.mktemp("near"))})
    paths = write_runs(study)
    write_probes(study, near_one)
    aggregate(study, paths)
    build_report(study, paths)
    return study, paths


def test_cosines_that_fall_are_named_with_cell_and_window(probed: tuple[Study, StudyPaths]) -> None:
    text = words(probed[1].report.read_text(encoding="utf-8"))
    rows = read_table(probed[1].table("gradient_quality.csv"), GRADIENT_QUALITY).to_pylist()
    low = {row["window"] for row in rows if row["estimator"] == "jagg" and row["cosine_mean"] < 0.5}
    assert low == {3, 4}
    assert "The mean cosine falls below 0.5 in 1 of 1 cells." in text
    assert "nothing is learnt" not in text
    named = re.search(r"Below 0.5: (.*?)\. In the worst", text)
    assert named
    assert {int(window) for window in re.findall(r"window (\d+)", named[1])} == low
    lowest = min(row["cosine_mean"] for row in rows if row["estimator"] == "jagg" and row["window"] == 4)
    assert f"lowest {lowest:.3g}" in named[1]
    assert "no rule had to choose" not in text


def test_cosines_that_stay_high_teach_nothing_about_the_limit(near: tuple[Study, StudyPaths]) -> None:
    page = near[1].report.read_text(encoding="utf-8")
    text = words(page)
    assert "No window's mean cosine falls below 0.5 in any cell, so nothing is learnt here" in text
    assert "Below 0.5:" not in text
    assert "no rule had to choose and the optimism is not put to a test" in text
    assert "No window that a rule let through falls below 0.5" in text
    assert "Where the cosine falls" not in text
    assert not list(near[1].figure("").glob("gradient-stress*"))


@pytest.mark.parametrize("situation", ["probed", "near"])
def test_every_number_of_the_section_is_its_tables_number(situation: str, request: pytest.FixtureRequest) -> None:
    _, paths = request.getfixturevalue(situation)
    assert mismatches(paths.report, paths.root) == []
    tables = {shown.table for shown in read_shown(paths.report.read_text(encoding="utf-8"))}
    assert {"tables/gradient_quality.csv", "tables/routing_calibration.csv"} <= tables
    assert ("tables/gradient_stress.csv" in tables) is (situation == "probed")


def test_every_gradient_figure_has_its_numbers(probed: tuple[Study, StudyPaths]) -> None:
    page = probed[1].report.read_text(encoding="utf-8")
    for name, panels in FIGURES.items():
        assert f'id="figure-{name}"' in page
        assert len(list(probed[1].figure("").glob(f"{name}-flux-dancegrpo.svg"))) == panels, name
        with probed[1].figure(f"{name}.csv").open(newline="") as file:
            assert list(csv.DictReader(file)), name


def test_stress_says_where_the_cosine_falls(probed: tuple[Study, StudyPaths]) -> None:
    rows = read_table(probed[1].table("gradient_stress.csv"), GRADIENT_STRESS).to_pylist()
    jagg = [row for row in rows if row["estimator"] == "jagg"]
    (entry,) = stress_summary(read_study(*probed))
    assert entry["worst"] == min(jagg, key=lambda row: row["cosine_mean"])
    assert entry["first_below"] == [(20, 4), (40, 10)]
    text = words(probed[1].report.read_text(encoding="utf-8"))
    assert "The worst window's mean falls below 0.5 from W = 4 at 20 steps, W = 10 at 40 steps." in text
    assert "Lowest by number format: float32" in text
    assert "Where the cosine falls: window length and denoising steps" in text


def test_a_cause_and_a_bound_are_named_from_the_rows(probed: tuple[Study, StudyPaths]) -> None:
    data = read_study(*probed)
    (entry,) = jagg_quality(data)
    assert (entry["cause"], entry["always_held"], entry["has_bound"]) == ("path", True, True)
    for row in data.gradient_quality:
        row["curve_error_mean"] = 2 * (row["path_error_mean"] or 0)
        row["bound_share_held"] = 0.75
    (entry,) = jagg_quality(data)
    assert (entry["cause"], entry["always_held"]) == ("curve", False)
    for row in data.gradient_quality:
        row["bound_mean"] = row["path_error_mean"] = row["curve_error_mean"] = row["bound_share_held"] = None
    (entry,) = jagg_quality(data)
    assert not entry["has_bound"]


def test_windows_without_a_cosine_are_counted_and_not_called_good(probed: tuple[Study, StudyPaths]) -> None:
    data = read_study(*probed)
    for row in data.gradient_quality:
        if row["window"] == 4:
            row["cosine_mean"] = None
    (entry,) = jagg_quality(data)
    assert entry["undefined"] == 3
    assert [low["worst"]["window"] for low in entry["below"]] == [3]


def test_optimism_is_shown_as_the_routing_table_has_it(probed: tuple[Study, StudyPaths]) -> None:
    data = read_study(*probed)
    summary = routing_summary(data)
    optimism = [row["optimism"] for row in data.routing if row["optimism"] is not None]
    assert summary["lowest"].striptags().replace("−", "-") == f"{min(optimism):+.4f}"
    assert summary["highest"].striptags().replace("−", "-") == f"{max(optimism):+.4f}"
    assert summary["any_below"] is any(row["holdout_windows_below"] for row in data.routing)


def test_a_study_without_a_probe_has_no_such_section(tmp_path: Path) -> None:
    whole = simulated_study(tmp_path, seeds=(0,))
    study = only(whole, backbones=["flux"], algorithms=["dancegrpo"], arms=["baseline"], scorers=["hpsv2"])
    paths = write_runs(study)
    aggregate(study, paths)
    shown = content(read_study(study, paths))
    assert (shown["quality"], shown["jagg_quality"], shown["stress"], shown["routing"]) == ([], [], [], [])


def test_published_figures_are_those_of_the_claims_registry() -> None:
    claims = yaml.safe_load((ROOT / "configs" / "claims" / "jagg.yaml").read_text())["claims"]
    by_id = {claim["id"]: claim for claim in claims}
    for (model, cosines), published in zip(COSINES.items(), by_id["C3-cosine"]["published"], strict=True):
        assert published["what"].startswith(model)
        numbers = re.sub(r"\(.*?\)", "", published["value"])
        assert tuple(float(number) for number in re.findall(r"\d+\.\d+", numbers)) == cosines
    assert re.findall(r"\d+\.\d+", by_id["C4"]["statement"]) == [str(ROUTING_THRESHOLD)]
    templates = "".join(path.read_text() for path in (ROOT / "jagg/report/templates").glob("*.html"))
    for number in {number for numbers in COSINES.values() for number in numbers}:
        assert f"{number:g}" in cosines_in_words()
        assert f"{number:g}" not in templates
