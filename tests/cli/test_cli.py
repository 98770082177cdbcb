"""The command as users see it: help, and exit status 2 with one clear message for bad input."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from simulated_study import simulated_study, write_runs

from jagg.cli.inspect import _model_cost
from jagg.config import FolderModel, load_study
from jagg.errors import InputError
from jagg.keys import RunKey

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "configs" / "small.yaml"


def jagg(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jagg", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def refused(*arguments: str, cwd: Path = ROOT) -> str:
    process = jagg(*arguments, cwd=cwd)
    assert process.returncode == 2, process.stdout + process.stderr
    assert "Traceback" not in process.stderr
    assert process.stderr.startswith(("jagg: ", "Usage: "))
    return process.stderr


def test_help_of_every_verb() -> None:
    listing = jagg("--help").stdout
    for verb in ("pretrain", "train", "sample", "score", "compare", "passes", "audit", "track", "report", "doctor"):
        assert verb in listing
        assert "Usage" in jagg(verb, "--help").stdout
    assert "run" in jagg("study", "--help").stdout


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; import jagg.cli.main; "
        "heavy = {'torch', 'diffusers', 'transformers', 'open_clip', 'mlflow', 'snakemake', 'matplotlib', 'scipy'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("option", "value", "nearest"),
    [("backbone", "fluxx", "flux"), ("algorithm", "dance", "dancegrpo"), ("arm", "jag", "jagg")],
)
def test_unknown_names_of_a_run(tmp_path: Path, option: str, value: str, nearest: str) -> None:
    names = {"backbone": "flux", "algorithm": "dancegrpo", "arm": "jagg", option: value}
    options = [part for name, given in names.items() for part in (f"--{name}", given)]
    message = refused("train", str(SMALL), *options, "--seed", "0", "--out", str(tmp_path / "run"))
    assert f"unknown {option} '{value}'" in message
    assert nearest in message
    assert not (tmp_path / "run").exists()


def test_pretrain_wants_one_model(tmp_path: Path) -> None:
    assert "--backbone or --scorer" in refused("pretrain", str(SMALL), "--out", str(tmp_path / "m"))
    assert "unknown backbone" in refused("pretrain", str(SMALL), "--backbone", "sdxl", "--out", str(tmp_path / "m"))
    assert not (tmp_path / "m").exists()


def test_hub_weights_without_network_are_named(tmp_path: Path) -> None:
    paper = str(ROOT / "configs" / "paper.yaml")
    for option, name, repo in (
        ("--backbone", "flux", "black-forest-labs/FLUX.1-dev"),
        ("--scorer", "hpsv2", "xswu/HPSv2"),
    ):
        message = refused("pretrain", paper, option, name, "--out", str(tmp_path / name))
        assert repo in message
        assert not (tmp_path / name).exists()
    assert "zhwang/HPDv2" in refused("prompts", paper, "--out", str(tmp_path / "prompts"))
    assert not (tmp_path / "prompts").exists()


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    message = refused("sample", str(SMALL), "--run", str(tmp_path), "--step", "0")
    assert "not the folder of a run" in message


def test_scoring_needs_one_kind_of_work(tmp_path: Path) -> None:
    assert "--images and --out" in refused("score", str(SMALL), "--images", str(tmp_path))


def test_compare_refuses_a_margin_that_is_none(tmp_path: Path) -> None:
    for margin in ("hpsv2", "hpsv2=x", "hpsv2=-1", "=1"):
        message = refused(
            "compare", "s.csv", "--arm", "a", "--reference", "b", "--margin", margin, "--out", str(tmp_path / "o")
        )
        assert "METRIC=X" in message
    assert not (tmp_path / "o").exists()


def test_study_run_outside_the_project(tmp_path: Path) -> None:
    assert "no Snakefile here" in refused("study", "run", str(SMALL), cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_study_run_checks_the_file_first(tmp_path: Path) -> None:
    content = yaml.safe_load(SMALL.read_text())
    content["arms"]["jagg"] = {"estimator": "none"}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(content))
    assert "arms.jagg.estimator" in refused("study", "run", str(path))


def test_passes_of_the_embedded_study() -> None:
    process = jagg("passes", str(SMALL))
    assert process.returncode == 0, process.stderr
    rows = {tuple(cells[:3]): cells[3:] for line in process.stdout.splitlines() if len(cells := line.split()) == 9}
    backward, forward, ratio = range(2, 5)
    assert rows["flux", "dancegrpo", "baseline"][backward] == "20"
    assert rows["flux", "dancegrpo", "jagg"][backward] == "14"
    assert rows["flux", "dancegrpo", "jagg"][ratio].startswith("1.43"[:3])
    assert rows["flux", "dancegrpo", "jagg"][forward] == rows["flux", "dancegrpo", "baseline"][forward] == "40"


@pytest.mark.parametrize("image_size", [7, 36])
def test_passes_of_a_size_that_no_model_has_are_refused(image_size: int) -> None:
    study = load_study(SMALL)
    with pytest.raises(InputError, match="a multiple of 8"):
        _model_cost(study, study.backbones["flux"].model_copy(update={"image_size": image_size}))


def test_operations_of_a_folder_are_those_of_the_model_in_it(tiny_flux_folder: tuple, tiny_qwen_folder: tuple) -> None:
    study = load_study(SMALL)
    for config, folder in (tiny_flux_folder, tiny_qwen_folder):
        there = config.model_copy(update={"source": FolderModel(kind="folder", path=str(folder))})
        assert _model_cost(study, there) == _model_cost(study, config)


def test_passes_of_the_full_study_come_from_the_full_size_models() -> None:
    process = jagg("passes", str(ROOT / "configs" / "paper.yaml"))
    assert process.returncode == 0, process.stderr
    assert "flux is 37.28, qwen_image is 32.69" in process.stdout


def test_places_that_cannot_be_written_are_named_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    options = ["--arm", "a", "--reference", "b"]
    for out in (tmp_path / "file", tmp_path / "file" / "deeper"):
        for verb in (["compare", "none.csv", *options], ["prompts", str(SMALL)]):
            assert "a file" in refused(*verb, "--out", str(out))
    assert "a folder" in refused("score", str(SMALL), "--images", str(tmp_path), "--out", str(tmp_path))
    assert (tmp_path / "file").read_bytes() == b""


def test_a_metric_takes_one_margin(tmp_path: Path) -> None:
    margins = ["--margin", "hpsv2=0.1", "--margin", "hpsv2=0.2"]
    message = refused("compare", "s.csv", "--arm", "a", "--reference", "b", *margins, "--out", str(tmp_path / "o"))
    assert "two margins" in message


@pytest.mark.parametrize("margin", ["hpsv2", "hpsv2=0", "hpsv2=-1", "hpsv2=inf", "hpsv2=0.1:0.2", "hpsv2=-inf:1", "=1"])
def test_what_is_no_margin(margin: str) -> None:
    assert "not a margin" in refused("compare", "--plan", f"--margin={margin}")


@pytest.mark.parametrize(
    "option", ["--difference=0", "--difference=nan", "--difference=inf", "--sd=inf", "--sd=nan", f"--tests={10**400}"]
)
def test_what_no_seeds_can_be_planned_for(option: str) -> None:
    assert option.split("=", maxsplit=1)[0] in refused("compare", "--plan", option)


def test_a_comparison_writes_both_of_its_tables_or_none(tmp_path: Path) -> None:
    (tmp_path / "out" / "curves.csv").mkdir(parents=True)
    message = refused("compare", "s.csv", "--arm", "a", "--reference", "b", "--out", str(tmp_path / "out"))
    assert "curves.csv" in message
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["curves.csv"]


def test_compare_says_which_arguments_are_missing() -> None:
    assert "no --reference, --out" in refused("compare", "s.csv", "--arm", "a")


def test_the_seed_planner_needs_no_scores() -> None:
    options = ["--tests", "12", "--sd", "0.004", "--margin", "hpsv2=0.01", "--margin=pickscore=-0.01:inf"]
    lines = jagg("compare", "--plan", *options).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["9", "18", "7", "7"]
    assert "shows non-inferiority within 0.01" in lines[4]


def test_compare_writes_differences_and_bands(tmp_path: Path) -> None:
    study = simulated_study(tmp_path / "results", seeds=(0, 1))
    paths = write_runs(study)
    runs = [
        paths.root / "runs" / "flux" / "dancegrpo" / arm / f"seed-{s}" for arm in ("baseline", "jagg") for s in (0, 1)
    ]
    scores = [str(run / "scores" / f"step-{step}.parquet") for run in runs for step in (0, 6, 12)]
    out = tmp_path / "out"
    options = ["--arm", "jagg", "--reference", "baseline", "--margin", "hpsv2=-0.01:0.02", "--primary", "hpsv2"]
    process = jagg("compare", *scores, *options, "--out", str(out))
    assert process.returncode == 0, process.stderr
    assert sorted(path.name for path in out.iterdir()) == ["curves.csv", "paired_differences.csv"]
    assert len((out / "curves.csv").read_text().splitlines()) == 1 + 3 * 3


def test_status_tells_runs_of_other_settings_from_done_ones(tmp_path: Path) -> None:
    study = simulated_study(tmp_path)
    write_runs(study)
    path = tmp_path / "study.yaml"

    def counts(content: dict, state: str) -> int:
        path.write_text(yaml.safe_dump(content))
        header, *rows = (line.split() for line in jagg("study", "status", str(path)).stdout.splitlines())
        return sum(int(row[header.index(state) - len(header)]) for row in rows)

    content = study.model_dump(mode="json")
    num_runs = counts(content, "wanted")
    assert counts(content, "done") == num_runs
    content["training"]["learning_rate"] *= 2
    assert counts(content, "outdated") == num_runs


@pytest.mark.parametrize("verb", ["sample", "evaluate"])
def test_a_run_of_another_configuration_is_not_evaluated(tmp_path: Path, verb: str) -> None:
    study = simulated_study(tmp_path / "results", seeds=(0,))
    run = write_runs(study).run(RunKey("flux", "dancegrpo", "jagg", 0))
    content = study.model_dump(mode="json")
    content["algorithms"]["dancegrpo"]["eta"] = 0.7
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(content))
    before = {file: file.read_bytes() for file in run.folder.rglob("*") if file.is_file()}
    message = refused(verb, str(path), "--run", str(run.folder), "--step", "6")
    assert "algorithm.eta 0.7" in message
    assert "algorithm.eta 0.3" in message
    assert before == {file: file.read_bytes() for file in run.folder.rglob("*") if file.is_file()}
