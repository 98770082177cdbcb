"""CLIPScore (Hessel et al. 2021) as a raw cosine, without its factor 2.5: a CLIPModel and its own processor."""

from jagg.scorers.clip import load

__all__ = ["load"]
