"""The messages that a homeserver drops: counted, and told to people once."""

import logging
from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.actors.net.endpoint import Received
from batonpass.authority.errors import MessageError, Refused, UnregisteredSender
from batonpass.authority.node.config import RejectedPeers
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.crypto.errors import CryptoError
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown

__all__ = ["Drops"]

_log = logging.getLogger("batonpass.homeserver")

# Peers that are not registered, and of which the log has spoken.
MAX_STRANGERS: Final = 1024


class Drops:
    """What one homeserver has dropped."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self.counts: Final[dict[str, int]] = {}
        """How many, by why."""
        self.audit: Final = RejectedPeers()
        self._strangers: Final[FifoTable[str, None]] = FifoTable(MAX_STRANGERS)

    def drop(self, reason: str) -> None:
        """Count a message that was dropped; there is no answer over the link."""
        self.counts[reason] = self.counts.get(reason, 0) + 1

    def known(self, peer: str) -> None:
        """A peer is registered: people are told again if it is removed."""
        self._strangers.pop(peer, None)

    def failed(self, received: Received, error: Exception) -> None:
        """What taking a message has raised: it is a bad one, cannot be decided now, or ran into an error of ours."""
        if isinstance(error, UnregisteredSender):
            self._stranger(received.peer, error)
        elif isinstance(error, MessageError | CryptoError):
            self.drop("bad_message")
            self.audit.dropped(received.peer, error, self._clock.monotonic_ns())
        elif isinstance(error, Refused | InstanceUnreachable | NoQuorum | OutcomeUnknown):
            # The sender repeats its request; over the link, silence is the answer to what could not be decided.
            self.drop("undecided")
            _log.info("could not decide a message of %s: %s", received.peer, error)
        else:
            # One message of one peer must not take the server down with it; people find it in the log and the counter.
            self.drop("internal_error")
            # It may come again at once: with the traceback one in a minute of each peer is told of.
            if self.audit.dropped(received.peer, error, self._clock.monotonic_ns()):
                _log.error("a message of %s ran into an error of ours", received.peer, exc_info=error)

    def renewal_failed(self, peer: str, error: Exception) -> None:
        """As `failed`, of a renewal of a lease."""
        if isinstance(error, UnregisteredSender):
            self._stranger(peer, error)
        elif isinstance(error, MessageError):
            self.drop("bad_message")
            self.audit.dropped(peer, error, self._clock.monotonic_ns())
        else:
            self.drop("undecided")

    def _stranger(self, peer: str, error: UnregisteredSender) -> None:
        """People are told once of a server that was removed and runs on: it sends something every second."""
        self.drop("unknown_sender")
        if peer in self._strangers:
            return
        self._strangers[peer] = None
        _log.warning("what %s sends is dropped from now on: %s; stop it if it was removed", peer, error)
