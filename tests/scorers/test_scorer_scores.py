"""Scores of real small models in the three formats: range, batching, truncation, input checks, names."""

import sys
from subprocess import run

import numpy as np
import pytest
from torch import nn

from jagg.pretrain.captions import base_captions, draw
from jagg.scorers import SCORERS, load_scorer, preflight
from jagg.scorers.hpsv2 import HPSv2, tokenizer_of

METRICS = ("hpsv2", "pickscore", "clipscore")


@pytest.fixture(scope="session")
def tiny_scorers(tiny_scorer_folders):
    return {metric: load_scorer(config, folder) for metric, (config, folder) in tiny_scorer_folders.items()}


@pytest.fixture(params=METRICS)
def scorer(request, tiny_scorers):
    return tiny_scorers[request.param]


@pytest.fixture(scope="module")
def pairs():
    captions = base_captions()[::15]
    images = np.stack([draw(caption, np.random.default_rng(i), 48) for i, caption in enumerate(captions)])
    return images, [caption.text for caption in captions]


def test_values_are_cosines_in_float64(scorer, pairs):
    images, prompts = pairs
    values = scorer.score(images=images, prompts=prompts)
    assert values.dtype == np.float64
    assert values.shape == (len(prompts),)
    assert np.abs(values).max() <= 1
    assert len(set(values)) == len(values)
    assert scorer.unit == "cosine"


def test_same_image_twice_is_equal_in_every_bit(scorer, pairs):
    images, prompts = pairs
    assert (scorer.score(images=images, prompts=prompts) == scorer.score(images=images, prompts=prompts)).all()


def test_batch_size_does_not_change_values(scorer, pairs):
    images, prompts = pairs
    together = scorer.score(images=images, prompts=prompts)
    alone = [scorer.score(images=images[i : i + 1], prompts=prompts[i : i + 1])[0] for i in range(len(prompts))]
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_loading_with_another_batch_size_does_not_change_values(tiny_scorer_folders, tiny_scorers, pairs):
    images, prompts = pairs
    for metric, (config, folder) in tiny_scorer_folders.items():
        other = load_scorer(config.model_copy(update={"batch_size": 3}), folder)
        np.testing.assert_allclose(
            other.score(images=images, prompts=prompts),
            tiny_scorers[metric].score(images=images, prompts=prompts),
            atol=1e-6,
        )


def test_scores_follow_their_pairs(scorer, pairs):
    images, prompts = pairs
    order = np.random.default_rng(0).permutation(len(prompts))
    shuffled = scorer.score(images=images[order], prompts=[prompts[i] for i in order])
    np.testing.assert_allclose(shuffled, scorer.score(images=images, prompts=prompts)[order], atol=1e-6)


def test_derangement_of_prompts_lowers_the_mean(tiny_scorers, pairs):
    images, prompts = pairs
    for scorer in tiny_scorers.values():
        right = scorer.score(images=images, prompts=prompts).mean()
        assert right > scorer.score(images=images, prompts=prompts[1:] + prompts[:1]).mean()


def test_an_image_larger_than_the_model_is_scaled(scorer):
    caption = base_captions()[0]
    small, large = (draw(caption, np.random.default_rng(0), size) for size in (32, 128))
    values = [scorer.score(images=image[None], prompts=[caption.text])[0] for image in (small, large)]
    assert abs(values[0] - values[1]) < 0.05


def _ids(scorer, prompts):
    tokens = scorer.tokens(prompts)
    return tokens["text"] if "text" in tokens else tokens["input_ids"]


def test_long_prompts_keep_their_end_token(scorer):
    room = scorer.max_tokens - 2
    counts = (room - 1, room, room + 1, 200)
    prompts = [" ".join(["red"] * count) for count in counts]
    assert scorer.truncated(prompts) == [False, False, True, True]
    end = _ids(scorer, ["red"])[0, 2]
    ids = _ids(scorer, prompts)
    assert ids.shape[1] <= scorer.max_tokens
    assert [int(row[min(count, room) + 1]) for row, count in zip(ids, counts)] == [end] * len(counts)
    image = draw(base_captions()[0], np.random.default_rng(0), 32)
    values = scorer.score(images=np.stack([image] * 4), prompts=prompts)
    assert values[1] == values[2] == values[3] != values[0]


def test_published_models_read_77_tokens(tmp_path):
    """The tokenizer of ViT-H-14, which comes with open_clip."""
    scorer = HPSv2(
        tokenizer=tokenizer_of(tmp_path), label="hps", weight_sha256="0" * 64, image_size=32, model=nn.Identity(),
        batch_size=4, device="cpu",
    )  # fmt: skip
    prompts = [" ".join(["red"] * count) for count in (74, 75, 76, 200)]
    assert scorer.truncated(prompts) == [False, False, True, True]
    ids = scorer.tokens(prompts)["text"]
    assert ids.shape == (4, 77)
    end = scorer.tokens(["red"])["text"][0, 2]
    assert [int(row[row.nonzero().max()]) for row in ids] == [end] * 4
    assert (ids[1] == ids[2]).all()
    assert (ids[1] == ids[3]).all()


def test_words_beyond_the_vocabulary_still_count(scorer):
    images = np.stack([draw(base_captions()[0], np.random.default_rng(0), 32)] * 2)
    assert np.ptp(scorer.score(images=images, prompts=["a cat", "a dog"])) > 0


def test_arguments_swapped_or_positional(scorer, pairs):
    images, prompts = pairs
    with pytest.raises(TypeError):
        scorer.score(images=prompts, prompts=images)
    with pytest.raises(TypeError):
        scorer.score(images, prompts)
    with pytest.raises(TypeError):
        scorer.score(images=images, prompts="a red circle")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda images: images.astype(np.float32) / 255,
        lambda images: (images / 255).astype(np.uint8),
        lambda images: images[..., 0],
        lambda images: np.moveaxis(images, -1, 1),
        lambda images: images[:3],
    ],
    ids=["float", "rescaled to 0-1", "grey", "channels first", "fewer images than prompts"],
)
def test_anything_but_matching_uint8_rgb_is_refused(scorer, pairs, spoil):
    images, prompts = pairs
    with pytest.raises(ValueError):
        scorer.score(images=spoil(images), prompts=prompts)


def test_names_hold_model_resolution_and_hash(tiny_scorers):
    names = [scorer.name for scorer in tiny_scorers.values()]
    labels, hashes = zip(*(name.split("@") for name in names))
    assert labels == ("embedded-hpsv2.1-32", "embedded-pickscore-32", "embedded-clipscore-32")
    assert len(set(hashes)) == 3
    assert all(len(digest) == 12 for digest in hashes)


def test_preflight_scores_the_bundled_image(tiny_scorers):
    values = preflight(tiny_scorers)
    assert set(values) == set(METRICS)
    assert all(-1 <= value <= 1 for value in values.values())


def test_a_family_imports_only_its_own_libraries(tiny_scorer_folders):
    code = (
        "import sys; from pathlib import Path; from jagg.config import Scorer; import jagg.scorers;"
        "assert 'torch' not in sys.modules;"
        "jagg.scorers.load_scorer(Scorer.model_validate_json(sys.argv[1]), Path(sys.argv[2]));"
        "print('open_clip' in sys.modules, 'transformers.models.clip' in sys.modules, 'diffusers' in sys.modules)"
    )
    seen = {}
    for metric in ("hpsv2", "clipscore"):
        config, folder = tiny_scorer_folders[metric]
        command = [sys.executable, "-c", code, config.model_dump_json(), str(folder)]
        result = run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        seen[metric] = result.stdout.split()
    assert seen["hpsv2"][0] == "True"
    assert seen["hpsv2"][2] == "False"
    assert seen["clipscore"] == ["False", "True", "False"]


def test_every_family_has_a_loader():
    assert set(SCORERS) == set(METRICS)
