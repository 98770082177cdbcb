"""Schedules by name: where the graphs of the nodes come from (math.md 4)."""

from jagg.errors import unknown_name
from jagg.gradients.schedules.native import Native
from jagg.gradients.schedules.protocol import Schedule

SCHEDULES: dict[str, Schedule] = {"native": Native()}


def schedule_of(name: str) -> Schedule:
    """The schedule of a name.

    Raises:
        InputError: unknown name.
    """
    if name not in SCHEDULES:
        raise unknown_name("schedule", name, SCHEDULES, where="arms.<arm>.schedule")
    return SCHEDULES[name]
