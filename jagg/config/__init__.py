"""Configuration of a study: frozen pydantic models, one YAML loader, one JSON schema."""

from jagg.config.base import resolve
from jagg.config.loader import canonical_json, load_study
from jagg.config.methods import Algorithm, Arm, DanceGRPO, FlowGRPOFast, Routing
from jagg.config.models import (
    Backbone,
    EmbeddedBackbone,
    EmbeddedScorer,
    FolderModel,
    Guidance,
    HubModel,
    Reward,
    Scorer,
)
from jagg.config.probe import Probe, ProbeSplit, ProbeStress
from jagg.config.study import (
    AsymmetricMargin,
    Comparison,
    EmbeddedPrompts,
    Evaluation,
    FilePrompts,
    HPDv2Prompts,
    LoRA,
    Prompts,
    Resources,
    Study,
    Tracking,
    Training,
)

__all__ = [
    "Algorithm",
    "Arm",
    "AsymmetricMargin",
    "Backbone",
    "Comparison",
    "DanceGRPO",
    "EmbeddedBackbone",
    "EmbeddedPrompts",
    "EmbeddedScorer",
    "Evaluation",
    "FilePrompts",
    "FlowGRPOFast",
    "FolderModel",
    "Guidance",
    "HPDv2Prompts",
    "HubModel",
    "LoRA",
    "Probe",
    "ProbeSplit",
    "ProbeStress",
    "Prompts",
    "Resources",
    "Reward",
    "Routing",
    "Scorer",
    "Study",
    "Tracking",
    "Training",
    "canonical_json",
    "load_study",
    "resolve",
]
