"""Building the embedded backbones: the same bits from the same configuration, complete or not at all."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from jagg.backbones import load_backbone
from jagg.config import Backbone
from jagg.cost.full_size import meta_transformer
from jagg.errors import InputError
from jagg.pretrain.autoencoder import reconstruction_psnr, train_autoencoder
from jagg.pretrain.backbones import (
    EMBEDDED_FAMILIES,
    EMBEDDED_VAE_DOWNSCALE,
    HELD_OUT_CAPTIONS,
    embedded_transformer_config,
    pretrain_backbone,
)
from jagg.pretrain.embedded import EmbeddedFamily, draw_images
from jagg.pretrain.flow_matching import FlowData, train_flow
from jagg.records import folder_sha256, read_json

FAMILIES = ("flux", "qwen_image")


def _config(family: str, **source: int) -> Backbone:
    sizes = {"autoencoder_steps": 2, "flow_steps": 2, "batch_size": 4, "num_layers": 1, "num_single_layers": 1}
    return Backbone(family=family, source={"kind": "embedded", **sizes, **source}, image_size=32, max_text_tokens=20)


def _family(family: str) -> EmbeddedFamily:
    config = _config(family)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return EMBEDDED_FAMILIES[family](config, config.source, "cpu")  # type: ignore[arg-type]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_gives_the_same_bits_and_another_does_not(family: str, tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    records = [
        pretrain_backbone(_config(family, seed=seed), tmp_path / name)
        for name, seed in (("first", 0), ("second", 0), ("third", 1))
    ]
    assert torch.equal(torch.random.get_rng_state(), before), "the global random state is not ours"
    first, second, third = (
        folder_sha256(tmp_path / name, lambda path: path.suffix in {".safetensors", ".png"} or "tokenizer" in str(path))
        for name in ("first", "second", "third")
    )
    assert first == second != third
    assert records[0]["weights_sha256"] == records[1]["weights_sha256"] != records[2]["weights_sha256"]


@pytest.mark.parametrize("family", ["flux", "qwen"])
def test_the_record_says_what_was_built_and_how_good_it_is(family: str, request: pytest.FixtureRequest) -> None:
    config, folder = request.getfixturevalue(f"tiny_{family}_folder")
    record = read_json(folder / "model.json")
    backbone = load_backbone(config, folder)
    assert record["num_parameters"] == sum(p.numel() for p in backbone.transformer.parameters())
    assert record["label"] == backbone.label
    assert set(record["quality"]) == {
        "autoencoder_psnr_db",
        "flow_loss",
        "training_s",
        "colour_accuracy",
        "colour_accuracy_samples",
        "samples",
    }
    assert 0 <= record["quality"]["colour_accuracy"]["background"] <= 1
    sheet = np.asarray(Image.open(folder / "samples.png"))
    assert sheet.shape[0] * sheet.shape[1] == len(record["quality"]["samples"]) * 34 * 34


@pytest.mark.parametrize("family", ["flux", "qwen"])
def test_sizes_are_known_without_building(family: str, request: pytest.FixtureRequest) -> None:
    config, folder = request.getfixturevalue(f"tiny_{family}_folder")
    sizes = embedded_transformer_config(config.family, config.source)
    assert meta_transformer(config.family, sizes).num_parameters() == read_json(folder / "model.json")["num_parameters"]
    assert load_backbone(config, folder).latent_shape == (
        (32 // (2 * EMBEDDED_VAE_DOWNSCALE)) ** 2,
        sizes["in_channels"],
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_autoencoder_learns(family: str) -> None:
    model = _family(family)
    images, held_out = draw_images(256, 32, 0).tensor(), draw_images(32, 32, 1).tensor()
    before = reconstruction_psnr(model, held_out)
    train_autoencoder(model, images, num_steps=25, seed=0, progress=lambda done, total: None)
    assert reconstruction_psnr(model, held_out) > before + 1
    latents = model.latents(images)
    assert latents.mean().abs() < 0.05
    assert abs(latents.std().item() - 1) < 0.05


@pytest.mark.parametrize("family", FAMILIES)
def test_flow_matching_learns_and_its_average_is_kept(family: str) -> None:
    model = _family(family)
    drawn = draw_images(64, 32, 0)
    data = FlowData(model.latents(drawn.tensor()), model.tokenise([caption.text for caption in drawn.captions]))
    calls: list[tuple[int, int]] = []

    def losses(num_steps: int) -> float:
        options = {"num_steps": num_steps, "batch_size": 16, "learning_rate": 3e-3, "seed": 0}
        return train_flow(model, data, **options, progress=lambda *call: calls.append(call))  # type: ignore[arg-type]

    untrained = losses(1)
    assert losses(40) < 0.97 * untrained
    assert calls[-1] == (40, 40)


def test_held_out_captions_are_not_drawn() -> None:
    left_out = frozenset(caption.text for caption in HELD_OUT_CAPTIONS)
    drawn = {caption.text for caption in draw_images(2000, 8, 0, left_out).captions}
    assert not drawn & left_out
    assert {caption.text for caption in draw_images(2000, 8, 0).captions} & left_out


@pytest.mark.parametrize("family", FAMILIES)
def test_training_and_the_saved_pipeline_compute_the_same(family: str) -> None:
    """Text, packing and latents of training against the pipeline's own methods."""
    model = _family(family)
    images = draw_images(3, 32, 0).tensor()
    model.normalise(images)
    prompts = ["a red circle on a blue background", "a small white cross on a green background, on the right"]
    pipeline = model.pipeline
    reached: dict[str, torch.Tensor] = {}

    def keep(module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
        reached.update(kwargs)

    handle = pipeline.transformer.register_forward_pre_hook(keep, with_kwargs=True)
    model.velocity(model.latents(images)[:2], torch.tensor([0.5, 0.5]), model.tokenise(prompts))
    handle.remove()
    embeds = reached["encoder_hidden_states"]
    for i, prompt in enumerate(prompts):
        theirs = pipeline.encode_prompt(prompt, max_sequence_length=20)[0][0]
        torch.testing.assert_close(embeds[i, : len(theirs)], theirs, rtol=1e-4, atol=1e-5)
        assert not embeds[i, len(theirs) :].any()


@pytest.mark.parametrize("kind", ["hub", "folder"])
def test_a_model_that_is_not_there_leaves_nothing_behind(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    source = {
        "hub": {"kind": "hub", "repo": "owner/flux", "revision": "0" * 40},
        "folder": {"kind": "folder", "path": "no"},
    }
    config = Backbone(family="flux", source=source[kind], image_size=32, max_text_tokens=20)
    with pytest.raises(InputError):
        pretrain_backbone(config, tmp_path / "models" / "flux")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_folder_model_becomes_a_pointer(tiny_qwen_folder: tuple[Backbone, Path], tmp_path: Path) -> None:
    embedded, folder = tiny_qwen_folder
    config = Backbone.model_validate(embedded.model_dump() | {"source": {"kind": "folder", "path": str(folder)}})
    record = pretrain_backbone(config, tmp_path / "pointer")
    original = read_json(folder / "model.json")
    assert [path.name for path in (tmp_path / "pointer").iterdir()] == ["model.json"]
    assert record["num_parameters"] == original["num_parameters"]
    assert record["weights_sha256"] == original["weights_sha256"]
    assert load_backbone(config, tmp_path / "pointer").label == str(folder)


def test_a_folder_of_another_family_is_refused(tiny_qwen_folder: tuple[Backbone, Path], tmp_path: Path) -> None:
    source = {"kind": "folder", "path": str(tiny_qwen_folder[1])}
    config = Backbone(family="flux", source=source, image_size=32, max_text_tokens=20)
    with pytest.raises(InputError, match=r"(?s)FluxPipeline.*QwenImagePipeline"):
        pretrain_backbone(config, tmp_path / "pointer")


def test_a_family_without_embedded_form_is_refused(tmp_path: Path) -> None:
    config = _config("flux").model_copy(update={"family": "fluxx"})
    with pytest.raises(InputError, match="did you mean 'flux'"):
        pretrain_backbone(config, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="will not replace"):
        pretrain_backbone(_config("flux"), tmp_path / "mine")
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "thesis.tex"]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_samples_follow_the_colours_of_their_prompts(family: str, tmp_path: Path) -> None:
    sizes = {"flux": {"num_layers": 2, "num_single_layers": 2}, "qwen_image": {"num_layers": 3}}[family]
    config = _config(family, autoencoder_steps=500, flow_steps=600, batch_size=32, **sizes)
    accuracy = pretrain_backbone(config, tmp_path / family)["quality"]["colour_accuracy"]
    # A sixth of the backgrounds and a fifth of the shapes would be right by chance.
    assert accuracy["background"] > 0.8
    assert accuracy["shape"] > 0.35
