"""What training costs on the meta device, against a real run of the same small transformer."""

import pytest
import torch

from jagg.backbones import load_backbone
from jagg.backbones.lora import attach_adapters, lora_config
from jagg.config import EmbeddedBackbone, LoRA
from jagg.cost.activations import SavedActivations
from jagg.cost.memory import _measured, _Sample, model_cost
from jagg.cost.operations import operation_counter
from jagg.pretrain.backbones import embedded_transformer_config


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("lora", [None, LoRA(rank=2, alpha=4)], ids=["full", "lora"])
@pytest.mark.parametrize("family", ["flux", "qwen"])
def test_the_meta_device_counts_what_a_real_run_does(
    family: str, lora: LoRA | None, recompute: bool, request: pytest.FixtureRequest
) -> None:
    config, folder = request.getfixturevalue(f"tiny_{family}_folder")
    backbone = load_backbone(config, folder)
    transformer = backbone.transformer
    if lora:
        attach_adapters(transformer, lora_config(lora, backbone.lora_targets))
    if recompute:
        transformer.enable_gradient_checkpointing()
    text = backbone.encode_prompts(["a red circle on a blue background"])
    latents, sigma = torch.randn(1, *backbone.latent_shape), torch.ones(1)
    tokens = text.tensors["prompt_embeds"].shape[1]
    sizes = {name: value for name, value in transformer.config.items() if not name.startswith("_")}
    cost = model_cost(
        config.family, sizes, backbone.grid, tokens, lora=lora, gradient_checkpointing=recompute, dtype=torch.float32
    )
    with SavedActivations(transformer.parameters()) as saved:
        velocity = backbone.velocity(latents, sigma, text)
    with operation_counter() as backward:
        torch.autograd.backward(velocity, torch.ones_like(velocity))
    # The CPU's fused attention computes its scores again in the backward pass; the meta device's products do not.
    assert cost.backward_flops == pytest.approx(backward.get_total_flops(), rel=0.1)
    assert cost.gradient_bytes == sum(4 * p.numel() for p in transformer.parameters() if p.requires_grad)
    assert cost.activation_bytes == pytest.approx(saved.peak_bytes, rel=0.02)


@pytest.mark.parametrize(("family", "blocks", "lora", "recompute"), [
    ("flux", {"num_layers": 3, "num_single_layers": 4}, LoRA(rank=2, alpha=4), True),
    ("qwen_image", {"num_layers": 4}, None, False),
])  # fmt: skip
def test_the_cost_of_a_deep_transformer_is_exactly_that_of_all_its_blocks(
    family: str, blocks: dict[str, int], lora: LoRA | None, recompute: bool
) -> None:
    source = EmbeddedBackbone(kind="embedded", autoencoder_steps=1, flow_steps=1, **blocks)
    sizes = embedded_transformer_config(family, source)
    whole = _measured(family, sizes, _Sample(4, 8, lora, recompute, torch.bfloat16))
    settings = {"lora": lora, "gradient_checkpointing": recompute, "dtype": torch.bfloat16}
    assert model_cost(family, sizes, 4, 8, **settings) == whole
