"""Gradient estimators as matrices, their routing, and the schedules that feed them."""

from jagg.gradients.estimators import ESTIMATORS, estimator_of
from jagg.gradients.schedules import SCHEDULES, schedule_of

__all__ = ["ESTIMATORS", "SCHEDULES", "estimator_of", "schedule_of"]
