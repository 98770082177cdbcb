"""The report page: complete, deterministic, offline, and honest about what it shows."""

import os
import re
import shutil
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pytest
from browser import NAMES, Page, browser, installed
from simulated_study import only, simulated_study, write_runs

from jagg.config import Study
from jagg.errors import InputError
from jagg.keys import RunKey, StudyPaths
from jagg.report import build_report
from jagg.report.data import read_study
from jagg.report.narrative import arm_differences, gains, phrase, setting_differences, verdict_sentence
from jagg.report.tables import aggregate
from jagg.report.traceable_values import agrees, mismatches, read_shown

FIGURES = {
    "reward-curves": 4, "score-by-passes": 12, "forest": 3, "curves": 12, "slopes": 12, "prompt-differences": 12,
    "cost": 4, "pareto": 12, "time-pareto": 12,
}  # fmt: skip
"""Panels of each figure."""
DATE = "2026-01-02"  # of the session's reports
CELLS = [(b, a) for b in ("flux", "qwen_image") for a in ("dancegrpo", "flow_grpo_fast")]


class Outline(HTMLParser):
    """Ids, links and images of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.images: list[dict] = []
        self.headings: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values[name] for name in ("href", "src", "xlink:href") if name in values]
        self.images += [values] if tag == "img" else []
        self.headings += [tag] if re.fullmatch(r"h[1-6]", tag) else []


def test_the_page_needs_no_network_and_its_links_lead_somewhere(page: str, finished: tuple[Study, StudyPaths]) -> None:
    outline = Outline(page)
    for link in outline.links:
        if link.startswith("#"):
            assert link[1:] in outline.ids, link
        elif not link.startswith("data:"):
            assert (finished[1].report.parent / link).is_file(), link
    assert not re.search(r"@import|url\((?!#)|<script|<link(?! rel=\"icon\" href=\"data:)", page)


def test_the_page_can_be_read_without_seeing(page: str) -> None:
    outline = Outline(page)
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.headings[0] == "h1"
    assert outline.headings.count("h1") == 1
    assert len(outline.images) == 4 * 4 * 4  # cells x prompts x (untouched model and 3 arms)
    assert all(image["alt"] for image in outline.images)
    assert len(re.findall(r'<svg[^>]* role="img" aria-label="[^"]+"', page)) == sum(FIGURES.values())


def test_cut_prompts_and_their_average_are_told(page: str) -> None:
    assert page.count("truncated: 0 of 4") == 3
    assert "Mean over prompts: every prompt alike (" in page


def test_what_a_reader_must_not_miss(page: str) -> None:
    assert "these are not results on FLUX.1-dev or Qwen-Image" in page
    assert "pickscore (held out)" in page
    assert "<b>36</b> runs wanted" in page
    assert "embedded-hpsv2-simulated" in page
    assert "cannot go below p = 0.25" in page
    assert "embedded flux (0.47 M parameters), DanceGRPO" in page
    words = re.sub(r"<[^>]+>", "", page)
    assert "12 of 12" in words
    assert "Backward passes a trajectory: 14 against 20 (DanceGRPO)" in words
    assert "margin ±0.01; n = 3" in words
    assert "*" not in re.sub(r"<style>.*?</style>|<svg.*?</svg>|<!--.*?-->", "", page, flags=re.DOTALL)
    assert "Python 3.11.0" in page
    assert "nan" not in re.sub(r"data:[^\"]*|<svg.*?</svg>", "", page, flags=re.DOTALL).lower().replace("finance", "")


def test_every_figure_has_its_numbers_and_follows_the_colours_of_the_page(
    page: str, finished: tuple[Study, StudyPaths]
) -> None:
    names = [*FIGURES, *(f"images-{backbone}-{algorithm}" for backbone, algorithm in CELLS)]
    for name in names:
        rows = finished[1].figure(f"{name}.csv").read_text().splitlines()
        assert len(rows) > 4, name
    panels = {name: sorted(finished[1].figure("").glob(f"{name}-*.svg")) for name in FIGURES}
    assert {name: len(paths) for name, paths in panels.items()} == FIGURES
    for path in (path for paths in panels.values() for path in paths):
        text = path.read_text()
        ET.fromstring(text)
        assert "currentColor" in text
        assert "#010203" not in text
        assert "<metadata" not in text
    for backbone, algorithm in CELLS:
        assert finished[1].figure(f"images-{backbone}-{algorithm}.png").read_bytes().startswith(b"\x89PNG")


def test_every_number_on_the_page_is_its_tables_number(page: str, finished: tuple[Study, StudyPaths]) -> None:
    shown = read_shown(page)
    assert len(shown) > 500
    assert mismatches(finished[1].report, finished[1].root) == []


def test_a_changed_number_is_found(page: str, finished: tuple[Study, StudyPaths], tmp_path: Path) -> None:
    place = page.index('data-column="difference"')
    start = page.index(">", place) + 1
    changed = tmp_path / "report.html"
    changed.write_text(page[:start] + "+0.5000" + page[page.index("<", start) :], encoding="utf-8")
    (found,) = mismatches(changed, finished[1].root)
    assert "printed +0.5000" in found


@pytest.mark.parametrize(
    ("text", "value", "right"),
    [("0.70", 0.7049, True), ("0.70", 0.7051, False), ("−0.0013", -0.00134, True), ("0.694×", 0.69444, True),
     ("85%", 0.846, True), ("85%", 0.84, False), ("–", None, True), ("–", 0.0, False), ("1.2e-05", 1.23e-5, True),
     ("nan", 0.0, False)],
)  # fmt: skip
def test_numbers_agree_at_their_printed_precision(text: str, value: float | None, right: bool) -> None:
    assert agrees(text, value) is right


_BUILD = """
import sys
from pathlib import Path
from jagg.config import load_study
from jagg.keys import StudyPaths
from jagg.report import build_report
from jagg.report.tables import aggregate
root = Path(sys.argv[1])
study = load_study(root / "simulated" / "study.json").model_copy(update={"results": str(root)})
aggregate(study, StudyPaths.of(study))
build_report(study, StudyPaths.of(study), date="2027-03-04")
assert not {"mlflow", "torch", "matplotlib.pyplot", "snakemake"} & set(sys.modules), "heavy import"
"""


def test_a_moved_study_gives_equal_tables_and_report_without_mlflow(
    probed: tuple[Study, StudyPaths], tmp_path: Path
) -> None:
    """Another folder, another process, another order of hashes, no screen: not one byte differs."""
    original = probed[1].results
    moved = tmp_path / "elsewhere"
    shutil.copytree(original, moved)
    for name in ("tables", "figures"):
        shutil.rmtree(moved / "simulated" / name)
    environment = {name: value for name, value in os.environ.items() if name != "DISPLAY"} | {"PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", _BUILD, str(moved)], check=True, env=environment)
    for path in probed[1].table("").iterdir():
        assert path.read_bytes() == (moved / "simulated" / "tables" / path.name).read_bytes(), path.name
    again = (moved / "simulated" / "report.html").read_text(encoding="utf-8")
    assert again.replace("2027-03-04", DATE) == probed[1].report.read_text(encoding="utf-8")
    for path in probed[1].figure("").iterdir():
        assert path.read_bytes() == (moved / "simulated" / "figures" / path.name).read_bytes(), path.name


def test_a_cell_without_a_pair_says_so_in_words_and_panels(tmp_path: Path) -> None:
    whole = simulated_study(tmp_path, seeds=(0, 1))
    study = only(whole, algorithms=["dancegrpo"], arms=["baseline", "jagg"], scorers=["hpsv2"])
    paths = write_runs(study)
    for arm, seed in product(study.arms, study.seeds):
        paths.run(RunKey("qwen_image", "dancegrpo", arm, seed)).manifest.unlink()
    aggregate(study, paths)
    build_report(study, paths)
    page = paths.report.read_text(encoding="utf-8")
    assert "No arm could be compared in qwen_image, dancegrpo: runs are missing" in page
    for name in ("pareto", "curves", "slopes", "prompt-differences", "score-by-passes"):
        empty, full = (paths.figure(f"{name}-{b}-dancegrpo-hpsv2.svg").read_text() for b in ("qwen_image", "flux"))
        assert "no complete runs to show" in empty, name
        assert "no complete runs to show" not in full, name
    assert mismatches(paths.report, paths.root) == []


def test_one_run_alone_gives_a_report_from_any_thread(tmp_path: Path) -> None:
    whole = simulated_study(tmp_path, seeds=(0,))
    study = only(whole, backbones=["flux"], algorithms=["dancegrpo"], arms=["baseline"], scorers=["hpsv2"])
    paths = write_runs(study)
    aggregate(study, paths)
    build_report(study, paths, date=DATE)
    page = paths.report.read_text(encoding="utf-8")
    assert "There is no other arm to compare with baseline" in page
    paths.report.unlink()
    figures = {path.name for path in paths.figure("").iterdir()}
    for name in ("of-an-earlier-report.svg", "notes.txt"):
        paths.figure(name).write_text("old")
    thread = threading.Thread(target=build_report, args=(study, paths), kwargs={"date": DATE})
    thread.start()
    thread.join()
    assert paths.report.read_text(encoding="utf-8") == page
    assert {path.name for path in paths.figure("").iterdir()} == figures | {"notes.txt"}


def test_diverged_and_missing_runs_and_single_seeds_are_said(tmp_path: Path) -> None:
    whole = simulated_study(tmp_path, seeds=(0, 1))
    study = only(whole, algorithms=["dancegrpo"], arms=["baseline", "jagg"], scorers=["hpsv2"])
    diverged, missing = RunKey("flux", "dancegrpo", "jagg", 1), RunKey("qwen_image", "dancegrpo", "jagg", 0)
    paths = write_runs(study, diverged=(diverged,))
    paths.run(missing).manifest.unlink()
    aggregate(study, paths)
    build_report(study, paths)
    page = paths.report.read_text(encoding="utf-8")
    assert "2 of 8 runs are not part of any average" in page
    assert f"{diverged}: diverged" in page
    assert "reward was nan at training step 6" in page
    assert f"{missing}: missing" in page
    assert 'class="not-estimable" data-label="hpsv2"><b>no claim (not estimable)</b>' in page
    assert "n=1, no interval" in page


def test_tables_of_other_runs_are_refused(finished: tuple[Study, StudyPaths]) -> None:
    more = simulated_study(finished[1].results, seeds=(0, 1, 2, 3))
    with pytest.raises(InputError, match="other runs"):
        build_report(more, finished[1])


def test_a_missing_image_is_named(tmp_path: Path) -> None:
    study = only(simulated_study(tmp_path, seeds=(0,)), backbones=["flux"], algorithms=["dancegrpo"])
    paths = write_runs(study)
    aggregate(study, paths)
    lost = sorted(paths.run(RunKey("flux", "dancegrpo", "jagg", 0)).images(12).glob("*_0.png"))
    for path in lost:
        path.unlink()
    with pytest.raises(InputError, match="image is missing"):
        build_report(study, paths)
    assert not paths.report.exists()


def row(metric: str, low: float | None, high: float | None, verdict: str) -> dict:
    return {"metric": metric, "difference": None, "ci_low": low, "ci_high": high, "verdict": verdict, "aa_floor": None}


def test_a_rise_beside_a_fall_is_mixed_and_names_both(finished: tuple[Study, StudyPaths]) -> None:
    data = read_study(*finished)
    rows = [row("clipscore", -0.02, -0.01, "inferior"), row("hpsv2", 0.01, 0.03, "superior")]
    assert verdict_sentence(data, rows) == "mixed: lower in clipscore (optimised); higher in hpsv2 (optimised)"
    rows = [row("hpsv2", 0.001, 0.002, "equivalent"), row("pickscore", None, None, "not-estimable")]
    assert verdict_sentence(data, rows) == (
        "higher, but equivalent within the margin in hpsv2 (optimised); "
        "no claim (not estimable) in pickscore (held out)"
    )


@pytest.mark.parametrize(("floor", "said"), [(None, "higher, but "), (0.002, "higher, but "), (0.004, "")])
def test_a_gain_below_the_floor_of_noise_is_not_called_higher(floor: float | None, said: str) -> None:
    row = {"verdict": "equivalent", "difference": 0.003, "ci_low": 0.001, "ci_high": 0.005, "aa_floor": floor}
    assert phrase(row) == f"{said}equivalent within the margin"


def test_arms_differ_in_declared_settings_only(finished: tuple[Study, StudyPaths]) -> None:
    rows = arm_differences(read_study(*finished))
    assert {row["key"] for row in rows} == {"arm.estimator", "arm.routing.jagg_frac"}
    assert all(row["expected"] for row in rows)
    fracs = {(row["algorithm"], row["value"]) for row in rows if row["key"] == "arm.routing.jagg_frac"}
    assert fracs == {("dancegrpo", 0.6), ("flow_grpo_fast", 0.4)}


def test_an_undeclared_difference_is_the_one_that_is_marked() -> None:
    base = {"arm": {"estimator": "exact"}, "algorithm": {"eta": 0.3, "window": 4}}
    other = {"arm": {"estimator": "jagg"}, "algorithm": {"eta": 0.7, "window": 4}}
    assert [row["key"] for row in setting_differences(base, other) if not row["expected"]] == ["algorithm.eta"]
    (lost,) = setting_differences(base, {"arm": {"estimator": "exact"}, "algorithm": {"eta": 0.3}})
    assert (lost["key"], lost["value"], lost["expected"]) == ("algorithm.window", "absent", False)


def test_gains_count_runs(finished: tuple[Study, StudyPaths]) -> None:
    for row in gains(read_study(*finished)):
        assert row["runs"] == 12
        assert row["risen"] == 12


@pytest.fixture(scope="module")
def tab(page: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if installed() is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)}")
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, False), (390, True)])
def test_a_browser_shows_the_page_without_complaint(
    tab: Page, page: str, finished: tuple[Study, StudyPaths], tmp_path: Path, width: int, dark: bool
) -> None:
    """No message, no request but for the file itself, and nothing wider than the window, at a desk and on a phone."""
    finished[1].report.write_text(page, encoding="utf-8")
    tab.open(finished[1].report.as_uri(), width, 900, dark)
    assert tab.complaints == []
    assert {url for url in tab.requests if not url.startswith("data:")} <= {finished[1].report.as_uri(), "about:blank"}
    tab.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(20, 23, 27)") is dark
    tab.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_the_keyboard_reaches_everything_in_the_page_s_order(
    tab: Page, page: str, finished: tuple[Study, StudyPaths]
) -> None:
    finished[1].report.write_text(page, encoding="utf-8")
    tab.open(finished[1].report.as_uri(), 1200, 900)
    links = tab.evaluate("document.querySelectorAll('nav a').length")
    reached = []
    for _ in range(links + 5):
        tab.press("Tab", 9)
        what = "getAttribute('href') || document.activeElement.getAttribute('aria-label')"
        reached.append(tab.evaluate(f"document.activeElement.{what}"))
        assert tab.evaluate("document.activeElement.getBoundingClientRect().left") >= 0, "the skip link shows itself"
        assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert reached[:3] == ["#verdict", "#verdict", "#differences"]
    assert reached[links + 1 : links + 3] == ["#arms", "Arms in short, can be scrolled"]
    assert reached[links + 3].startswith("figures/forest")
