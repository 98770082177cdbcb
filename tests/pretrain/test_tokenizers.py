"""The tokenizers: every word of a caption is one token, and no text is lost on the way."""

import pytest
from diffusers import QwenImagePipeline

from jagg.backbones.qwen_image import check_template
from jagg.config import EmbeddedBackbone
from jagg.errors import InputError
from jagg.pretrain.captions import all_captions, vocabulary
from jagg.pretrain.qwen_image import untrained_pipeline
from jagg.pretrain.tokenizers import clip_tokenizer, t5_tokenizer

CAPTIONS = [caption.text for caption in all_captions()]


@pytest.fixture(scope="module")
def qwen() -> QwenImagePipeline:
    return untrained_pipeline(EmbeddedBackbone(kind="embedded", autoencoder_steps=1, flow_steps=1, num_layers=1))


def _num_words(text: str) -> int:
    return len(text.replace(",", " ,").split())


def test_clip_makes_one_token_of_a_word() -> None:
    tokenizer = clip_tokenizer(16)
    for text in CAPTIONS:
        ids = tokenizer(text).input_ids
        assert len(ids) == _num_words(text) + 2 <= 16
        assert (ids[0], ids[-1]) == (tokenizer.bos_token_id, tokenizer.eos_token_id)
        assert tokenizer.eos_token_id not in ids[:-1]


def test_t5_makes_one_token_of_a_word() -> None:
    tokenizer = t5_tokenizer()
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1, 2)
    for text in CAPTIONS:
        ids = tokenizer(text).input_ids
        assert len(ids) == _num_words(text) + 1 <= 16
        assert 2 not in ids
        assert tokenizer.decode(ids[:-1]) == text


def test_qwen_makes_one_token_of_a_word_after_34_of_the_template(qwen: QwenImagePipeline) -> None:
    tokenizer, template = qwen.tokenizer, qwen.prompt_template_encode
    prefix, suffix = template.split("{}")
    assert len(tokenizer(prefix).input_ids) == 34 == qwen.prompt_template_encode_start_idx
    num_after = len(tokenizer(suffix).input_ids)
    for text in CAPTIONS:
        ids = tokenizer(template.format(text)).input_ids
        assert len(ids) == 34 + _num_words(text) + num_after <= 34 + 20
        assert tokenizer.decode(ids) == template.format(text)


def test_equal_tokenizers_every_time(qwen: QwenImagePipeline) -> None:
    again = untrained_pipeline(EmbeddedBackbone(kind="embedded", autoencoder_steps=1, flow_steps=1, num_layers=1))
    assert again.tokenizer.get_vocab() == qwen.tokenizer.get_vocab()
    assert clip_tokenizer(16).get_vocab() == clip_tokenizer(16).get_vocab()


def test_a_tokenizer_that_does_not_fit_the_template_is_refused(qwen: QwenImagePipeline) -> None:
    misfit = QwenImagePipeline(
        scheduler=qwen.scheduler, vae=qwen.vae, text_encoder=None, tokenizer=t5_tokenizer(), transformer=None
    )
    with pytest.raises(InputError, match="34 tokens before the prompt"):
        check_template(misfit, "here")


def test_the_vocabulary_covers_every_word() -> None:
    assert {word for text in CAPTIONS for word in text.replace(",", " ,").split()} == set(vocabulary())
