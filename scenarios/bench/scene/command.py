"""`baton bench scene`."""

from batonpass.scenarios.bench.course_command import course_command
from batonpass.scenarios.bench.scene.course import COURSE

__all__ = ["command"]

command = course_command(
    COURSE,
    name="scene",
    short_help="Scenes' messages received and applied, against @dcl/ecs on node.",
    sentence="Measure how many messages of scenes are received and applied, here and by @dcl/ecs with the same bytes.",
)
