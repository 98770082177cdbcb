"""From checkpoints to evaluation images, in lossless PNG."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from jagg.config import Study
from jagg.errors import InputError
from jagg.evaluate.signature import evaluation_signature
from jagg.identity import ended_run, stage_identity
from jagg.keys import IMAGES_MANIFEST, RunKey, RunPaths, StudyPaths, image_name
from jagg.prompts import Prompt, read_prompts
from jagg.records import environment, file_sha256, folder_sha256, read_json, text_sha256, write_json


def sample_checkpoints(
    study: Study,
    key: RunKey,
    run: RunPaths,
    outputs: dict[int, Path],
    note: Callable[[str], None],
    *,
    reuse: bool = False,
) -> None:
    """Sample the evaluation images of some checkpoints of a run.

    Args:
        outputs: training step -> folder that receives its images and, last, `images.json`.
        note: takes one line of progress.
        reuse: keep complete images that the same checkpoint, settings and code made.

    Raises:
        InputError: the run has not ended or was made with other settings, or a checkpoint is missing.
    """
    record = ended_run(study, key, run)
    paths = StudyPaths.of(study)
    prompts = read_prompts(paths.prompts("evaluation"))
    signature = evaluation_signature(study, key.backbone, prompts)
    lost = [step for step in outputs if not run.checkpoint(step).is_dir()]
    if lost and record["status"] != "diverged":
        have = sorted(path.name for path in (run.folder / "checkpoints").glob("step-*"))
        raise InputError(
            "the run has no such checkpoint",
            where=run.folder,
            expected="one of " + ", ".join(have),
            got=", ".join(f"step-{step}" for step in lost),
        )
    sampler = None
    for step, out in outputs.items():
        manifest = {"key": key.row(), "step": step, "signature": signature, "run_status": record["status"]}
        if step in lost:
            _publish(out, manifest | {"images": 0}, {})
            note(f"{key} step {step}: no checkpoint, the run diverged before it")
            continue
        checkpoint = run.checkpoint(step)
        made_from = _made_from(study, key.backbone, paths, signature, checkpoint)
        if reuse and _is_complete(out, made_from):
            note(f"{key} step {step}: images are there")
            continue
        sampler = sampler or _Sampler(study, key.backbone, paths, prompts)
        images = dict(sampler.images(checkpoint))
        manifest |= {
            "images": len(images),
            "model": sampler.label,
            "made_from": made_from,
            "environment": environment(),
        }
        _publish(out, manifest, images)
        note(f"{key} step {step}: {len(images)} images")


def _made_from(study: Study, backbone: str, paths: StudyPaths, signature: str, checkpoint: Path) -> dict[str, str]:
    """Hashes of all that determines a checkpoint's evaluation images."""
    return {
        "settings_and_code_sha256": text_sha256(stage_identity(study, "sample", backbone)),
        "signature": signature,
        "model_sha256": file_sha256(paths.backbone(backbone) / "model.json"),
        "checkpoint_sha256": folder_sha256(checkpoint),
    }


def _is_complete(images: Path, made_from: dict[str, str]) -> bool:
    path = images / IMAGES_MANIFEST
    if not path.exists():
        return False
    manifest = read_json(path)
    return manifest.get("made_from") == made_from and manifest.get("images_sha256") == _images_sha256(images)


def _images_sha256(images: Path) -> str:
    return folder_sha256(images, lambda path: path.suffix == ".png")


def _publish(out: Path, manifest: dict, images: dict) -> None:
    """Write images beside the target and put the finished folder in place, manifest last."""
    from PIL import Image

    building = out.with_name(f".{out.name}.building")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    for name, pixels in images.items():
        Image.fromarray(pixels).save(building / name, optimize=False, compress_level=1)
    shutil.rmtree(out, ignore_errors=True)
    building.rename(out)
    write_json(out / IMAGES_MANIFEST, manifest | {"images_sha256": _images_sha256(out)})


class _Sampler:
    """One loaded backbone; start noise and text features are made once and serve every checkpoint."""

    def __init__(self, study: Study, backbone: str, paths: StudyPaths, prompts: list[Prompt]) -> None:
        import torch

        from jagg.backbones import load_backbone
        from jagg.flow import evaluation_noise, shifted_sigmas

        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.backbone = load_backbone(study.backbones[backbone], paths.backbone(backbone), self.device)
        self.label = self.backbone.label
        evaluation = study.evaluation
        self.batch_size = evaluation.batch_size
        self.sigmas = shifted_sigmas(evaluation.sampling_steps, evaluation.shift)
        self.places = [(p, i) for p in range(len(prompts)) for i in range(evaluation.images_per_prompt)]
        self.names = [image_name(prompts[p].id, i) for p, i in self.places]
        self.noise = torch.stack(
            [
                evaluation_noise(evaluation.noise_seed, prompts[p].id, i, self.backbone.latent_shape)
                for p, i in self.places
            ]
        )
        self.text = self.backbone.encode_prompts([prompt.text for prompt in prompts])

    def images(self, checkpoint: Path) -> Iterator[tuple[str, object]]:
        """(file name, uint8 pixels) of every evaluation image of one checkpoint."""
        from jagg.flow import sample_ode
        from jagg.train.checkpoint import load_checkpoint

        load_checkpoint(self.backbone, checkpoint)
        for start in range(0, len(self.places), self.batch_size):
            chunk = slice(start, start + self.batch_size)
            text = self.text[[prompt for prompt, _ in self.places[chunk]]]
            latents = sample_ode(self.backbone, text, self.noise[chunk].to(self.device), self.sigmas)
            yield from zip(self.names[chunk], self.backbone.decode(latents).cpu().numpy())
