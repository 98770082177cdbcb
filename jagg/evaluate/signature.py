"""What must be equal for evaluation images to be compared."""

from jagg.config import Study
from jagg.prompts import Prompt, prompts_sha256


def short_sha256(prompts: list[Prompt]) -> str:
    """The hash of a prompt set as signatures show it."""
    return prompts_sha256(prompts)[:12]


def evaluation_signature(study: Study, backbone: str, prompts: list[Prompt]) -> str:
    """How evaluation images are made; only rows of equal signature may be differenced or averaged."""
    model, evaluation = study.backbones[backbone], study.evaluation
    return " ".join(
        (
            f"{model.image_size}px",
            f"steps={evaluation.sampling_steps}",
            f"shift={evaluation.shift:g}",
            f"guidance={model.guidance.kind}:{model.guidance.scale:g}",
            f"batch={evaluation.batch_size}",
            f"noise={evaluation.noise_seed}",
            f"prompts={short_sha256(prompts)}",
        )
    )
