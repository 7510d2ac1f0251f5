"""A line for people about each peer whose messages are refused because of who sealed them, or how: not one a message.

A forged, replayed or misdirected message is dropped without an answer (FAILURES rows 17 and 18), so its sender learns
nothing; an operator should. What is named is the peer of an authenticated link: what has no
such name is counted by the link alone, since any name that it gave could be another's. The line has no contents of
messages and no keys, and what a peer chose of it is shortened and quoted, so that it stays one line.

Without a clock: the caller hands over the time.
"""

import logging
from typing import Final

from batonpass.crypto.bounded_tables import FifoTable

__all__ = ["INTERVAL_NS", "MAX_AUDITED", "MAX_REASON", "RejectedPeers"]

_log = logging.getLogger("batonpass.audit")

INTERVAL_NS: Final = 60_000_000_000
"""Of one peer there is a line so often at most; the next one says how many there were meanwhile."""
MAX_AUDITED: Final = 1024
"""Peers that are remembered; the one with the oldest line is forgotten first, and its next line comes at once."""
MAX_REASON: Final = 200
"""Characters of the reason in a line."""


class RejectedPeers:
    """Whose messages were dropped, and how often since the last line about it."""

    def __init__(self) -> None:
        # Of each peer: when there was a line, and how many went without since.
        self._peers: FifoTable[str, tuple[int, int]] = FifoTable(MAX_AUDITED)

    def dropped(self, peer: str, error: Exception, now_ns: int) -> bool:
        """A message of `peer` was dropped because of `error`; whether there is a line about it."""
        written_ns, quiet = self._peers.get(peer, (now_ns - INTERVAL_NS, 0))
        if now_ns - written_ns < INTERVAL_NS:
            self._peers[peer] = written_ns, quiet + 1
            return False
        self._peers.pop(peer, None)
        self._peers[peer] = now_ns, 0
        reason = ascii(str(error)[:MAX_REASON])
        _log.warning("audit: event=message_dropped peer=%s reason=%s unlogged_before=%d", peer, reason, quiet)
        return True
