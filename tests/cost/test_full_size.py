"""Sizes and costs of the full-size transformers, on the meta device (published.md, Full-size cost)."""

import pytest

from jagg.cost.full_size import FULL_SIZE, forward_flops, meta_transformer
from jagg.errors import InputError

GRID_720 = 45
"""720 pixels: autoencoder 8x, packing 2x."""


@pytest.mark.parametrize(("family", "count"), [("flux", 11_901_408_320), ("qwen_image", 20_430_401_088)])
def test_parameters_of_the_full_size_transformers(family: str, count: int) -> None:
    assert meta_transformer(family, FULL_SIZE[family]).num_parameters() == count


@pytest.mark.parametrize(("family", "text_tokens", "teraflops"), [("flux", 512, 37.28), ("qwen_image", 128, 32.69)])
def test_forward_flops_at_720_pixels(family: str, text_tokens: int, teraflops: float) -> None:
    flops = forward_flops(family, FULL_SIZE[family], GRID_720, text_tokens)
    assert flops / 1e12 == pytest.approx(teraflops, abs=0.005)


def test_an_unknown_family_has_no_cost() -> None:
    with pytest.raises(InputError, match="unknown backbone family"):
        forward_flops("flus", FULL_SIZE["flux"], GRID_720, 512)
