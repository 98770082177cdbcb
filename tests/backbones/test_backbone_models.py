"""The two families as backbones: equal to their pipelines, blind to neighbours, strict about what they cannot do."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from jagg.backbones import load_backbone
from jagg.backbones.protocol import Backbone, TextFeatures
from jagg.config import Backbone as BackboneConfig
from jagg.config import FolderModel, Guidance
from jagg.errors import InputError
from jagg.flow import sample_ode, shifted_sigmas

SHORT, LONG = "a red circle on a blue background", "a small white cross on a green background, on the right"


@pytest.fixture(params=["flux", "qwen"])
def model(request: pytest.FixtureRequest) -> tuple[BackboneConfig, Path]:
    return request.getfixturevalue(f"tiny_{request.param}_folder")


@pytest.fixture
def qwen(tiny_qwen_folder: tuple[BackboneConfig, Path]) -> Backbone:
    return _lively(load_backbone(*tiny_qwen_folder))


def _lively(backbone: Backbone) -> Backbone:
    """Weights far from their start, so that every input reaches the output."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in backbone.transformer.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return backbone


def _noise(backbone: Backbone, count: int) -> torch.Tensor:
    return torch.randn(count, *backbone.latent_shape, generator=torch.Generator().manual_seed(1))


def _changed(config: BackboneConfig, **changes: object) -> BackboneConfig:
    return BackboneConfig.model_validate(config.model_dump() | changes)


def _as_folder(config: BackboneConfig, location: Path, record_folder: Path) -> BackboneConfig:
    """The configuration of a pipeline folder elsewhere, with its record."""
    config = _changed(config, source=FolderModel(kind="folder", path=str(location)))
    record = {"family": config.family, "source": config.source.model_dump(), "label": str(location)}
    record_folder.mkdir(parents=True, exist_ok=True)
    (record_folder / "model.json").write_text(json.dumps(record))
    return config


@torch.no_grad()
def _our_image(backbone: Backbone, noise: torch.Tensor, steps: int) -> torch.Tensor:
    latents = sample_ode(backbone, backbone.encode_prompts([LONG]), noise, shifted_sigmas(steps, 3.0))
    return backbone.decode(latents)


def test_sampling_and_decoding_equal_the_pipelines_own(model: tuple[BackboneConfig, Path]) -> None:
    backbone = _lively(load_backbone(*model))
    noise = _noise(backbone, 1)
    pipeline = backbone.pipeline  # type: ignore[attr-defined]
    pipeline.set_progress_bar_config(disable=True)
    options = {"height": 32, "width": 32, "num_inference_steps": 4, "latents": noise, "output_type": "np"}
    theirs = pipeline(LONG, max_sequence_length=backbone.max_text_tokens, **options).images  # type: ignore[attr-defined]
    ours = _our_image(backbone, noise, 4)
    assert ours.float().std() > 5, "a flat image would hide a difference"
    assert (ours.numpy() - 255.0 * theirs).__abs__().max() < 1.0


def test_two_branch_guidance_equals_the_pipelines_own(tiny_qwen_folder: tuple[BackboneConfig, Path]) -> None:
    config, folder = tiny_qwen_folder
    guided = _lively(load_backbone(_changed(config, guidance=Guidance(kind="two_branch", scale=3.0)), folder))
    plain = _lively(load_backbone(config, folder))
    noise = _noise(guided, 1)
    pipeline = guided.pipeline  # type: ignore[attr-defined]
    pipeline.set_progress_bar_config(disable=True)
    options = {"height": 32, "width": 32, "num_inference_steps": 3, "latents": noise, "output_type": "np"}
    theirs = pipeline(LONG, negative_prompt=" ", true_cfg_scale=3.0, **options).images
    assert (_our_image(guided, noise, 3).numpy() - 255.0 * theirs).__abs__().max() < 1.0
    assert (guided.evaluations_per_velocity, plain.evaluations_per_velocity) == (2, 1)
    assert not torch.equal(_our_image(guided, noise, 3), _our_image(plain, noise, 3))


def test_two_branch_guidance_of_scale_one_is_one_evaluation(tiny_qwen_folder: tuple[BackboneConfig, Path]) -> None:
    config, folder = tiny_qwen_folder
    backbone = load_backbone(_changed(config, guidance=Guidance(kind="two_branch", scale=1.0)), folder)
    assert backbone.evaluations_per_velocity == 1


def test_saving_and_loading_changes_no_bit(model: tuple[BackboneConfig, Path], tmp_path: Path) -> None:
    first = load_backbone(*model)
    first.pipeline.save_pretrained(tmp_path / "copy")  # type: ignore[attr-defined]
    second = load_backbone(_as_folder(model[0], tmp_path / "copy", tmp_path / "record"), tmp_path / "record")
    text = first.encode_prompts([SHORT, LONG])
    for name, tensor in second.encode_prompts([SHORT, LONG]).tensors.items():
        assert torch.equal(tensor, text.tensors[name]), name
    latents, sigma = _noise(first, 2), torch.tensor([0.9, 0.3])
    assert torch.equal(first.velocity(latents, sigma, text), second.velocity(latents, sigma, text))
    assert torch.equal(first.decode(latents), second.decode(latents))


def test_encoding_is_blind_to_neighbours(model: tuple[BackboneConfig, Path]) -> None:
    backbone = load_backbone(*model)
    together, alone = backbone.encode_prompts([LONG, SHORT, LONG]), backbone.encode_prompts([SHORT])
    for name, tensor in together.tensors.items():
        assert torch.equal(tensor[1:2], alone.tensors[name]), name
        assert torch.equal(tensor[0], tensor[2]), name


def test_velocity_is_blind_to_neighbours(model: tuple[BackboneConfig, Path]) -> None:
    backbone = _lively(load_backbone(*model))
    backbone.transformer.double()
    text = backbone.encode_prompts([SHORT, LONG, SHORT])
    latents, sigma = _noise(backbone, 3).double(), torch.tensor([0.9, 0.5, 0.1])
    together = backbone.velocity(latents, sigma, text)
    for i in range(3):
        alone = backbone.velocity(latents[i : i + 1], sigma[i : i + 1], text[[i]])
        torch.testing.assert_close(together[i : i + 1], alone, rtol=0, atol=1e-9)
    assert (together[0] - together[2]).abs().max() > 1e-2


def _unpadded(text: TextFeatures, length: int) -> TextFeatures:
    return TextFeatures({name: tensor[:, :length] for name, tensor in text.tensors.items()})


def test_padding_of_a_short_prompt_is_masked(qwen: Backbone) -> None:
    qwen.transformer.double()
    text = qwen.encode_prompts([SHORT, LONG])
    mask = text.tensors["prompt_embeds_mask"]
    length = int(mask[0].sum())
    assert length < int(mask[1].sum()) <= mask.shape[1]
    latents, sigma = _noise(qwen, 2).double(), torch.tensor([0.7, 0.7])
    batched = qwen.velocity(latents, sigma, text)[:1]
    alone = qwen.velocity(latents[:1], sigma[:1], _unpadded(text[[0]], length))
    torch.testing.assert_close(batched, alone, rtol=0, atol=1e-9)
    unmasked = TextFeatures(text.tensors | {"prompt_embeds_mask": torch.ones_like(mask)})
    assert (qwen.velocity(latents, sigma, unmasked)[:1] - alone).abs().max() > 1e-3


def test_prompts_reach_the_velocity(model: tuple[BackboneConfig, Path]) -> None:
    backbone = _lively(load_backbone(*model))
    latents, sigma = _noise(backbone, 1), torch.tensor([0.7])
    short, long = (backbone.velocity(latents, sigma, backbone.encode_prompts([p])) for p in (SHORT, LONG))
    assert (short - long).abs().max() > 1e-3


def test_only_the_transformer_is_trainable(model: tuple[BackboneConfig, Path]) -> None:
    backbone = load_backbone(*model)
    for name, component in backbone.pipeline.components.items():  # type: ignore[attr-defined]
        if isinstance(component, torch.nn.Module):
            assert not component.training, name
            assert {p.requires_grad for p in component.parameters()} == {name == "transformer"}, name
    text = backbone.encode_prompts([SHORT])
    backbone.velocity(_noise(backbone, 1), torch.tensor([0.5]), text).square().sum().backward()
    gradients = [parameter.grad for parameter in backbone.transformer.parameters()]
    assert sum(gradient is not None and bool(gradient.any()) for gradient in gradients) > len(gradients) / 2


def test_decoded_images_are_bytes_over_the_whole_range(model: tuple[BackboneConfig, Path]) -> None:
    backbone = load_backbone(*model)
    images = backbone.decode(1000 * _noise(backbone, 3))
    assert (images.shape, images.dtype) == ((3, 32, 32, 3), torch.uint8)
    assert not images.requires_grad


def test_reduced_precision_keeps_the_latents_number_format(model: tuple[BackboneConfig, Path]) -> None:
    config, folder = model
    backbone = load_backbone(_changed(config, precision="bfloat16"), folder)
    assert {p.dtype for p in backbone.transformer.parameters()} == {torch.bfloat16}
    text = backbone.encode_prompts([SHORT])
    velocity = backbone.velocity(_noise(backbone, 1), torch.tensor([0.5]), text)
    full = load_backbone(config, folder).velocity(_noise(backbone, 1), torch.tensor([0.5]), text)
    assert velocity.dtype == torch.float32
    torch.testing.assert_close(velocity, full, rtol=0.1, atol=0.05)
    assert backbone.decode(_noise(backbone, 1)).dtype == torch.uint8


def test_image_size_must_divide(model: tuple[BackboneConfig, Path]) -> None:
    with pytest.raises(InputError, match="nearest: 32 or 40"):
        load_backbone(_changed(model[0], image_size=36), model[1])


@pytest.mark.parametrize("kind", ["distilled", "two_branch"])
def test_flux_without_guidance_input_refuses_guidance(tiny_flux_folder: tuple[BackboneConfig, Path], kind: str) -> None:
    config, folder = tiny_flux_folder
    with pytest.raises(InputError, match=r"guidance\.kind: none"):
        load_backbone(_changed(config, guidance={"kind": kind, "scale": 3.5}), folder)


def test_qwen_image_refuses_distilled_guidance(tiny_qwen_folder: tuple[BackboneConfig, Path]) -> None:
    config, folder = tiny_qwen_folder
    with pytest.raises(InputError, match="two_branch"):
        load_backbone(_changed(config, guidance={"kind": "distilled", "scale": 3.5}), folder)


def test_distilled_guidance_is_an_input_of_the_transformer(
    tiny_flux_folder: tuple[BackboneConfig, Path], tmp_path: Path
) -> None:
    from diffusers import FluxTransformer2DModel

    config, folder = tiny_flux_folder
    location = tmp_path / "distilled"
    shutil.copytree(folder, location)
    sizes = json.loads((location / "transformer" / "config.json").read_text()) | {"guidance_embeds": True}
    FluxTransformer2DModel.from_config(sizes).save_pretrained(location / "transformer")
    config = _as_folder(config, location, tmp_path / "record")
    with pytest.raises(InputError, match=r"guidance\.kind: distilled"):
        load_backbone(config, tmp_path / "record")
    velocities = []
    for scale in (1.0, 3.5):
        distilled = _changed(config, guidance={"kind": "distilled", "scale": scale})
        backbone = _lively(load_backbone(distilled, tmp_path / "record"))
        assert backbone.evaluations_per_velocity == 1
        velocities.append(backbone.velocity(_noise(backbone, 1), torch.tensor([0.5]), backbone.encode_prompts([LONG])))
    assert (velocities[0] - velocities[1]).abs().max() > 1e-4
