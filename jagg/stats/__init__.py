"""Statistics of paired comparisons: intervals, tests, equivalence, multiplicity and power, as functions of arrays."""

from pathlib import Path

COVERAGE_FILE = Path(__file__).parent / "coverage.csv"
"""How often the intervals held the truth in simulations; written by `make coverage`, shown by the report."""
