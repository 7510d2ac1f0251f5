"""`baton bench clients`."""

from batonpass.scenarios.bench.clients.course import COURSE
from batonpass.scenarios.bench.course_command import course_command

__all__ = ["command"]

command = course_command(
    COURSE,
    name="clients",
    short_help="Clients of the players' door, against Colyseus on node and a bare WebSocket.",
    sentence="Measure clients that watch and steer at the players' door, and others beside it in the same run.",
)
