"""The course: the rows of the table, who can do the work, and what is demanded."""

from typing import Final

from batonpass.scenarios.bench.comparison import OURS, ComparisonRow, Limit
from batonpass.scenarios.bench.peers import PeerLibrary
from batonpass.scenarios.bench.rows import RowUnit
from batonpass.scenarios.bench.side_by_side import Course

__all__ = ["COURSE"]

_LIBRARIES: Final = ("pykka", "triotp")
_CEILINGS: Final = ("trio deque", "trio channel")
_ERLANG: Final = "Erlang/OTP"
_FLOORS: Final = ("sealed link", "trio UDP", "raw UDP")

_ROWS: Final = (
    ComparisonRow(
        "call",
        "calls in sequence",
        RowUnit.PER_SECOND,
        (*_LIBRARIES, *_CEILINGS, _ERLANG),
        (Limit(80_000), Limit(1.5, "pykka"), Limit(2.5, "triotp")),
        "an idle actor of ours answers in the caller's task, without a change of task, so this can pass trio's limit",
    ),
    ComparisonRow(
        "call-queued",
        "calls to a busy actor",
        RowUnit.PER_SECOND,
        ("trio deque",),
        (Limit(80_000),),
        "each has to wait in the mailbox, behind a cast; trio's figure is that of its calls alone",
    ),
    ComparisonRow(
        "cast",
        "casts",
        RowUnit.PER_SECOND,
        (*_LIBRARIES, *_CEILINGS),
        (Limit(1_000_000), Limit(3, "pykka"), Limit(10, "triotp")),
    ),
    ComparisonRow(
        "cast-state",
        "casts that return a new state",
        RowUnit.PER_SECOND,
        ("pykka", "triotp", _ERLANG),
        (Limit(1_000_000), Limit(3, "pykka"), Limit(10, "triotp")),
        "the same casts, with the state as a value that every callback returns, as in OTP",
    ),
    ComparisonRow(
        "machine",
        "events that change a machine's state",
        RowUnit.PER_SECOND,
        (_ERLANG,),
        (Limit(200_000),),
        "casts to a StateMachine, and to a gen_statem, each of which goes to the other of two states",
    ),
    ComparisonRow(
        "groups",
        "broadcasts to 10,000 members, members told",
        RowUnit.PER_SECOND,
        (_ERLANG,),
        (Limit(200_000),),
    ),
    ComparisonRow(
        "groups-3",
        "the same, members on 3 nodes",
        RowUnit.PER_SECOND,
        (_ERLANG,),
        (Limit(150_000),),
        "the nodes are joined by sealed links, and share the core with the rest; those of pg by plain TCP",
    ),
    ComparisonRow(
        "pool",
        "check-outs of a pool",
        RowUnit.PER_SECOND,
        (_ERLANG,),
        (Limit(20_000),),
        "each takes an idle resource and gives it back: a call, and a cast; beside it poolboy's transactions",
    ),
    ComparisonRow("spawn", "starts, supervised", RowUnit.PER_SECOND, (_ERLANG,), limits=(Limit(50_000),)),
    ComparisonRow("idle", "100,000 idle supervised actors", RowUnit.MEGABYTES, limits=(Limit(200),)),
    ComparisonRow("teardown", "ending 100,000 supervised actors", RowUnit.SECONDS, limits=(Limit(5),)),
    ComparisonRow(
        "stages",
        "events through three stages",
        RowUnit.PER_SECOND,
        note="up to 1000 on their way between two",
    ),
    ComparisonRow(
        "stages-one",
        "the same, one by one",
        RowUnit.PER_SECOND,
        note="the price of each message",
    ),
    ComparisonRow(
        "remote-call",
        "calls between two processes, sealed",
        RowUnit.PER_SECOND,
        _FLOORS,
        note="in sequence, on two cores; below it what its bytes cost: round trips of the bare link, and of plain UDP",
    ),
    ComparisonRow(
        "remote-cast", "casts between two processes, sealed", RowUnit.PER_SECOND, note="10,000 and then a call"
    ),
)

COURSE: Final = Course(
    title="actors: one core, each sample in a fresh process: median [min-max] of the rounds",
    rows=_ROWS,
    package="batonpass.scenarios.bench.actors.workers",
    workers={
        OURS: "on_batonpass",
        "trio deque": "on_trio",
        "trio channel": "on_trio",
        _ERLANG: "on_erlang",
        **dict.fromkeys(_FLOORS, "remote"),
    },
    peers=tuple(PeerLibrary(name, (name,)) for name in _LIBRARIES),
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
