"""Statistics of paired comparisons: intervals, tests, equivalence, multiplicity and power, as functions of arrays."""
