"""The course: the rows of the table, who can do the work, and what is demanded."""

from typing import Final

from batonpass.scenarios.bench.comparison import OURS, ComparisonRow, Limit
from batonpass.scenarios.bench.rows import RowUnit
from batonpass.scenarios.bench.side_by_side import Course

__all__ = ["CONES", "COURSE"]

CONES: Final = (1, 10, 100, 1_000)
"""How many events depend on the late input."""

_HEAPQ: Final = "plain heapq"
_TWIN: Final = "naive replay"
_BY_HAND: Final = "by hand"
_ROLLBACK: Final = "rollback"

_ROWS: Final = (
    ComparisonRow(
        "straight",
        "an event, executed once",
        RowUnit.MICROSECONDS,
        (_HEAPQ, _TWIN, _BY_HAND, _ROLLBACK),
        (Limit(4, _HEAPQ),),
        "plain heapq executes the same events; by hand, and in the rollback engine, a turn is two lines on a list",
    ),
    *(
        ComparisonRow(
            f"late-{cone}",
            f"a late input on which {cone:,} of 10,000 things depend",
            RowUnit.MICROSECONDS,
            (_HEAPQ, _BY_HAND, _ROLLBACK),
            (Limit(0.01, _HEAPQ),) if cone == 1 else (),
            "plain heapq and by hand: all 40,000 turns again; the rollback engine: those of the last 10 frames, 10,000",
        )
        for cone in CONES
    ),
    ComparisonRow(
        "worst",
        "a late input on which all 40,000 turns depend",
        RowUnit.MICROSECONDS,
        (_TWIN, _HEAPQ, _BY_HAND),
        (Limit(1.5, _TWIN),),
        "the naive replay executes the same events with the same identities, order and rules; plain heapq without",
    ),
    ComparisonRow(
        "circles",
        "bouncy circles: an event, executed once",
        RowUnit.MICROSECONDS,
        (_TWIN,),
        (Limit(4, _TWIN),),
        "20 circles for 10 s; each event looks at all of them, so a late input has all later ones executed again",
    ),
    ComparisonRow(
        "collisions",
        "a collision world: an event, executed once",
        RowUnit.MICROSECONDS,
        (_TWIN,),
        (Limit(4, _TWIN),),
        "60 things on a grid of 144 cells, which look at what is near",
    ),
    ComparisonRow(
        "collisions-late",
        "a collision world: an input that is 100 ms late, of 3 s",
        RowUnit.MICROSECONDS,
        (_TWIN,),
        (Limit(0.01, _TWIN),),
        "the naive replay computes all of it again",
    ),
    ComparisonRow(
        "chain",
        "links executed again, of 1,000, when the third gives the same as before",
        RowUnit.EVENTS,
        limits=(Limit(3),),
        rounds=1,
    ),
    ComparisonRow("memory", "an event that is remembered", RowUnit.BYTES, rounds=1),
    ComparisonRow(
        "memory-flat",
        "memory after 16 rounds by that after 4, when one round is remembered",
        RowUnit.TIMES,
        limits=(Limit(1.05),),
        rounds=1,
    ),
)

COURSE: Final = Course(
    title="timeline: processor time, each sample in a fresh process: median [min-max] of the rounds",
    rows=_ROWS,
    package="batonpass.scenarios.bench.timeline.workers",
    workers={OURS: "on_batonpass", _HEAPQ: "on_heapq", _TWIN: "on_twin", _BY_HAND: "by_hand", _ROLLBACK: "on_rollback"},
    peers=(),
    versions=("batonpass",),
)
