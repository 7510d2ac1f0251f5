"""`baton bench events`."""

from batonpass.scenarios.bench.course_command import course_command
from batonpass.scenarios.bench.events.course import COURSE

__all__ = ["command"]

command = course_command(
    COURSE,
    name="events",
    short_help="Event streams against GoEventStream's rules in FastAPI, and a server that does nothing.",
    sentence="Measure the server of event streams, and others under the same load beside it in the same run.",
)
