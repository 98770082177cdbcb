"""Schedules by name: where the graphs of the nodes come from (math.md 4)."""

from jagg.errors import unknown_name
from jagg.gradients.schedules.native import NATIVE, REUSE
from jagg.gradients.schedules.protocol import Schedule
from jagg.gradients.schedules.retain import Retain
from jagg.gradients.schedules.reweight import Reweight

SCHEDULES: dict[str, Schedule] = {"native": NATIVE, "reuse": REUSE, "retain": Retain(), "reweight": Reweight()}


def schedule_of(name: str) -> Schedule:
    """The schedule of a name.

    Raises:
        InputError: unknown name.
    """
    if name not in SCHEDULES:
        raise unknown_name("schedule", name, SCHEDULES, where="arms.<arm>.schedule")
    return SCHEDULES[name]
