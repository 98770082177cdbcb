"""The colour judge on images whose colours are known, and single-frame convolutions against the 3-D ones."""

import numpy as np
import torch

from jagg.config import EmbeddedBackbone
from jagg.pretrain.captions import COLOURS, Caption
from jagg.pretrain.colours import colour_accuracy, shown_colours
from jagg.pretrain.embedded import draw_images
from jagg.pretrain.qwen_image import single_frame_convolutions, untrained_pipeline


def test_drawn_images_show_their_captions_colours() -> None:
    drawn = draw_images(300, 32, 0)
    accuracy = colour_accuracy(drawn.captions, drawn.pixels)
    assert accuracy == {"background": 1.0, "shape": 1.0}


def test_images_of_other_captions_do_not() -> None:
    drawn = draw_images(300, 32, 0)
    accuracy = colour_accuracy(drawn.captions[1:] + drawn.captions[:1], drawn.pixels)
    assert accuracy["background"] < 0.3
    assert accuracy["shape"] < 0.3


def test_a_flat_image_shows_no_shape() -> None:
    flat = np.full((32, 32, 3), COLOURS["blue"], dtype=np.uint8)
    assert shown_colours(flat) == ("blue", None)
    assert colour_accuracy([Caption("circle", "red", "blue")], flat[None]) == {"background": 1.0, "shape": 0.0}


def test_single_frame_convolutions_equal_the_causal_ones() -> None:
    torch.manual_seed(0)
    vae = untrained_pipeline(EmbeddedBackbone(kind="embedded", autoencoder_steps=1, flow_steps=1, num_layers=1)).vae
    vae.double()
    frames = draw_images(2, 32, 0).tensor().double()[:, :, None]
    with torch.no_grad():
        latents = vae.encode(frames).latent_dist.mode()
        with single_frame_convolutions(vae):
            fast = vae.encode(frames).latent_dist.mode()
            image = vae.decode(latents).sample
        torch.testing.assert_close(fast, latents, rtol=0, atol=1e-12)
        torch.testing.assert_close(image, vae.decode(latents).sample, rtol=0, atol=1e-12)
    assert latents.std() > 1e-3
    assert not [module for module in vae.modules() if "forward" in vars(module)]
