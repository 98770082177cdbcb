"""GRPO training: the loop, the pass ledger, checkpoints, and continuation after interruption."""
