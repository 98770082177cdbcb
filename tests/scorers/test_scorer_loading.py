"""What loading refuses: wrong or missing weights, an unreachable hub, warnings, unknown families."""

import json
import shutil
import warnings
from importlib import metadata

import numpy as np
import pytest
import torch

import jagg.scorers
from jagg.config import FolderModel, HubModel, Scorer
from jagg.errors import InputError
from jagg.scorers import load_scorer, preflight
from jagg.scorers.clip import projected

HUB = {
    "hpsv2": HubModel(kind="hub", repo="nobody/no-such-scorer", revision="0" * 40),
    "clipscore": HubModel(kind="hub", repo="nobody/no-such-scorer", revision="0" * 40),
}


@pytest.fixture
def copied(tiny_scorer_folders, tmp_path):
    """A scorer's configuration and a copy of its folder, to spoil."""

    def copy(metric):
        config, folder = tiny_scorer_folders[metric]
        return config, shutil.copytree(folder, tmp_path / metric)

    return copy


def weights(folder):
    return next(path for path in folder.iterdir() if path.suffix in (".pt", ".safetensors"))


def test_a_folder_source_is_the_same_model_under_its_own_name(tiny_scorer_folders, tmp_path):
    caption, image = ["a red circle on a blue background"], np.full((1, 40, 40, 3), 90, np.uint8)
    for metric, (config, folder) in tiny_scorer_folders.items():
        source = FolderModel(kind="folder", path=str(folder))
        other = load_scorer(config.model_copy(update={"source": source}), tmp_path / metric)
        embedded = load_scorer(config, folder)
        assert other.score(images=image, prompts=caption) == embedded.score(images=image, prompts=caption)
        assert not other.name.startswith("embedded")
        assert other.name.split("@")[1] == embedded.name.split("@")[1]


@pytest.mark.parametrize("metric", ["hpsv2", "clipscore"])
def test_an_expected_hash_is_enforced(tiny_scorer_folders, metric):
    config, folder = tiny_scorer_folders[metric]
    found = json.loads((folder / "scorer.json").read_text())["weight_sha256"]
    assert load_scorer(config.model_copy(update={"weight_sha256": found}), folder).weight_sha256 == found
    with pytest.raises(InputError, match="the configuration"):
        load_scorer(config.model_copy(update={"weight_sha256": "0" * 64}), folder)


@pytest.mark.parametrize("metric", ["hpsv2", "pickscore"])
def test_changed_weights_are_refused(copied, metric):
    config, folder = copied(metric)
    with weights(folder).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(InputError, match="not the expected one"):
        load_scorer(config, folder)


@pytest.mark.parametrize("metric", ["hpsv2", "pickscore"])
def test_truncated_weights_without_a_manifest_are_refused(copied, metric):
    config, folder = copied(metric)
    source = FolderModel(kind="folder", path=str(folder))
    weights(folder).write_bytes(weights(folder).read_bytes()[:-1000])
    with pytest.raises(InputError, match="load"):
        load_scorer(config.model_copy(update={"source": source}), folder.with_name("none"))


@pytest.mark.parametrize("metric", ["hpsv2", "pickscore"])
def test_missing_weights_are_named(copied, metric):
    config, folder = copied(metric)
    path = weights(folder)
    path.unlink()
    with pytest.raises(InputError, match=path.name):
        load_scorer(config, folder)


def test_an_unbuilt_or_differently_built_embedded_scorer_is_refused(copied, tmp_path):
    config, folder = copied("clipscore")
    with pytest.raises(InputError, match="not built"):
        load_scorer(config, tmp_path / "nothing")
    other = config.model_copy(update={"source": config.source.model_copy(update={"seed": 99})})
    with pytest.raises(InputError, match="another configuration"):
        load_scorer(other, folder)


def test_the_version_names_the_file(copied):
    config, folder = copied("hpsv2")
    source = FolderModel(kind="folder", path=str(folder))
    older = config.model_copy(update={"source": source, "version": "v2.0"})
    with pytest.raises(InputError, match=r"HPS_v2_compressed\.pt"):
        load_scorer(older, folder.with_name("none"))
    with pytest.raises(ValueError, match="version"):
        Scorer(family="hpsv2", source=source)


def test_weights_that_leave_the_model_partly_random_are_refused(copied):
    from safetensors.torch import load_file, save_file

    config, folder = copied("clipscore")
    tensors = load_file(weights(folder))
    dropped = sorted(tensors)[-1]
    save_file({name: tensor for name, tensor in tensors.items() if name != dropped}, weights(folder))
    (folder / "scorer.json").unlink()
    source = FolderModel(kind="folder", path=str(folder))
    with pytest.raises(InputError, match=dropped):
        load_scorer(config.model_copy(update={"source": source}), folder)


@pytest.mark.parametrize("family", sorted(HUB))
def test_an_unreachable_hub_names_repository_and_revision(family, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    config = Scorer(family=family, source=HUB[family], version="v2.1" if family == "hpsv2" else None)
    with pytest.raises(InputError, match="nobody/no-such-scorer at revision 0000") as caught:
        load_scorer(config, tmp_path / "scorer")
    assert "to do:" in str(caught.value)
    assert not (tmp_path / "scorer").exists()


def test_importing_the_scorers_leaves_warnings_visible(tiny_scorer_folders):
    before = list(warnings.filters)
    load_scorer(*tiny_scorer_folders["hpsv2"])
    load_scorer(*tiny_scorer_folders["pickscore"])
    assert [entry for entry in warnings.filters if entry[0] == "ignore" and entry not in before] == []
    with pytest.warns(UserWarning, match="still seen"):
        warnings.warn("still seen", UserWarning, stacklevel=1)


def test_a_warning_while_loading_is_an_error(tiny_scorer_folders, monkeypatch):
    config, folder = tiny_scorer_folders["clipscore"]
    loader = jagg.scorers.SCORERS["clipscore"]

    def warning_loader(*arguments):
        warnings.warn("QuickGELU mismatch between final model config and pretrained tag", UserWarning, stacklevel=1)
        return loader(*arguments)

    monkeypatch.setitem(jagg.scorers.SCORERS, "clipscore", warning_loader)
    with pytest.raises(InputError, match="QuickGELU mismatch"):
        load_scorer(config, folder)


def test_an_unknown_family_is_answered_with_the_nearest(tmp_path):
    config = Scorer(family="pickscor", source=FolderModel(kind="folder", path=str(tmp_path)))
    with pytest.raises(InputError, match="did you mean 'pickscore'"):
        load_scorer(config, tmp_path)


class PlugIn:
    """What an installed package's loader returns."""

    name, unit = "constant@0", "cosine"

    def __init__(self, value):
        self.value = value

    def score(self, *, images, prompts):
        return np.full(len(images), self.value)


def load_plug_in(config, folder, device):
    return PlugIn(0.25)


def test_an_installed_plug_in_is_a_family(tmp_path, monkeypatch):
    entry = metadata.EntryPoint("constant", f"{__name__}:load_plug_in", "jagg.scorers")
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda self: load_plug_in)
    monkeypatch.setattr(jagg.scorers, "entry_points", lambda group: [entry] if group == "jagg.scorers" else [])
    config = Scorer(family="constant", source=FolderModel(kind="folder", path=str(tmp_path)))
    assert preflight({"constant": load_scorer(config, tmp_path)}) == {"constant": 0.25}


@pytest.mark.parametrize("value", [np.nan, np.inf, 21.9])
def test_preflight_refuses_what_is_not_a_cosine(value):
    with pytest.raises(InputError, match="-1 and 1"):
        preflight({"metric": PlugIn(value)})


class Pooled:
    def __init__(self, **fields):
        self.__dict__.update(fields)


def test_features_are_unwrapped_by_name_and_width():
    tensor = torch.arange(6.0).reshape(2, 3)
    assert projected(tensor, 3) is tensor
    assert projected(Pooled(pooler_output=tensor), 3) is tensor
    with pytest.raises(TypeError, match="Pooled"):
        projected(Pooled(last_hidden_state=tensor), 3)
    with pytest.raises(TypeError, match="Pooled"):
        projected(Pooled(pooler_output=tensor), 4)
