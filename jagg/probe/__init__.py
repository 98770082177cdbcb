"""Gradient quality: the estimators' window gradients against the exact one, and what routing may be trusted with."""
