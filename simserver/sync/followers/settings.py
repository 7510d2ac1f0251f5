"""What all nodes of a show agree on, and the bounds of each."""

import enum
from dataclasses import dataclass, field

from batonpass.simserver.sync.followers.frame_clock import FrameRate

__all__ = ["LOOPBACK_PIECE_BYTES", "MAX_STATE_BYTES", "PIECE_BYTES", "FenceKind", "ShowMode", "ShowSettings"]

MAX_STATE_BYTES = 64 * 1024 * 1024
"""Of any show."""
NS_IN_MS = 1_000_000
PIECE_BYTES = 1_200
"""Ethernet takes these whole, with seal and heads: at most 1,475 bytes of 1,500."""
LOOPBACK_PIECE_BYTES = 60_000
"""Of datagrams that leave no machine: what a datagram costs is paid for 50 times as many bytes."""
_ENDLESS = float("inf")


class ShowMode(enum.Enum):
    """What the controller sends: each full state, changes of it, or the inputs that lead to it and its hash."""

    STATE = "state"
    DELTA = "delta"
    INPUTS = "inputs"


class FenceKind(enum.Enum):
    """When complete data of a frame go to the engine.

    NONE at once; SOFT when all live followers have them; EXTERNAL when the engine says so (`EngineNode.open_fence`).
    """

    NONE = "none"
    SOFT = "soft"
    EXTERNAL = "external"


@dataclass(frozen=True, slots=True)
class ShowSettings:
    """Of one show.

    Attributes:
        piece_bytes: of a payload in one datagram; 0: `PIECE_BYTES`, or `LOOPBACK_PIECE_BYTES` where all nodes are on
            one machine.
        pace_bytes_per_s: what the controller sends to each node at most, beside answers; 0 for no bound.
        window_s, window_bytes: how long, and how much, the controller keeps for who misses something.
        max_open_frames, max_open_bytes: of which a follower collects pieces at once.
        patience_frames: a frame is given up when it is so far behind the newest one.
        max_history_frames: full states that are kept as bases of deltas.
        nack_ms: without a new piece for so long, a follower asks for what is missing. It waits up to a frame's period
            where what it asked for was only late.
        live_s: a node that was silent for so long is waited for no more.
        fan_out: how many nodes each node passes datagrams on to; 0: the controller sends to all.
        survey_s: how long a new controller waits for answers; `fetch_s` how long for a state that it lacks.
        fence_wait_s: the soft fence waits at most so long.
        payload_version: that followers take; None for any.
        held: nodes that are ignored until an operator releases them.
    """

    rate: FrameRate = field(default_factory=lambda: FrameRate(60, 1))
    mode: ShowMode = ShowMode.STATE
    fence: FenceKind = FenceKind.NONE
    piece_bytes: int = 0
    pace_bytes_per_s: int = 250_000_000
    window_s: float = 1.0
    window_bytes: int = 128 * 1024 * 1024
    max_state_bytes: int = MAX_STATE_BYTES
    max_open_frames: int = 64
    max_open_bytes: int = 160 * 1024 * 1024
    patience_frames: int = 8
    max_history_frames: int = 32
    nack_ms: int = 4
    live_s: float = 1.0
    fan_out: int = 0
    survey_s: float = 0.1
    fetch_s: float = 0.25
    fence_wait_s: float = 0.05
    payload_version: int | None = None
    held: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for name in ("window_s", "window_bytes", "max_open_frames", "max_history_frames", "nack_ms", "live_s"):
            if not 0 < getattr(self, name) < _ENDLESS:
                raise ValueError(f"{name} is {getattr(self, name)}: give more than 0")
        for name in ("pace_bytes_per_s", "survey_s", "fetch_s", "fence_wait_s"):
            if not 0 <= getattr(self, name) < _ENDLESS:
                raise ValueError(f"{name} is {getattr(self, name)}: give 0 or more")
        if self.piece_bytes and not 64 <= self.piece_bytes <= 65_000:
            raise ValueError(f"piece_bytes is {self.piece_bytes}: give 64 to 65,000, or 0 for what the network takes")
        if not 0 < self.max_state_bytes <= min(self.max_open_bytes, MAX_STATE_BYTES):
            text = f"give 1 to {MAX_STATE_BYTES:,}, and not more than max_open_bytes"
            raise ValueError(f"max_state_bytes is {self.max_state_bytes}: {text}")
        if not 0 <= self.fan_out <= 64:
            raise ValueError(f"fan_out is {self.fan_out}: give 0 to 64")
        if not 1 <= self.patience_frames <= self.max_open_frames:
            raise ValueError(f"patience_frames is {self.patience_frames}: give 1 to max_open_frames")
