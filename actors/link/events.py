"""What a link tells its shell beside messages."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PeerRestarted:
    """The peer has begun anew and remembers nothing: what it had not acknowledged is being sent again."""


@dataclass(frozen=True)
class PeerUnreachable:
    """An answer has been due for too long. Queued messages are kept and the link keeps trying."""


@dataclass(frozen=True)
class PeerReachable:
    """The peer has answered again after PeerUnreachable."""


@dataclass(frozen=True)
class PeerClosed:
    """The peer has said that it ends. What it had not acknowledged is kept for its successor."""


@dataclass(frozen=True)
class LinkExpired:
    """The link has no further use: it was idle, or the peer stayed away. `dropped_messages` were never
    acknowledged."""

    dropped_messages: int


Event = PeerRestarted | PeerUnreachable | PeerReachable | PeerClosed | LinkExpired
