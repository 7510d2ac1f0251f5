"""The course: the rows of the table, and what is demanded."""

from typing import Final, get_args

from batonpass.homeserver.rest.models import NewTransfer
from batonpass.scenarios.bench.comparison import OURS, ComparisonRow, Limit
from batonpass.scenarios.bench.rows import RowUnit
from batonpass.scenarios.bench.side_by_side import Course
from batonpass.scenarios.bench.transfers.cores import can_go_ahead
from batonpass.scenarios.bench.transfers.dashboards import DASHBOARDS

__all__ = ["BULK", "CASES", "COURSE", "DRAINED", "MANY", "SIZES", "modes"]

CASES: Final = {"2": "case 2", "3": "case 3"}
SIZES: Final = {"300": "300 bytes", "1M": "1 MiB"}
MANY: Final = 64
"""Entities on their way at once, in the rows about many."""
BULK: Final = 256
"""The same in the row about bulk."""
DRAINED: Final = 10_000
"""Entities of the server that is drained."""

_FLOOR: Final = "floor"
_PACED: Final = "floor, paced"
"""The same, as rarely as the hand-overs that are measured beside it."""
_WHOLE: Final = {"bulk": "many-rate", "drain": "drain"}
_LOOKED_AT: Final = {"dashboards": "share", "dashboards-down": "down"}
"""Rows of one sample, and their figures in it."""
# Ten thousand entities are spawned one by one, each by REST, before they are drained.
_PATIENCE_S: Final = 900.0
# One tick at 20 Hz: a freeze that is no longer costs at most one tick.
_TICK_MS: Final = 50.0


def modes() -> tuple[str, ...]:
    """The hand-off modes that a transfer can be asked for in."""
    return tuple(get_args(NewTransfer.model_fields["mode"].annotation))


def _rows() -> tuple[ComparisonRow, ...]:
    rows = []
    for case, case_title in CASES.items():
        for mode in modes():
            for size, size_title in SIZES.items():
                rows += _rows_of(f"{case}-{size}-{mode}", f"{case_title}, {size_title}, {mode}", case, size)
    bulk = ComparisonRow("bulk", f"case 3, 300 bytes, {BULK} at once", RowUnit.PER_SECOND, (_FLOOR,), (Limit(1000),))
    drain = f"draining a server of {DRAINED:,} entities of 300 bytes"
    # A page that people look at must not slow down what it shows.
    looked_at = f"case 2, 300 bytes, {MANY} at once, with {DASHBOARDS} open dashboards: of those without"
    dashboards = ComparisonRow("dashboards", looked_at, RowUnit.SHARE, limits=(Limit(0.95),))
    red = "from the kill of a server until a dashboard is told that it is down"
    down = ComparisonRow("dashboards-down", red, RowUnit.SECONDS, limits=(Limit(2),))
    return (
        *rows,
        bulk,
        dashboards,
        down,
        ComparisonRow("drain", drain, RowUnit.SECONDS, limits=(Limit(15),), rounds=1),
    )


def _rows_of(name: str, title: str, case: str, size: str) -> list[ComparisonRow]:
    # What moves because the world says so moves in a mode that was not chosen; else each has to be asked for.
    many = f"{title}, {MANY} at once{'' if name.endswith('-eager') else ', asked for by REST'}"
    judged = (Limit(3, _FLOOR),) if (case, size) == ("3", "300") and name.endswith("-eager") else ()
    # Megabytes of 64 at once do not fit into the buffers of a socket without pacing.
    beside_many = (_FLOOR,) if size == "300" else ()
    return [
        ComparisonRow(f"{name}-p50", f"{title}: from freeze to retirement, p50", RowUnit.MS, (_FLOOR, _PACED), judged),
        ComparisonRow(
            f"{name}-ordinary-p50", f"{title}: the same, where others on the core may go first", RowUnit.MS, (_FLOOR,)
        ),
        ComparisonRow(f"{name}-p99", f"{title}: the same, p99", RowUnit.MS, (_FLOOR, _PACED)),
        ComparisonRow(
            f"{name}-gap-p99", f"{title}: from freeze to activation, p99", RowUnit.MS, limits=(Limit(_TICK_MS),)
        ),
        ComparisonRow(
            f"{name}-rate", f"{title}: one after the other, asked for by REST", RowUnit.PER_SECOND, (_FLOOR,)
        ),
        ComparisonRow(f"{name}-many-p50", f"{many}: from freeze to activation, p50", RowUnit.MS),
        ComparisonRow(f"{name}-many-p99", f"{many}: the same, p99", RowUnit.MS),
        ComparisonRow(f"{name}-many-rate", many, RowUnit.PER_SECOND, beside_many),
    ]


def _work(row: ComparisonRow, subject: str) -> str:
    """The sample that a row belongs to, and the subject's figure in there: `3-300-eager:p50`."""
    if row.name in _WHOLE:
        return f"{row.name}:{_WHOLE[row.name]}"
    if row.name in _LOOKED_AT:
        return f"dashboards:{_LOOKED_AT[row.name]}"
    case, size, mode, figure = row.name.split("-", 3)
    return f"{case}-{size}-{mode}:{'paced-' if subject == _PACED else ''}{figure}"


def _remarks() -> tuple[str, ...]:
    if can_go_ahead():
        return ()
    return (
        "The ends of a hand-over may not go before the others on their cores here (CAP_SYS_NICE, or root, would allow "
        "it): they wait for homeservers and for the client in all rows, not only in those that say so.",
    )


_ROWS: Final = _rows()

COURSE: Final = Course(
    title="transfers: a fresh cluster for every sample: median [min-max] of the rounds",
    rows=_ROWS,
    package="batonpass.scenarios.bench.transfers.workers",
    workers={OURS: "on_batonpass", _FLOOR: "on_floor", _PACED: "on_floor"},
    peers=(),
    work={(subject, row.name): _work(row, subject) for row in _ROWS for subject in (OURS, *row.subjects)},
    versions=("batonpass", "trio", "cryptography"),
    one_core=False,
    remarks=_remarks,
    patience_s=_PATIENCE_S,
)
