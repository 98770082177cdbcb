"""The finished study that the self-check judges, and a copy of it to damage."""

from finished_cell import copied, finished_cell

__all__ = ["copied", "finished_cell"]
