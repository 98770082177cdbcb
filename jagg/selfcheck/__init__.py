"""Self-check of a study: every number of its tables and report made again from the raw files."""
