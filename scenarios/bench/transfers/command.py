"""`baton bench transfers`."""

from batonpass.scenarios.bench.course_command import course_command
from batonpass.scenarios.bench.transfers.course import COURSE

__all__ = ["command"]

command = course_command(
    COURSE,
    name="transfers",
    short_help="Hand-overs of authority between two servers, above bare UDP with bare cryptography.",
    sentence="Measure hand-overs of authority, and the floor below them: bare UDP and the cryptography that they need.",
)
