"""The course: the rows of the table, who can do the work, and what is demanded."""

from typing import Final

from batonpass.scenarios.bench.comparison import OURS, ComparisonRow, Limit
from batonpass.scenarios.bench.peers import NpmLibrary
from batonpass.scenarios.bench.rows import RowUnit
from batonpass.scenarios.bench.side_by_side import Course

__all__ = ["COURSE"]

_COLYSEUS: Final = "colyseus"
_ECHO: Final = "echo"
_CLIENTS: Final = 200
_AREA: Final = 400
_TICK_MS: Final = 50.0
_BOTH: Final = (_COLYSEUS, _ECHO)
_TITLE: Final = f"{_CLIENTS} clients that each see 100 entities at 20 Hz"
_AREA_TITLE: Final = "100 entities in one area"

_ROWS: Final = (
    ComparisonRow("view-p50", f"{_TITLE}: from a tick to its receipt, p50", RowUnit.MS, _BOTH),
    ComparisonRow("view-p99", f"{_TITLE}: the same, p99", RowUnit.MS, _BOTH),
    ComparisonRow("view-delivered", f"{_TITLE}: ticks that clients were told", RowUnit.SHARE, _BOTH),
    ComparisonRow(
        "view-bytes",
        f"{_TITLE}: bytes for each client and second",
        RowUnit.BYTES,
        (_COLYSEUS,),
        (Limit(1, _COLYSEUS),),
        "with the frames of WebSockets",
    ),
    ComparisonRow("view-cpu", f"{_TITLE}: processor time per delivered state", RowUnit.MICROSECONDS, _BOTH),
    ComparisonRow(
        "view-clients",
        f"{_TITLE}: clients per core",
        RowUnit.CLIENTS,
        _BOTH,
        (Limit(0.5, _COLYSEUS),),
        "the ticks that were told, by 20 Hz and by the processor time of the server",
    ),
    ComparisonRow(
        "view-input-p50",
        "meanwhile one client steers: from an input to its acknowledgement, p50",
        RowUnit.MS,
        _BOTH,
        (Limit(_TICK_MS),),
    ),
    ComparisonRow("view-input-p99", "the same, p99", RowUnit.MS, _BOTH),
    ComparisonRow("area-tick-few", f"{_AREA_TITLE}, not watched: a tick", RowUnit.MS),
    ComparisonRow("area-tick-many", f"{_AREA_TITLE}, watched by {_AREA} clients: a tick", RowUnit.MS),
    ComparisonRow(
        "area-tick",
        f"{_AREA_TITLE}: a tick with 100 more clients, in times of one that is not watched",
        RowUnit.TIMES,
        limits=(Limit(1.05),),
    ),
    ComparisonRow("area-round-few", f"{_AREA_TITLE}, not watched: processor time per round", RowUnit.MS),
    ComparisonRow(
        "area-round-many", f"{_AREA_TITLE}, watched by {_AREA} clients: processor time per round", RowUnit.MS
    ),
)


def _work(row: ComparisonRow) -> str:
    """The sample that a row belongs to, and its figure in there."""
    kind, _, figure = row.name.partition("-")
    return f"{kind}-{_CLIENTS if kind == 'view' else _AREA}:{figure}"


COURSE: Final = Course(
    title="clients: the players' door at 20 Hz, a fresh server for every sample: median [min-max] of the rounds",
    rows=_ROWS,
    package="batonpass.scenarios.bench.clients.workers",
    workers={OURS: "on_batonpass", _ECHO: "on_echo"},
    peers=(
        NpmLibrary(
            _COLYSEUS,
            ("@colyseus/core@0.18.17", "@colyseus/ws-transport@0.18.4", "@colyseus/schema@5.0.34", "express@5"),
        ),
    ),
    work={(subject, row.name): _work(row) for row in _ROWS for subject in (OURS, *row.subjects)},
    versions=("batonpass", "trio", "cbor2", "wsproto"),
    one_core=False,
)
