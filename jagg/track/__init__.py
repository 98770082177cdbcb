"""MLflow as a view of the study's files: one serial, idempotent writer, and a comparison of both."""

import os

# MLflow reports usage over the network unless told otherwise before it is imported.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")

from jagg.track.check import verify
from jagg.track.sync import Summary, track

__all__ = ["Summary", "track", "verify"]
