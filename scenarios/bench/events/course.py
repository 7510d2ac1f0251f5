"""The course: the rows of the table, and what is demanded."""

from typing import Final

from batonpass.scenarios.bench.comparison import OURS, ComparisonRow, Limit
from batonpass.scenarios.bench.peers import PeerLibrary
from batonpass.scenarios.bench.rows import RowUnit
from batonpass.scenarios.bench.side_by_side import Course

__all__ = ["COURSE", "GROWING", "JOIN_TICKS"]

GROWING: Final = (10, 50, 100, 200, 400)
"""Clients of one stream, in the rows about what one more costs."""
JOIN_TICKS: Final = 72_000
"""An hour."""

_IDEAL: Final = "ideal"
_FASTAPI: Final = "fastapi"
_TICK_MS: Final = 50.0
_SHAPES: Final = {"1x200": "1 stream of 200 clients", "200x2": "200 streams of 2 clients"}
# A cluster copies each tick with events: of many streams it has fewer.
_HOSTED_SHAPES: Final = {"1x200": _SHAPES["1x200"], "20x10": "20 streams of 10 clients"}
# Half of it, for what comes before a client can compute.
_JOIN_MS: Final = 1_000.0


def _pushed(work: str, title: str, peers: tuple[str, ...], *, ideal: bool) -> tuple[ComparisonRow, ...]:
    """Rows of what is pushed. `p99` is *demanded* to be below a tick; of `tick` the rules make the part `wait`."""
    all_others = (*peers, _IDEAL) if ideal else peers
    within_a_tick = (Limit(_TICK_MS),)
    return (
        ComparisonRow(f"{work}-on-time", f"{title}: ticks at most one tick late", RowUnit.SHARE, all_others),
        ComparisonRow(f"{work}-late-p99", f"{title}: how late ticks are, p99", RowUnit.MS, all_others),
        ComparisonRow(f"{work}-p50", f"{title}: from post to delivery, p50", RowUnit.MS, peers),
        ComparisonRow(f"{work}-p99", f"{title}: the same, p99", RowUnit.MS, peers, limits=within_a_tick),
        ComparisonRow(f"{work}-tick-p99", f"{title}: from post to the end of its tick, p99", RowUnit.MS, peers),
        ComparisonRow(f"{work}-wait-p99", f"{title}: of this the wait until the tick is due, p99", RowUnit.MS, peers),
        ComparisonRow(f"{work}-rest-p99", f"{title}: of this the rest, p99", RowUnit.MS, peers, limits=within_a_tick),
        ComparisonRow(f"{work}-cpu", f"{title}: processor time per tick told", RowUnit.MICROSECONDS, all_others),
    )


def _rows() -> tuple[ComparisonRow, ...]:
    rows: list[ComparisonRow] = []
    both = (_FASTAPI, _IDEAL)
    for shape, title in _SHAPES.items():
        rows += _pushed(f"push-{shape}", f"{title}, WebSocket", (_FASTAPI,), ideal=True)
    rows += _pushed("sse-1x200", f"{_SHAPES['1x200']}, server-sent events", (), ideal=False)
    for shape, title in _HOSTED_SHAPES.items():
        rows += _pushed(f"hosted-{shape}", f"{title}, WebSocket, on a cluster", (), ideal=False)
    for shape, title in _SHAPES.items():
        poll = f"{title}, polls"
        rows += (
            ComparisonRow(f"poll-{shape}-p50", f"{poll}: from post to delivery, p50", RowUnit.MS, (_FASTAPI,)),
            ComparisonRow(f"poll-{shape}-p99", f"{poll}: the same, p99", RowUnit.MS, (_FASTAPI,)),
            ComparisonRow(f"poll-{shape}-cpu", f"{poll}: processor time per answer", RowUnit.MICROSECONDS, both),
        )
    rows += (
        ComparisonRow(
            f"grow-{clients}",
            f"1 stream of {clients} clients, WebSocket: processor time per message",
            RowUnit.MICROSECONDS,
            (_IDEAL,),
        )
        for clients in GROWING
    )
    hour = f"joining at tick {JOIN_TICKS:,}"
    rows += (
        ComparisonRow(
            "join-snapshot",
            f"{hour}, by a snapshot",
            RowUnit.MS,
            limits=(Limit(_JOIN_MS),),
            rounds=1,
        ),
        ComparisonRow("join-replay", f"{hour}, by computing all of them", RowUnit.MS, rounds=1),
    )
    return tuple(rows)


def _work(row: ComparisonRow) -> str:
    """The sample that a row belongs to, and its figure in there: `push-1x200:p99`."""
    kind, _, rest = row.name.partition("-")
    match kind:
        case "grow":
            return f"grow-1x{rest}:cpu"
        case "join":
            return f"join:{rest}"
        case _:
            shape, _, figure = rest.partition("-")
            return f"{kind}-{shape}:{figure}"


_ROWS: Final = _rows()

COURSE: Final = Course(
    title="events: 20 ticks a second, a fresh server for every sample: median [min-max] of the rounds",
    rows=_ROWS,
    package="batonpass.scenarios.bench.events.workers",
    workers={OURS: "on_batonpass", _IDEAL: "on_ideal"},
    peers=(PeerLibrary(_FASTAPI, ("fastapi", "uvicorn", "websockets")),),
    work={(subject, row.name): _work(row) for row in _ROWS for subject in (OURS, *row.subjects)},
    one_core=False,
)
