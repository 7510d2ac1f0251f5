"""`baton bench actors`."""

from batonpass.scenarios.bench.actors.course import COURSE
from batonpass.scenarios.bench.course_command import course_command

__all__ = ["command"]

command = course_command(
    COURSE,
    name="actors",
    short_help="Actors against other Python actor libraries and bare trio.",
    sentence="Measure actors, and other actor libraries for Python beside them in the same run.",
)
