"""The link: sealed, reliable, credit-controlled messages between two servers, without sockets and clocks.

Start with `link` (the five verbs), then the parts it is made of:

- `link`        Link: receive, send, datagrams_to_send, next_timer, next_event; and take, for the messages
- `sender`      what goes out on a session: filling and sealing datagrams
- `receiver`    what comes in on a session: opening datagrams, and who gets which frame
- `parts`       what both work with
- `prediction`  both in one function each, for the usual small message with an acknowledgement
- `arrivals`    which datagrams have arrived, and when the peer must be told
- `silence`     how long the peer owes an answer
- `agenda`      what else there is to see to
- `events`      what it tells beside messages
- `settings`    every bound and period, with its reason
- `frames`      the bytes of a datagram
- `sessions`    opening, choosing and retiring sessions; what happens when both open, or one restarts
- `path`        where the peer is, and how another address is proved
- `outgoing`    channels, pieces and the peer's credit
- `outgoing_message`  one of them, and how it is cut
- `large`       messages of tens of megabytes, granted one by one
- `incoming`    reassembly, order and our credit
- `assembly`    one message whose pieces are put in their places
- `unfinished`  what all peers together have begun and not ended
- `congestion`  round trip times, and the congestion window of loopback
- `bottleneck`  that of every other path
- `ranges`      which counters have arrived
- `gate`        which HELLOs are worth an answer
- `deadlines`   when to look at which link again

The shell that gives it a socket and a clock is `actors.net.endpoint`; the protocol, byte by byte, is
docs/reference/protocol-link.md.
"""

from batonpass.actors.link.events import Event, LinkExpired, PeerClosed, PeerReachable, PeerRestarted, PeerUnreachable
from batonpass.actors.link.incoming import ReceivedMessage
from batonpass.actors.link.link import Link
from batonpass.actors.link.outgoing_message import LinkFull, require_sendable
from batonpass.actors.link.sessions import SessionIds
from batonpass.actors.link.settings import LARGE_MESSAGE_BYTES, MAX_MESSAGE_BYTES, Address, LinkSettings

__all__ = [
    "LARGE_MESSAGE_BYTES",
    "MAX_MESSAGE_BYTES",
    "Address",
    "Event",
    "Link",
    "LinkExpired",
    "LinkFull",
    "LinkSettings",
    "PeerClosed",
    "PeerReachable",
    "PeerRestarted",
    "PeerUnreachable",
    "ReceivedMessage",
    "SessionIds",
    "require_sendable",
]
