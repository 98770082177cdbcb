"""Where models come from: records, damaged files, the hub's cache, plug-ins."""

import json
import shutil
import time
from pathlib import Path

import pytest

from jagg.backbones import load_backbone
from jagg.config import Backbone
from jagg.errors import InputError

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def copy(tiny_flux_folder: tuple[Backbone, Path], tmp_path: Path) -> tuple[Backbone, Path]:
    shutil.copytree(tiny_flux_folder[1], tmp_path / "flux")
    return tiny_flux_folder[0], tmp_path / "flux"


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache of a machine without network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def _hub(config: Backbone) -> Backbone:
    source = {"kind": "hub", "repo": "owner/flux", "revision": REVISION}
    return Backbone.model_validate(config.model_dump() | {"source": source})


def _record(config: Backbone, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    record = {"family": config.family, "source": config.source.model_dump(), "label": "a model"}
    (folder / "model.json").write_text(json.dumps(record))
    return folder


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model.json").unlink(),
        lambda folder: (folder / "model.json").write_text("{"),
        lambda folder: (folder / "model.json").write_text("[]"),
        lambda folder: (folder / "model.json").write_text("{}"),
        lambda folder: (folder / "model_index.json").unlink(),
        lambda folder: (folder / "model_index.json").write_text('{"_class_name": "QwenImagePipeline"}'),
        lambda folder: shutil.rmtree(folder / "vae"),
        lambda folder: (folder / "transformer" / "diffusion_pytorch_model.safetensors").write_bytes(b"\x10" * 100),
        lambda folder: (folder / "text_encoder" / "model.safetensors").write_bytes(b""),
        lambda folder: (folder / "tokenizer" / "tokenizer.json").write_text("{"),
    ],
)
def test_a_damaged_model_is_refused(copy: tuple[Backbone, Path], damage: object) -> None:
    config, folder = copy
    damage(folder)  # type: ignore[operator]
    with pytest.raises(InputError, match=r"where: .*flux"):
        load_backbone(config, folder)


def test_truncated_weights_are_refused(copy: tuple[Backbone, Path]) -> None:
    config, folder = copy
    weights = folder / "transformer" / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(InputError, match="cannot load"):
        load_backbone(config, folder)


def test_a_model_of_another_configuration_is_refused(tiny_flux_folder: tuple[Backbone, Path]) -> None:
    config, folder = tiny_flux_folder
    other = config.model_copy(update={"source": config.source.model_copy(update={"seed": 1})})
    with pytest.raises(InputError, match="another configuration"):
        load_backbone(other, folder)


def test_a_missing_hub_model_without_network_says_what_to_do(
    tiny_flux_folder: tuple[Backbone, Path], hub_cache: Path, tmp_path: Path
) -> None:
    config = _hub(tiny_flux_folder[0])
    start = time.perf_counter()
    with pytest.raises(InputError, match=rf"(?s)owner/flux at revision {REVISION}.*hf download owner/flux"):
        load_backbone(config, _record(config, tmp_path / "record"))
    assert time.perf_counter() - start < 5


def test_a_cached_hub_model_loads_without_network(
    tiny_flux_folder: tuple[Backbone, Path], hub_cache: Path, tmp_path: Path
) -> None:
    embedded, folder = tiny_flux_folder
    shutil.copytree(folder, hub_cache / "models--owner--flux" / "snapshots" / REVISION)
    config = _hub(embedded)
    backbone = load_backbone(config, _record(config, tmp_path / "record"))
    same = load_backbone(embedded, folder)
    for (name, one), (_, two) in zip(backbone.transformer.named_parameters(), same.transformer.named_parameters()):
        assert one.equal(two), name


def test_an_unknown_family_names_the_nearest(tiny_flux_folder: tuple[Backbone, Path]) -> None:
    config, folder = tiny_flux_folder
    with pytest.raises(InputError, match=r"(?s)flux, qwen_image.*did you mean 'flux'"):
        load_backbone(config.model_copy(update={"family": "flus"}), folder)


def test_an_installed_package_adds_a_family(
    tiny_flux_folder: tuple[Backbone, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder = tiny_flux_folder
    (tmp_path / "extra_backbone.py").write_text("def load(*arguments):\n    return arguments\n")
    distribution = tmp_path / "extra_backbone-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: extra-backbone\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text("[jagg.backbones]\nextra = extra_backbone:load\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    extra = config.model_copy(update={"family": "extra"})
    assert load_backbone(extra, folder, "cpu") == (extra, folder, "cpu")
