"""The course: the rows of the table, who can do the work, and what is demanded."""

from typing import Final

from batonpass.scenarios.bench.comparison import OURS, ComparisonRow, Limit
from batonpass.scenarios.bench.peers import PeerLibrary
from batonpass.scenarios.bench.rows import RowUnit
from batonpass.scenarios.bench.side_by_side import Course
from batonpass.scenarios.bench.worlds.amounts import ACROSS, AGENTS, CURVE, EACH, MANY, NEAR_PERCENT, SERVERS

__all__ = ["COURSE"]

_BARE: Final = "bare numpy"
_MESA: Final = "mesa"
_BESIDE: Final = 5
_TICK: Final = "the arrays of the flock alone, without entities"

_ROWS: Final = (
    *(
        ComparisonRow(
            f"tick-{count}",
            f"a tick of {count:,} boids",
            RowUnit.MS,
            (_BARE,),
            (Limit(1.3, _BARE),) if count == 10_000 else (),
            _TICK,
        )
        for count in CURVE
    ),
    ComparisonRow(
        "inputs",
        "a tick of 10,000 boids, of which 100 have an input",
        RowUnit.MS,
        note="each is acknowledged to its player",
    ),
    ComparisonRow(
        "agents",
        f"steps of a boid, of {AGENTS:,}",
        RowUnit.PER_SECOND,
        (_MESA,),
        (Limit(10, _MESA),),
        "Mesa's agents sense and then move, by the same rules; after ten steps both flocks are the same",
    ),
    ComparisonRow("alone", "a tick of a ball, stepped alone, of 1,000", RowUnit.MICROSECONDS),
    *(
        ComparisonRow(f"{name}-{count}", title.format(count=f"{count:,}"), unit, limits=limits, note=note, rounds=3)
        for count in (MANY,)
        for name, title, unit, limits, note in (
            (
                "kept",
                "ticks kept, of those due at 20 Hz: {count} states of 300 bytes, with copies",
                RowUnit.SHARE,
                (Limit(0.99),),
                "on one core, whose time is this process's processor time",
            ),
            ("late", "the same: from when a tick is due until it is done, of 100 the 99th", RowUnit.MS, (), ""),
            ("copied", "the same: copies per second, sealed and sent", RowUnit.PER_SECOND, (), ""),
            ("again", "the same: until each entity has been copied", RowUnit.SECONDS, (), ""),
            ("size", "the same: length of a state", RowUnit.BYTES, (), ""),
        )
    ),
    *(
        ComparisonRow(f"border-{name}", title, unit, limits=limits, note=note, rounds=3)
        for name, title, unit, limits, note in (
            (
                "once",
                f"{ACROSS:,} entities cross a border in a second: none by two servers, or lost",
                RowUnit.SHARE,
                (Limit(1.0),),
                "two servers in processes of their own, and the custody logs of both",
            ),
            (
                "jitter",
                "the same: how far ticks are from a period apart, of 100 the 99th",
                RowUnit.MS,
                (Limit(5.0),),
                "",
            ),
            ("prompt", "the same: hand-overs during which no tick came due", RowUnit.SHARE, (), ""),
            ("gap", "the same: for how long no server simulates an entity, of 100 the 99th", RowUnit.MS, (), ""),
            ("took", "the same: from the first that leaves until the last has come", RowUnit.SECONDS, (), ""),
        )
    ),
    *(
        ComparisonRow(
            f"servers-{count}",
            f"a tick of {EACH:,} entities that look around, of {count} servers that of the busiest",
            RowUnit.MS,
            note=f"servers in a row, {_BESIDE} % of the entities near each border; each server on a core of its own",
        )
        for count in SERVERS
    ),
    *(
        ComparisonRow(
            f"near-{percent}",
            f"a tick of {EACH:,} entities, of which {percent} % are near the border of two servers",
            RowUnit.MS,
            note="all of them move with every tick, so each of these is shown anew to the other server",
        )
        for percent in NEAR_PERCENT
    ),
    ComparisonRow("ghost-bytes", "bytes for each ghost in a second, with a state of 55 bytes", RowUnit.BYTES),
    *(
        ComparisonRow(f"contact-{name}", title, unit, limits=limits, note=note, rounds=3)
        for name, title, unit, limits, note in (
            (
                "wait",
                "robots push boxes over a border: from contact to authority, the median",
                RowUnit.TICKS,
                (Limit(3.0),),
                "`baton run boxes`, on processes of their own",
            ),
            ("age", "the same: age of ghosts, of 100 the 99th", RowUnit.TICKS, (Limit(2.0),), ""),
            ("bytes", "the same: bytes for each ghost in a second", RowUnit.BYTES, (), ""),
        )
    ),
    ComparisonRow("memory", "an entity of 10,000 with a state of 300 bytes", RowUnit.BYTES, rounds=1),
)

_COPIES: Final = {
    (OURS, f"{figure}-{count}"): f"copies-{count}:{figure}"
    for count in (MANY,)
    for figure in ("kept", "late", "copied", "again", "size")
}

_BORDER: Final = {
    (OURS, f"border-{name}"): f"border-{ACROSS}:{name}" for name in ("once", "prompt", "jitter", "gap", "took")
}

_IN_A_ROW: Final = {
    **{(OURS, f"servers-{count}"): f"row-{count}-{EACH}-{_BESIDE}:tick" for count in SERVERS},
    **{(OURS, f"near-{percent}"): f"row-2-{EACH}-{percent}:tick" for percent in NEAR_PERCENT},
    (OURS, "ghost-bytes"): f"row-2-{EACH}-10:bytes",
}

_CONTACTS: Final = {(OURS, f"contact-{name}"): f"contacts:{name}" for name in ("wait", "age", "bytes")}

COURSE: Final = Course(
    title="worlds: processor time, each sample in a fresh process: median [min-max] of the rounds",
    rows=_ROWS,
    package="batonpass.scenarios.bench.worlds.workers",
    workers={OURS: "on_batonpass", _BARE: "on_numpy"},
    peers=(PeerLibrary(_MESA, ("mesa>=3,<4", "numpy>=2,<3")),),
    work=_COPIES | _BORDER | _IN_A_ROW | _CONTACTS,
    versions=("batonpass", "numpy"),
    patience_s=300.0,
)
