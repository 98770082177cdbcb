"""Backbones and scorers: which model, and where its weights come from."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from jagg.config.base import Name, PositiveFloat, PositiveInt, Section

Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$", description="Commit hash on the hub (40 hex digits).")]


class EmbeddedBackbone(Section):
    """A small pipeline in diffusers' own classes, trained by this project on images that it draws."""

    kind: Literal["embedded"]
    num_heads: PositiveInt = Field(4, description="Attention heads of the transformer.")
    head_dim: Literal[16, 24] = Field(16, description="Channels of an attention head.")
    num_layers: PositiveInt = Field(2, description="FLUX: double blocks; QwenImage: blocks.")
    num_single_layers: int = Field(2, ge=0, description="FLUX: single blocks; ignored by QwenImage.")
    autoencoder_steps: PositiveInt = Field(description="Optimizer steps of the autoencoder.")
    flow_steps: PositiveInt = Field(description="Optimizer steps of flow matching (transformer and text encoders).")
    batch_size: PositiveInt = Field(32, description="Images an optimizer step.")
    learning_rate: PositiveFloat = Field(2e-3, description="Peak learning rate of flow matching (AdamW).")
    fade: float = Field(
        0.0,
        ge=0.0,
        lt=1.0,
        description="Flow matching sees images that lost between none and this share of their contrast (no unit), as "
        "mixed data has them: samples come out duller than drawn images, and a reward has something to improve.",
    )
    seed: int = Field(0, ge=0, description="Seed of initial weights and data.")


class HubModel(Section):
    """A model repository on the hub at a pinned revision; taken from the local cache when offline."""

    kind: Literal["hub"]
    repo: str = Field(pattern=r"^[\w.-]+/[\w.-]+$", description="Repository id, owner/name.")
    revision: Revision


class FolderModel(Section):
    """A model folder on disk, in the same format as the hub's."""

    kind: Literal["folder"]
    path: str = Field(description="Path of the folder, relative to the working directory.")


class Guidance(Section):
    """Guidance of rollout, training and evaluation alike: one setting, so the three cannot differ."""

    kind: Literal["none", "distilled", "two_branch"] = Field(
        "none",
        description="none: one evaluation, no guidance input; distilled: the scale is an input of the transformer "
        "(FLUX.1-dev); two_branch: a second evaluation with an empty prompt (QwenImage), which doubles every pass.",
    )
    scale: float = Field(1.0, ge=0.0, description="Guidance scale (no unit); 1.0 means none for two_branch.")

    @property
    def evaluations_per_velocity(self) -> int:
        """Transformer passes of one velocity: two under two-branch guidance with a scale above 1, else one."""
        return 2 if self.kind == "two_branch" and self.scale > 1.0 else 1


class Backbone(Section):
    """A diffusion transformer with its text encoders and autoencoder."""

    family: str = Field(description="flux, qwen_image, or the name of an installed plug-in backbone.")
    source: Annotated[EmbeddedBackbone | HubModel | FolderModel, Field(discriminator="kind")]
    image_size: PositiveInt = Field(description="Height and width of images, in pixels.")
    max_text_tokens: PositiveInt = Field(description="Longest prompt the text encoder sees, in tokens.")
    guidance: Guidance = Guidance()
    precision: Literal["float32", "bfloat16"] = Field("float32", description="Number format of the frozen weights.")


class EmbeddedScorer(Section):
    """A small scorer in the format of the real one, trained on captions and preference pairs drawn here."""

    kind: Literal["embedded"]
    contrastive_steps: PositiveInt = Field(description="Optimizer steps of contrastive training on captions.")
    preference_steps: int = Field(0, ge=0, description="Optimizer steps on preference pairs (hpsv2, pickscore).")
    batch_size: PositiveInt = Field(64, description="Image-caption pairs an optimizer step.")
    learning_rate: PositiveFloat = Field(1e-3, description="Peak learning rate (AdamW).")
    seed: int = Field(0, ge=0, description="Seed of initial weights and data.")


class Scorer(Section):
    """An image-text scorer; its value is the raw signed cosine of the two embeddings."""

    family: str = Field(description="hpsv2, pickscore, clipscore, or the name of an installed plug-in scorer.")
    source: Annotated[EmbeddedScorer | HubModel | FolderModel, Field(discriminator="kind")]
    version: str | None = Field(None, description="hpsv2: the version of the weights, v2.0 or v2.1.")
    processor: HubModel | None = Field(None, description="Where tokenizer and image processor come from, if elsewhere.")
    weight_sha256: str | None = Field(
        None, pattern=r"^[0-9a-f]{64}$", description="Expected SHA-256 of the weight file; another hash is refused."
    )
    batch_size: PositiveInt = Field(32, description="Images scored at a time.")

    @model_validator(mode="after")
    def _version(self) -> "Scorer":
        if self.family == "hpsv2" and self.version not in ("v2.0", "v2.1"):
            raise ValueError(f"version: expected v2.0 or v2.1 for an hpsv2 scorer, got {self.version!r}")
        return self


class Reward(Section):
    """The training reward: a named mix of scorers."""

    mix: Literal["raw_weighted_sum", "standardised_weighted_sum"] = Field(
        "raw_weighted_sum",
        description="raw_weighted_sum: weights apply to the raw cosines; standardised_weighted_sum: to each metric "
        "after subtracting its mean and dividing by its standard deviation over the images of the step.",
    )
    weights: dict[Name, float] = Field(min_length=1, description="Scorer name -> weight (no unit).")
