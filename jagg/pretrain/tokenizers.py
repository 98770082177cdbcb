"""Tokenizers made here: every word of the captions (and of QwenImage's template) is one token, other text falls apart."""

from transformers import CLIPTokenizer, Qwen2Tokenizer, T5Tokenizer

from jagg.pretrain.captions import all_captions, vocabulary

_ENOUGH = 4096
"""Upper limit of a vocabulary; the merges of the texts end far below it."""
_QWEN_SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>")
_RARE = -10.0
"""Log-probability of single characters, so low that a known word is never split."""


def clip_tokenizer(max_length: int) -> CLIPTokenizer:
    """Byte-pair tokenizer of the captions, in CLIP's form."""
    texts = [caption.text for caption in all_captions()]
    blank = CLIPTokenizer(model_max_length=max_length)
    return blank.train_new_from_iterator(texts, vocab_size=_ENOUGH, show_progress=False)


def t5_tokenizer() -> T5Tokenizer:
    """Unigram tokenizer of the captions' words, in T5's form; 0, 1, 2 are padding, end and unknown."""
    pieces = [piece if piece == "," else f"▁{piece}" for piece in vocabulary()]
    characters = sorted({character for piece in pieces for character in piece} - set(pieces))
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", _RARE)]
    scores = special + [(piece, -1.0) for piece in pieces] + [(character, _RARE) for character in characters]
    return T5Tokenizer(vocab=scores, extra_ids=0)


def qwen_tokenizer(template: str) -> Qwen2Tokenizer:
    """Byte-pair tokenizer of the captions inside the pipeline's template, in Qwen2's form."""
    texts = [template.format(caption.text) for caption in all_captions()]
    for token in _QWEN_SPECIAL_TOKENS:
        texts = [text.replace(token, "") for text in texts]
    blank = Qwen2Tokenizer(extra_special_tokens=list(_QWEN_SPECIAL_TOKENS))
    return blank.train_new_from_iterator(texts, vocab_size=_ENOUGH, show_progress=False)
