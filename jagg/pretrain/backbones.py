"""Building a backbone's model folder: training an embedded one, or pointing at one that exists."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from jagg import config as configuration
from jagg.backbones import load_backbone
from jagg.backbones.protocol import Backbone
from jagg.backbones.source import RECORD, silence_libraries, weights_sha256
from jagg.errors import unknown_name
from jagg.flow import sample_ode, shifted_sigmas
from jagg.pretrain.autoencoder import reconstruction_psnr, train_autoencoder
from jagg.pretrain.captions import Caption, all_captions
from jagg.pretrain.colours import colour_accuracy
from jagg.pretrain.degradations import fade
from jagg.pretrain.embedded import EmbeddedFamily, draw_images, parameter_counts
from jagg.pretrain.flow_matching import FlowData, train_flow
from jagg.pretrain.folders import replaced_folder
from jagg.records import write_json
from jagg.streams import stream_seed

Progress = Callable[[str, int, int], None]
"""Called with the stage, the optimizer steps done and their number."""

NUM_IMAGES = 6144
"""Most drawn images that an embedded backbone is trained on; a short training draws no more than it can see."""
HELD_OUT_CAPTIONS = tuple(all_captions()[::17])
"""Captions that no training image has; the colour check samples them."""
SAMPLES_FILE = "samples.png"
_SAMPLING_STEPS, _SHIFT = 20, 3.0
_SAMPLE_COLUMNS = 8


def _flux(config: configuration.Backbone, source: configuration.EmbeddedBackbone, device: str) -> EmbeddedFamily:
    from jagg.pretrain.flux import EmbeddedFlux

    return EmbeddedFlux(config, source, device)


def _qwen_image(config: configuration.Backbone, source: configuration.EmbeddedBackbone, device: str) -> EmbeddedFamily:
    from jagg.pretrain.qwen_image import EmbeddedQwenImage

    return EmbeddedQwenImage(config, source, device)


EMBEDDED_FAMILIES = {"flux": _flux, "qwen_image": _qwen_image}
EMBEDDED_VAE_DOWNSCALE = 4


def embedded_transformer_config(family: str, source: configuration.EmbeddedBackbone) -> dict[str, Any]:
    """Arguments of an embedded backbone's transformer class.

    Raises:
        InputError: no embedded form of the family.
    """
    from jagg.pretrain import flux, qwen_image

    modules = {"flux": flux, "qwen_image": qwen_image}
    if family not in modules:
        raise unknown_name("embedded backbone family", family, modules)
    return modules[family].transformer_config(source)


def pretrain_backbone(
    config: configuration.Backbone,
    out: Path,
    device: str = "cpu",
    progress: Progress = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Fill the model folder `out` (results/<study>/models/<backbone>/) and return its record, model.json.

    An embedded backbone is trained and its pipeline saved; of a hub or folder one only the record is written, once
    its files are there. A folder that exists is replaced as a whole.

    Raises:
        InputError: no embedded form of the family; files missing, damaged or unreachable.
    """
    with replaced_folder(Path(out), RECORD) as folder:
        if isinstance(config.source, configuration.EmbeddedBackbone):
            record = _train(config, config.source, folder, device, progress)
        else:
            from jagg.pretrain.external_models import pointer_record

            record = pointer_record(config, folder)
        write_json(folder / RECORD, record)
    return record


def _train(
    config: configuration.Backbone,
    source: configuration.EmbeddedBackbone,
    folder: Path,
    device: str,
    progress: Progress,
) -> dict[str, Any]:
    if config.family not in EMBEDDED_FAMILIES:
        raise unknown_name("embedded backbone family", config.family, EMBEDDED_FAMILIES)
    silence_libraries()
    start = time.perf_counter()
    seed_of = partial(stream_seed, "pretrain", source.seed, config.family)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of("initial weights"))
        family = EMBEDDED_FAMILIES[config.family](config, source, device)
        quality = _fit(family, config, source, seed_of, device, progress)
    family.pipeline.save_pretrained(folder)
    parameters = parameter_counts(family.pipeline)
    record = {
        "family": config.family,
        "source": source.model_dump(mode="json"),
        "label": f"embedded {config.family} ({parameters['transformer'] / 1e6:.2f} M parameters)",
        "num_parameters": parameters["transformer"],
        "weights_sha256": weights_sha256(folder),
    }
    write_json(folder / RECORD, record)
    quality["training_s"] = round(time.perf_counter() - start, 3)
    quality |= _sampled_quality(load_backbone(config, folder, device), folder, seed_of("check"))
    return record | {"parameters": parameters, "quality": quality}


def _fit(
    family: EmbeddedFamily,
    config: configuration.Backbone,
    source: configuration.EmbeddedBackbone,
    seed_of: Callable[[str], int],
    device: str,
    progress: Progress,
) -> dict[str, Any]:
    left_out = frozenset(caption.text for caption in HELD_OUT_CAPTIONS)
    seen = max(source.autoencoder_steps, source.flow_steps) * source.batch_size
    drawn = draw_images(min(NUM_IMAGES, seen), config.image_size, seed_of("images"), left_out)
    images = drawn.tensor(device)
    train_autoencoder(
        family,
        images,
        num_steps=source.autoencoder_steps,
        seed=seed_of("autoencoder"),
        progress=partial(progress, "autoencoder"),
    )
    held_out = draw_images(256, config.image_size, seed_of("held-out images")).tensor(device)
    dulled = replace(drawn, pixels=_faded(drawn.pixels, source.fade, seed_of("fade"))).tensor(device)
    latents = torch.cat([family.latents(part) for part in dulled.split(256)])
    loss = train_flow(
        family,
        FlowData(latents, family.tokenise([caption.text for caption in drawn.captions])),
        num_steps=source.flow_steps,
        batch_size=source.batch_size,
        learning_rate=source.learning_rate,
        seed=seed_of("flow matching"),
        progress=partial(progress, "flow matching"),
    )
    return {"autoencoder_psnr_db": reconstruction_psnr(family, held_out), "flow_loss": loss}


def _faded(pixels: np.ndarray, most: float, seed: int) -> np.ndarray:
    return fade(pixels, np.random.default_rng(seed).uniform(0, most, len(pixels)))


def _sampled_quality(backbone: Backbone, folder: Path, seed: int) -> dict[str, Any]:
    captions = list(HELD_OUT_CAPTIONS)
    images = sample_images(backbone, captions, seed)
    rows = len(images) // _SAMPLE_COLUMNS
    shown = images[: rows * _SAMPLE_COLUMNS].reshape(rows, _SAMPLE_COLUMNS, *images.shape[1:])
    grid = np.pad(shown, ((0, 0), (0, 0), (1, 1), (1, 1), (0, 0)), constant_values=255)
    sheet = grid.transpose(0, 2, 1, 3, 4).reshape(rows * grid.shape[2], -1, 3)
    Image.fromarray(sheet).save(folder / SAMPLES_FILE)
    return {
        "colour_accuracy": colour_accuracy(captions, images),
        "colour_accuracy_samples": len(captions),
        "samples": [caption.text for caption in captions[: rows * _SAMPLE_COLUMNS]],
    }


@torch.no_grad()
def sample_images(backbone: Backbone, captions: list[Caption], seed: int) -> np.ndarray:
    """One image a caption, `(captions, height, width, 3)`, by 20 ODE steps from noise of `seed`."""
    text = backbone.encode_prompts([caption.text for caption in captions])
    noise = torch.randn(len(captions), *backbone.latent_shape, generator=torch.Generator().manual_seed(seed))
    device = next(backbone.transformer.parameters()).device
    latents = sample_ode(backbone, text, noise.to(device), shifted_sigmas(_SAMPLING_STEPS, _SHIFT))
    return backbone.decode(latents).cpu().numpy()
