"""jagg-bench: reproducibility benchmark for efficient GRPO post-training of flow-matching image models."""

__version__ = "0.1.0"
