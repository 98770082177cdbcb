"""Named random streams: every draw's seed follows from names alone, so arms of one seed see equal noise.

A stream is keyed by (study seed, run seed, stream name, step, prompt, image index, denoising step) or the part of
it that applies. Whatever one arm consumes, the other arms' draws stay where they were (common random numbers).
"""

import hashlib


def stream_seed(stream: str, *parts: int | str) -> int:
    """A 63-bit seed for one draw of a named stream; equal arguments give equal seeds on every machine."""
    text = "\x1f".join([stream, *(f"{type(part).__name__}:{part}" for part in parts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
