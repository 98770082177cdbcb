"""PickScore (Kirstain et al. 2023): a CLIPModel tuned on human picks, with the processor of the laion ViT-H model."""

from jagg.scorers.clip import load

__all__ = ["load"]
