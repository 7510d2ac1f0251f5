"""`baton bench worlds`."""

from batonpass.scenarios.bench.course_command import course_command
from batonpass.scenarios.bench.worlds.course import COURSE

__all__ = ["command"]

command = course_command(
    COURSE,
    name="worlds",
    short_help="Very many entities in a batch world, against bare numpy and Mesa.",
    sentence="Measure how many entities a server simulates at once, against a loop of bare numpy and Mesa's agents.",
)
