"""`baton bench timeline`."""

from batonpass.scenarios.bench.course_command import course_command
from batonpass.scenarios.bench.timeline.course import COURSE

__all__ = ["command"]

command = course_command(
    COURSE,
    name="timeline",
    short_help="A retroactive timeline against a plain event loop, a naive replay, and a rollback engine.",
    sentence="Measure what a late input costs on a timeline, and what it costs engines that compute the world again.",
)
