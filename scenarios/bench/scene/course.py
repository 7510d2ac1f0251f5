"""The course: the rows of the table, who can do the work, and what is demanded."""

from typing import Final

from batonpass.scenarios.bench.comparison import OURS, ComparisonRow, Limit
from batonpass.scenarios.bench.peers import NpmLibrary
from batonpass.scenarios.bench.rows import RowUnit
from batonpass.scenarios.bench.side_by_side import Course

__all__ = ["COURSE"]

_ECS: Final = "ecs"

_ROWS: Final = (
    ComparisonRow(
        "read",
        "Transform PUTs read, per second of processor time",
        RowUnit.PER_SECOND,
        limits=(Limit(2_000_000),),
    ),
    ComparisonRow("write", "Transform PUTs written, per second of processor time", RowUnit.PER_SECOND),
    ComparisonRow(
        "apply",
        "Transform PUTs received, applied and decoded, per second of processor time",
        RowUnit.PER_SECOND,
        (_ECS,),
        (Limit(5, _ECS), Limit(1_000_000)),
        "10,000 entities, in chunks of 10,000; a replica for each 20 chunks",
    ),
    ComparisonRow(
        "apply-mixed",
        "the same of 4 components and 5 lengths in turn, not decoded",
        RowUnit.PER_SECOND,
    ),
    ComparisonRow(
        "network",
        "a message under a network id: of 10,000 entities, in times of one of 100",
        RowUnit.TIMES,
        (_ECS,),
        (Limit(1.5),),
        "processor time for each message",
    ),
)

COURSE: Final = Course(
    title="scene: messages of scenes, one process each: median [min-max] of the rounds",
    rows=_ROWS,
    package="batonpass.scenarios.bench.scene.workers",
    workers={OURS: "on_batonpass"},
    # The last two are needed by the first, which does not say so.
    peers=(NpmLibrary(_ECS, ("@dcl/ecs@7.28.0", "@protobufjs/utf8@1", "protobufjs@7")),),
)
