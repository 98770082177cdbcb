"""Checkpoints: what they hold, and that a load that changes nothing is refused."""

from pathlib import Path

import pytest
import torch
from analytic import AnalyticBackbone, Curved, analytic_study
from safetensors.torch import load_file, save_file

from jagg.config import LoRA
from jagg.errors import InputError
from jagg.records import file_sha256, read_json, write_json
from jagg.train.checkpoint import load_checkpoint, write_checkpoint
from jagg.train.parameters import Trained

TEXT = AnalyticBackbone().encode_prompts(["red", "blue"])
LATENTS = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1))


def output(backbone: AnalyticBackbone) -> torch.Tensor:
    with torch.no_grad():
        return backbone.velocity(LATENTS, torch.tensor([0.9, 0.4]), TEXT)


def trained_backbone(folder: Path, lora: bool, ema: float | None = None) -> AnalyticBackbone:
    """A backbone after one optimizer step, with checkpoints step-0 and step-1."""
    training = analytic_study().training.model_copy(
        update={"lora": LoRA(rank=2, alpha=4.0) if lora else None, "ema_decay": ema}
    )
    backbone = AnalyticBackbone(Curved())
    trained = Trained.of(backbone, training, 1.0, "test", 0)
    write_checkpoint(folder / "step-0", backbone.transformer, trained, 0, "run")
    backbone.velocity(LATENTS, torch.ones(2), TEXT).square().sum().backward()
    trained.step()
    write_checkpoint(folder / "step-1", backbone.transformer, trained, 1, "run")
    return backbone


@pytest.mark.parametrize("lora", [True, False])
def test_a_checkpoint_brings_the_trained_model_back(tmp_path: Path, lora: bool) -> None:
    trained = trained_backbone(tmp_path, lora)
    fresh = AnalyticBackbone(Curved())
    base = output(fresh)
    assert load_checkpoint(fresh, tmp_path / "step-0") == 0
    assert torch.equal(output(fresh), base)
    assert load_checkpoint(fresh, tmp_path / "step-1") == 4
    assert torch.equal(output(fresh), output(trained))
    assert not torch.equal(output(fresh), base)
    assert load_checkpoint(fresh, tmp_path / "step-1") == 4


def test_the_untouched_model_comes_back_after_adapters_and_not_after_full_weights(tmp_path: Path) -> None:
    for kind in ("lora", "full"):
        trained_backbone(tmp_path / kind, lora=kind == "lora")
    backbone = AnalyticBackbone(Curved())
    base = output(backbone)
    load_checkpoint(backbone, tmp_path / "lora" / "step-1")
    load_checkpoint(backbone, tmp_path / "lora" / "step-0")
    assert torch.equal(output(backbone), base)
    overwritten = AnalyticBackbone(Curved())
    load_checkpoint(overwritten, tmp_path / "full" / "step-1")
    with pytest.raises(InputError, match="load step 0 first"):
        load_checkpoint(overwritten, tmp_path / "full" / "step-0")


def test_adapters_start_as_the_untouched_model_and_equal_for_equal_streams() -> None:
    training = analytic_study(training__lora={"rank": 2, "alpha": 4.0}).training
    backbones = [AnalyticBackbone(Curved()) for _ in range(3)]
    base, after_building = output(backbones[0]), torch.get_rng_state()
    made = [Trained.of(b, training, 1.0, "test", seed) for b, seed in zip(backbones, (0, 0, 1))]
    assert all(torch.equal(output(backbone), base) for backbone in backbones)
    first, same, other = (torch.cat([p.detach().flatten() for p in t.parameters.values()]) for t in made)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(after_building, torch.get_rng_state())
    assert {p.requires_grad for n, p in backbones[0].transformer.named_parameters() if "lora" not in n} == {False}


def rename_tensors(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    save_file({f"other.{name}": tensor for name, tensor in load_file(path).items()}, path)
    write_json(folder / "checkpoint.json", read_json(folder / "checkpoint.json") | {"sha256": file_sha256(path)})


def test_renamed_tensors_are_refused(tmp_path: Path) -> None:
    trained_backbone(tmp_path, lora=True)
    rename_tensors(tmp_path / "step-1")
    with pytest.raises(InputError, match="0 of 4 tensors applied"):
        load_checkpoint(AnalyticBackbone(Curved()), tmp_path / "step-1")


def test_another_backbone_is_refused(tmp_path: Path) -> None:
    trained_backbone(tmp_path, lora=False)
    with pytest.raises(InputError, match="1 of 4 tensors applied"):
        load_checkpoint(AnalyticBackbone(Curved(channels=5)), tmp_path / "step-1")


def test_adapters_without_effect_are_refused(tmp_path: Path) -> None:
    backbone = trained_backbone(tmp_path, lora=True)
    path = tmp_path / "step-1" / "adapter_model.safetensors"
    save_file({name: 0 * tensor if "lora_B" in name else tensor for name, tensor in load_file(path).items()}, path)
    record = tmp_path / "step-1" / "checkpoint.json"
    write_json(record, read_json(record) | {"sha256": file_sha256(path)})
    with pytest.raises(InputError, match="leaves the model as it was"):
        load_checkpoint(backbone, tmp_path / "step-1")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    trained_backbone(tmp_path, lora=True)
    path = tmp_path / "step-1" / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InputError, match="damaged"):
        load_checkpoint(AnalyticBackbone(Curved()), tmp_path / "step-1")


def test_checkpoints_hold_the_moving_average(tmp_path: Path) -> None:
    trained = trained_backbone(tmp_path, lora=False, ema=0.9)
    start = dict(Curved().named_parameters())
    saved = load_file(tmp_path / "step-1" / "diffusion_pytorch_model.safetensors")
    for name, parameter in trained.transformer.named_parameters():
        wanted = 0.9 * start[name] + 0.1 * parameter
        torch.testing.assert_close(saved[name], wanted.detach())
