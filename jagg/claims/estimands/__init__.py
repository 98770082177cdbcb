"""Estimands by name: from a test of a claim and the results to conditions on quantities."""
