"""Bounds and settings of event streams. All are settable; the defaults are those of docs/reference/event-stream.md."""

from dataclasses import dataclass
from typing import Final

__all__ = ["CHECKPOINT_TICKS", "MAX_KNOWN", "MAX_TICK", "TICK_MS", "StreamLimits"]

TICK_MS: Final = 50
"""One tick of a stream. Clients count on it (seed document: event stream)."""

CHECKPOINT_TICKS: Final = 20
"""Each tick that is a multiple of this is a *checkpoint*: clients that cannot tell all hashes tell those of these."""

MAX_TICK: Final = 2**52
"""The highest tick of a stream, and by how much a client without an incarnation may be told later ticks than it has."""

MAX_KNOWN: Final = 2 * MAX_TICK - 1
"""The highest last known tick that is taken: JavaScript's greatest safe integer."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """What one stream, one client and one request may have.

    Attributes:
        max_body_bytes: of a request, but for snapshots and dumps.
        max_name_chars: of the name of a stream, and of a private id.
        max_events_per_s: of one client; also how many it may send at once.
        max_stream_events_per_s: of all clients of one stream together; also how many they may send at once.
        max_events: in the log of one stream.
        max_log_bytes: of the types and bodies in the log of one stream, each with `log.ROW_BYTES` for itself.
        max_reply_bytes: of the events in a reply, counted as in the log; those of one tick are told in any case.
        max_clients: connected to one stream.
        max_remembered: disconnected clients of one stream whose public ids are kept; the longest gone is forgotten.
        max_streams: of one server.
        max_hashes: in one request.
        max_snapshot_bytes: of the trusted snapshot.
        max_state_bytes: of the names and values in the state of one client.
        max_dump_bytes: of each dump of a desync.
        max_dumps: of one desync, one for each hash.
        silence_ms: a client that was not heard of for longer is disconnected.
        forget_ms: a stream that was not asked for longer is forgotten.
        max_jump_ms: how far the clock moves at once; longer, the server was suspended.
        hash_window_ticks: for how many ticks votes are kept.
        checkpoint_window_ticks: for how many ticks the votes of checkpoints are kept.
        pause: whether the tick waits while no client is connected.
        keep_history: whether the log before a trusted snapshot is kept until the log is full.
        trust_lone: whether the snapshot of a client that is alone is trusted once the log is half full.
    """

    max_body_bytes: int = 16 * 1024
    max_name_chars: int = 128
    max_events_per_s: int = 20
    max_stream_events_per_s: int = 2_000
    max_events: int = 100_000
    max_log_bytes: int = 32 * 1024 * 1024
    max_reply_bytes: int = 256 * 1024
    max_clients: int = 1_000
    max_remembered: int = 4_096
    max_streams: int = 1_000
    max_hashes: int = 64
    max_snapshot_bytes: int = 1024 * 1024
    max_state_bytes: int = 16 * 1024
    max_dump_bytes: int = 1024 * 1024
    max_dumps: int = 2
    silence_ms: int = 10_000
    forget_ms: int = 60_000
    max_jump_ms: int = 5_000
    hash_window_ticks: int = 600
    checkpoint_window_ticks: int = 2_400
    pause: bool = True
    keep_history: bool = True
    trust_lone: bool = True
