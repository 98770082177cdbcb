"""Training of embedded scorers: losses, pairs, determinism, formats on disk, manifests."""

import json
import math

import numpy as np
import pytest
import torch
from transformers import AutoProcessor, CLIPModel, CLIPProcessor

from jagg.config import EmbeddedScorer, FolderModel, Scorer
from jagg.errors import InputError
from jagg.pretrain.captions import all_captions, random_caption, vocabulary
from jagg.pretrain.contrastive import contrastive_loss, drawn, scenes_in_all_shapes
from jagg.pretrain.degradations import DEGRADATIONS, augment, degrade, fade
from jagg.pretrain.preferences import ATTRIBUTES, preference_loss, quality_pairs, with_one_change
from jagg.pretrain.scorer_models import CREATORS
from jagg.pretrain.scorers import pretrain_scorer
from jagg.scorers import load_scorer


def embedded(family, **settings):
    source = EmbeddedScorer(kind="embedded", **{"contrastive_steps": 3, "batch_size": 8, **settings})
    return Scorer(family=family, version="v2.1" if family == "hpsv2" else None, source=source)


@pytest.mark.parametrize("family", sorted(CREATORS))
def test_equal_configuration_gives_equal_weights(family, tmp_path):
    config = embedded(family, preference_steps=1)
    state = torch.random.get_rng_state()
    hashes = [pretrain_scorer(config, tmp_path / name)["weight_sha256"] for name in ("first", "second")]
    assert hashes[0] == hashes[1]
    assert torch.equal(state, torch.random.get_rng_state())
    other = pretrain_scorer(embedded(family, preference_steps=1, seed=5), tmp_path / "other")
    assert other["weight_sha256"] != hashes[0]


def test_the_three_embedded_scorers_are_different_models(tiny_scorer_folders):
    manifests = [json.loads((folder / "scorer.json").read_text()) for _, folder in tiny_scorer_folders.values()]
    assert len({manifest["num_parameters"] for manifest in manifests}) == 3
    assert len({manifest["weight_sha256"] for manifest in manifests}) == 3


def test_the_manifest_tells_what_was_built(tiny_scorer_folders):
    for config, folder in tiny_scorer_folders.values():
        manifest = json.loads((folder / "scorer.json").read_text())
        scorer = load_scorer(config, folder)
        assert manifest["label"] == scorer.name
        assert manifest["source"] == config.source.model_dump(mode="json")
        assert manifest["num_parameters"] == sum(p.numel() for p in scorer.model.parameters())
        assert manifest["image_size"] == 32
        assert manifest["training_s"] > 0
        accuracies = manifest["held_out_accuracy"]
        assert {f"right_{attribute}" for attribute in ATTRIBUTES} < set(accuracies)
        assert all(0 <= value <= 1 for value in accuracies.values())
        assert accuracies["right_background"] > 0.65


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(CREATORS))
def test_a_short_training_already_ranks_right_captions_first(family, tmp_path):
    preference_steps = {"hpsv2": 60, "pickscore": 60}.get(family, 0)
    config = embedded(family, contrastive_steps=250, preference_steps=preference_steps, batch_size=64)
    accuracies = pretrain_scorer(config, tmp_path / family)["held_out_accuracy"]
    assert min(accuracies["right_colour"], accuracies["right_background"]) > 0.85
    assert accuracies["top_1"] > 20 / 120
    if preference_steps:
        assert accuracies["preference_matching"] > 0.8
        three_standard_errors = 3 * (0.25 / 240) ** 0.5  # of 240 pairs at chance
        assert accuracies["preference_quality"] > 0.5 + three_standard_errors


def test_clip_folders_open_with_the_public_loaders(tiny_scorer_folders):
    folder = tiny_scorer_folders["pickscore"][1]
    text = "a small red circle on a blue background, on the left"
    batches = [loader.from_pretrained(folder)(text=[text]) for loader in (CLIPProcessor, AutoProcessor)]
    assert batches[0]["input_ids"] == batches[1]["input_ids"]
    assert CLIPModel.from_pretrained(folder).config.projection_dim == 64


def test_hpsv2_checkpoint_has_the_published_form(tiny_scorer_folders):
    checkpoint = torch.load(tiny_scorer_folders["hpsv2"][1] / "HPS_v2.1_compressed.pt", weights_only=True)
    assert "visual.conv1.weight" in checkpoint["state_dict"]
    assert "logit_scale" in checkpoint["state_dict"]


def test_every_caption_word_is_one_token(tiny_scorer_folders):
    hpsv2, clip = (load_scorer(*tiny_scorer_folders[metric]) for metric in ("hpsv2", "clipscore"))
    for word in vocabulary():
        assert len(hpsv2._tokenizer.encode(word)) == 1, word
        assert len(clip.tokens([word])["input_ids"][0]) == 3, word
    texts = [caption.text for caption in all_captions()]
    assert not any(hpsv2.truncated(texts))
    assert not any(clip.truncated(texts))


def test_a_pointer_is_checked_and_recorded(tiny_scorer_folders, tmp_path):
    config, folder = tiny_scorer_folders["clipscore"]
    pointer = config.model_copy(update={"source": FolderModel(kind="folder", path=str(folder))})
    manifest = pretrain_scorer(pointer, tmp_path / "clipscore")
    assert [path.name for path in (tmp_path / "clipscore").iterdir()] == ["scorer.json"]
    assert manifest["weight_sha256"] == load_scorer(config, folder).weight_sha256
    assert load_scorer(pointer, tmp_path / "clipscore").name == manifest["label"]


def test_a_failure_leaves_nothing_behind(tmp_path):
    absent = Scorer(family="clipscore", source=FolderModel(kind="folder", path=str(tmp_path / "absent")))
    for config in (absent, embedded("no_such_family")):
        with pytest.raises(InputError):
            pretrain_scorer(config, tmp_path / "results" / "clipscore")
    assert [path for path in (tmp_path / "results").rglob("*") if path.is_file()] == []


def test_contrastive_loss_does_not_oppose_equal_texts():
    unit = torch.eye(2)[[0, 1, 0, 1]]
    texts = ["a circle", "a square", "a circle", "a square"]
    loss = contrastive_loss(unit, unit, torch.tensor(100.0), texts)
    assert loss == pytest.approx(math.log(2), abs=1e-4)
    opposed = contrastive_loss(unit, unit, torch.tensor(100.0), [f"{text} {i}" for i, text in enumerate(texts)])
    assert opposed == pytest.approx(math.log(2), abs=1e-4)
    near = torch.nn.functional.normalize(unit + torch.tensor([[0.1, 0], [0, 0], [0, 0], [0, 0]]), dim=1)
    assert contrastive_loss(near, unit, torch.tensor(100.0), texts) >= loss


def test_preference_loss_is_bradley_terry():
    better, worse = torch.tensor([0.22]), torch.tensor([0.21])
    assert torch.exp(-preference_loss(better, worse, torch.tensor(100.0))).item() == pytest.approx(0.731059, abs=1e-5)
    assert preference_loss(better, better, torch.tensor(50.0)).item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_one_change_changes_one_attribute_and_stays_visible(attribute):
    rng = np.random.default_rng(0)
    for _ in range(50):
        caption = random_caption(rng)
        changed = with_one_change(caption, attribute, rng)
        differing = [
            name for name in ("shape", "colour", "background") if getattr(caption, name) != getattr(changed, name)
        ]
        assert differing == [attribute]
        assert changed.colour != changed.background


@pytest.mark.parametrize("kind", sorted(DEGRADATIONS))
def test_degradation_grows_with_strength_and_is_none_at_zero(kind):
    images = drawn([random_caption(np.random.default_rng(i)) for i in range(8)], np.random.default_rng(0), 32)
    distance = [
        np.abs(degrade(images, kind, np.full(8, strength), np.random.default_rng(1)).astype(int) - images).mean()
        for strength in (0.0, 0.3, 0.9)
    ]
    assert distance[0] == 0
    assert 0 < distance[1] < distance[2]


def test_quality_pairs_are_worse_where_they_say_so():
    pairs = quality_pairs(64, np.random.default_rng(0), 32)
    assert (pairs.better != pairs.worse).reshape(64, -1).any(1).all()
    assert pairs.better.dtype == pairs.worse.dtype == np.uint8


def test_augmentation_leaves_half_of_the_images_alone():
    images = drawn(scenes_in_all_shapes(64, np.random.default_rng(0)), np.random.default_rng(0), 32)
    untouched = (augment(images, np.random.default_rng(2)) == images).reshape(64, -1).all(1).mean()
    assert 0.3 < untouched < 0.7


def test_fading_halves_the_distance_from_grey_and_none_is_none():
    images = np.array([0, 28, 128, 228, 255], np.uint8).repeat(3).reshape(1, 5, 1, 3)
    assert np.array_equal(fade(images, np.zeros(1)), images)
    assert fade(images, np.full(1, 0.5))[0, :, 0, 0].tolist() == [64, 78, 128, 178, 192]
    assert (fade(images, np.ones(1)) == 128).all()
