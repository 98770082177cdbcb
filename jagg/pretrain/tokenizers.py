"""Tokenizers made here: each word of the captions and of QwenImage's template is one token, other text several."""

import re
from collections.abc import Iterable
from itertools import pairwise

from tokenizers import pre_tokenizers
from transformers import CLIPTokenizer, Qwen2Tokenizer, T5Tokenizer

from jagg.pretrain.captions import all_captions, vocabulary

_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
"""One symbol for each byte, so that any text has tokens."""
_WORD_END = "</w>"
_QWEN_SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>")
_RARE = -10.0
"""Log-probability of single characters, so low that a known word is never split."""


def word_merges(words: Iterable[list[str]]) -> list[tuple[str, str]]:
    """Byte-pair merges, most urgent first, that make one token of each word, given as its symbols.

    By hand, because trainers of byte-pair vocabularies order ties differently from run to run.
    """
    ranks: dict[tuple[str, str], int] = {}
    for word in words:
        symbols = list(word)
        while len(symbols) > 1:
            pairs = list(pairwise(symbols))
            pair = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
            ranks.setdefault(pair, len(ranks))
            place = pairs.index(pair)
            symbols[place : place + 2] = ["".join(pair)]
    return list(ranks)


def clip_tokenizer(max_length: int) -> CLIPTokenizer:
    """Byte-pair tokenizer of the captions' words, in CLIP's form."""
    merges = word_merges([*word[:-1], word[-1] + _WORD_END] for word in vocabulary())
    symbols = [*_BYTES, *(byte + _WORD_END for byte in _BYTES), *map("".join, merges)]
    symbols += ["<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab=_numbered(symbols), merges=merges, model_max_length=max_length)


def t5_tokenizer() -> T5Tokenizer:
    """Unigram tokenizer of the captions' words, in T5's form; 0, 1, 2 are padding, end and unknown."""
    pieces = [piece if piece == "," else f"▁{piece}" for piece in vocabulary()]
    characters = sorted({character for piece in pieces for character in piece} - set(pieces))
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", _RARE)]
    scores = special + [(piece, -1.0) for piece in pieces] + [(character, _RARE) for character in characters]
    return T5Tokenizer(vocab=scores, extra_ids=0)


def qwen_tokenizer(template: str) -> Qwen2Tokenizer:
    """Byte-pair tokenizer of the words of the captions inside the pipeline's template, in Qwen2's form."""
    blank = Qwen2Tokenizer()
    texts = [template.format(caption.text) for caption in all_captions()]
    parts = {part for text in texts for part in re.split("|".join(map(re.escape, _QWEN_SPECIAL_TOKENS)), text)}
    split = blank.backend_tokenizer.pre_tokenizer.pre_tokenize_str
    words = sorted({word for part in parts for word, _ in split(part)})
    merges = word_merges(map(list, words))
    return Qwen2Tokenizer(
        vocab=_numbered(["<|endoftext|>", *_BYTES, *map("".join, merges)]),
        merges=merges,
        extra_special_tokens=list(_QWEN_SPECIAL_TOKENS),
    )


def _numbered(symbols: list[str]) -> dict[str, int]:
    return {symbol: number for number, symbol in enumerate(dict.fromkeys(symbols))}
