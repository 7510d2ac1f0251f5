"""`baton bench link`."""

from batonpass.scenarios.bench.course_command import course_command
from batonpass.scenarios.bench.link.course import COURSE

__all__ = ["command"]

command = course_command(
    COURSE,
    name="link",
    short_help="The sealed link and envelopes against UDP, TLS, CurveZMQ, QUIC and JOSE libraries.",
    sentence="Measure the sealed link and the envelopes, and others that do the same work beside them in the same run.",
)
