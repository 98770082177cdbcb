"""Tables, JSON records and provenance: schemas, atomic writes, checked reads."""

from jagg.records.files import atomic_path, read_json, write_json
from jagg.records.provenance import environment, file_sha256, folder_sha256, lock_sha256, text_sha256
from jagg.records.schemas import (
    BACKWARD_PASSES,
    CLAIMS,
    COVERAGE,
    GRADIENT_PROBES,
    GRADIENT_QUALITY,
    GRADIENT_STRESS,
    HISTORY,
    PAIRED_DIFFERENCES,
    PARETO,
    ROUTING_CALIBRATION,
    RUNS,
    SCORES,
)
from jagg.records.scores import read_scores
from jagg.records.tables import read_table, table_of, write_table

__all__ = [
    "BACKWARD_PASSES",
    "CLAIMS",
    "COVERAGE",
    "GRADIENT_PROBES",
    "GRADIENT_QUALITY",
    "GRADIENT_STRESS",
    "HISTORY",
    "PAIRED_DIFFERENCES",
    "PARETO",
    "ROUTING_CALIBRATION",
    "RUNS",
    "SCORES",
    "atomic_path",
    "environment",
    "file_sha256",
    "folder_sha256",
    "lock_sha256",
    "read_json",
    "read_scores",
    "read_table",
    "table_of",
    "text_sha256",
    "write_json",
    "write_table",
]
