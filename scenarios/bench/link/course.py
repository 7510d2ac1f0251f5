"""The course: the rows of the table, who can do the work, and what is demanded."""

from typing import Final

from batonpass.scenarios.bench.comparison import OURS, ComparisonRow, Limit
from batonpass.scenarios.bench.peers import PeerLibrary
from batonpass.scenarios.bench.rows import RowUnit
from batonpass.scenarios.bench.side_by_side import Course

__all__ = ["COURSE"]

_RAW, _RAW_TRIO = "UDP, blocking", "UDP, trio"
_TLS, _TLS_TRIO = "TLS, blocking", "TLS, trio"
_CURVE, _QUIC = "pyzmq", "aioquic"
_JOSERFC, _PRIMITIVES = "joserfc", "primitives"

_ROWS: Final = (
    ComparisonRow(
        "rtt",
        "100 bytes there and back",
        RowUnit.MICROSECONDS,
        (_RAW, _RAW_TRIO, _TLS, _TLS_TRIO, _CURVE, _QUIC),
        (Limit(1.6, _RAW_TRIO), Limit(0.15, _QUIC), Limit(0.40, _TLS_TRIO), Limit(1.0, _CURVE)),
    ),
    ComparisonRow(
        "echo",
        "100 bytes there and back, 256 on their way",
        RowUnit.PER_SECOND,
        (_RAW, _RAW_TRIO, _TLS, _TLS_TRIO, _CURVE, _QUIC),
        (Limit(2.5, _RAW_TRIO), Limit(1.5, _CURVE), Limit(60, _QUIC)),
        "a stream puts messages together by itself",
    ),
    ComparisonRow(
        "messages",
        "100 bytes one way, 1024 on their way",
        RowUnit.PER_SECOND,
        (_RAW, _RAW_TRIO, _TLS, _TLS_TRIO, _CURVE, _QUIC),
        (Limit(2.5, _RAW_TRIO), Limit(1.5, _CURVE), Limit(60, _QUIC)),
        "counted where they arrive; every 256 are answered together; streams are given 256 at once",
    ),
    ComparisonRow(
        "bulk",
        "1 MiB, loopback",
        RowUnit.MEGABYTES_PER_SECOND,
        (_TLS, _TLS_TRIO, _CURVE, _QUIC),
        (Limit(5, _TLS_TRIO), Limit(1.5, _CURVE), Limit(80, _QUIC), Limit(1.5, _TLS)),
    ),
    ComparisonRow(
        "bulk-1200",
        "1 MiB, datagrams of 1200 bytes",
        RowUnit.MEGABYTES_PER_SECOND,
        (_TLS_TRIO, _QUIC),
        (Limit(0.9, _TLS_TRIO), Limit(15, _QUIC)),
        "TLS has the segments of loopback's TCP, 64 KB",
    ),
    ComparisonRow(
        "goodput",
        "goodput with 1 % loss : without, 1200 bytes",
        RowUnit.SHARE,
        limits=(Limit(0.7),),
        note="each end loses one datagram in a hundred on the way out; on loopback the link tolerates that loss",
    ),
    ComparisonRow(
        "goodput-network",
        "the same as on any other path",
        RowUnit.SHARE,
        (_QUIC,),
        note="without the loss that the link tolerates on loopback only",
    ),
    ComparisonRow(
        "envelope",
        "sealing and opening an envelope of 100 bytes",
        RowUnit.MICROSECONDS,
        (_PRIMITIVES, _JOSERFC),
        (Limit(1.6, _PRIMITIVES), Limit(0.77, _JOSERFC)),
        "primitives: a fresh key, two agreements, two AES-GCM, a signature, its verification, reading a point",
    ),
    ComparisonRow(
        "envelope-1M",
        "sealing and opening an envelope of 1 MiB",
        RowUnit.MS,
        (_JOSERFC,),
    ),
)

COURSE: Final = Course(
    title="the link: both ends on one core, each sample in fresh processes: median [min-max] of the rounds",
    rows=_ROWS,
    package="batonpass.scenarios.bench.link.workers",
    workers={
        OURS: "on_batonpass",
        _RAW: "on_udp",
        _RAW_TRIO: "on_udp",
        _TLS: "on_tls",
        _TLS_TRIO: "on_tls",
        _PRIMITIVES: "on_primitives",
    },
    peers=(
        PeerLibrary(_CURVE, ("pyzmq",)),
        PeerLibrary(_QUIC, ("aioquic",)),
        PeerLibrary(_JOSERFC, ("joserfc",)),
    ),
    work={
        (subject, work): f"{kind}-{'bulk' if work == 'bulk-1200' else work}"
        for subject, kind in ((_RAW, "blocking"), (_RAW_TRIO, "trio"), (_TLS, "blocking"), (_TLS_TRIO, "trio"))
        for work in ("rtt", "echo", "messages", "bulk", "bulk-1200")
    }
    | {(_QUIC, "bulk-1200"): "bulk"},
    versions=("batonpass", "trio", "cryptography"),
)
