"""The course: the rows of the table, who can do the work, and what is demanded."""

from typing import Final

from batonpass.scenarios.bench.comparison import OURS, Limit, Row
from batonpass.scenarios.bench.peers import Peer
from batonpass.scenarios.bench.rows import Unit
from batonpass.scenarios.bench.side_by_side import Course

__all__ = ["COURSE"]

_LIBRARIES: Final = ("pykka", "triotp")
_CEILINGS: Final = ("trio deque", "trio channel")
_FLOORS: Final = ("sealed link", "trio UDP", "raw UDP")

_ROWS: Final = (
    Row(
        "call",
        "calls in sequence",
        Unit.PER_SECOND,
        (*_LIBRARIES, *_CEILINGS),
        (Limit(80_000), Limit(1.5, "pykka"), Limit(2.5, "triotp")),
        "an idle actor of ours answers in the caller's task, without a change of task, so this can pass trio's limit",
    ),
    Row(
        "call-queued",
        "calls to a busy actor",
        Unit.PER_SECOND,
        ("trio deque",),
        (Limit(80_000),),
        "each has to wait in the mailbox, behind a cast; trio's figure is that of its calls alone",
    ),
    Row(
        "cast",
        "casts",
        Unit.PER_SECOND,
        (*_LIBRARIES, *_CEILINGS),
        (Limit(1_000_000), Limit(3, "pykka"), Limit(10, "triotp")),
    ),
    Row(
        "cast-state",
        "casts that return a new state",
        Unit.PER_SECOND,
        ("pykka", "triotp"),
        (Limit(1_000_000), Limit(3, "pykka"), Limit(10, "triotp")),
        "the same casts, with the state as a value that every callback returns, as in OTP",
    ),
    Row("spawn", "starts, supervised", Unit.PER_SECOND, limits=(Limit(50_000),)),
    Row("idle", "100,000 idle supervised actors", Unit.MEGABYTES, limits=(Limit(200),)),
    Row("teardown", "ending 100,000 supervised actors", Unit.SECONDS, limits=(Limit(5),)),
    Row(
        "stages",
        "events through three stages",
        Unit.PER_SECOND,
        note="up to 1000 on their way between two",
    ),
    Row(
        "stages-one",
        "the same, one by one",
        Unit.PER_SECOND,
        note="the price of each message",
    ),
    Row(
        "remote-call",
        "calls between two processes, sealed",
        Unit.PER_SECOND,
        _FLOORS,
        note="in sequence, on two cores; below it what its bytes cost: round trips of the bare link, and of plain UDP",
    ),
    Row("remote-cast", "casts between two processes, sealed", Unit.PER_SECOND, note="10,000 and then a call"),
)

COURSE: Final = Course(
    title="actors: one core, each sample in a fresh process: median [min-max] of the rounds",
    rows=_ROWS,
    package="batonpass.scenarios.bench.actors.workers",
    workers={
        OURS: "on_batonpass",
        "trio deque": "on_trio",
        "trio channel": "on_trio",
        **dict.fromkeys(_FLOORS, "remote"),
    },
    peers=tuple(Peer(name, (name,)) for name in _LIBRARIES),
    work={
        ("trio deque", "call"): "deque-call",
        ("trio deque", "call-queued"): "deque-call",
        ("trio deque", "cast"): "deque-cast",
        ("trio channel", "call"): "channel-call",
        ("trio channel", "cast"): "channel-cast",
        ("pykka", "cast-state"): "cast",
        ("triotp", "cast-state"): "cast",
        ("sealed link", "remote-call"): "link",
        ("trio UDP", "remote-call"): "trio-udp",
        ("raw UDP", "remote-call"): "udp",
    },
)
