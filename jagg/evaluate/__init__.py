"""Evaluation of checkpoints: images on fixed prompts and fixed noise, and their scores."""
