"""Actors on other nodes: a ref to one behaves like a ref to one here, as `docs/reference/actors-remote.md` says.

Start with `distribution`, which is what you use, then:

- `settings`     every bound and period, with its reason
- `errors`       what a caller sees: `NodeDown`, `NodeBusy`, `Unsendable`, `RemoteError` (pure)
- `codec`        messages as bytes; `Codec.register` for your own types (pure)
- `frames`       what nodes say to each other, as bytes (pure)
- `peer`         the connection to one node: who waits for what, and what happens when it is lost (pure)
- `seals`        proof that a reference was given away (pure)
- `references`   refs, names and callers: what travels, and what stands here for one that came
- `proxies`      the process behind a ref to another node
- `switchboard`  the connections of a node, the link under them, and the clock
- `router`       what is asked here of others, and what comes of it
- `desk`         does what a peer asks, as far as it may
- `telemetry`    two events: a node is there, a node is gone
"""

from batonpass.actors.remote.codec import Codec
from batonpass.actors.remote.distribution import Distribution, RemoteNode
from batonpass.actors.remote.errors import NOCONNECTION, NodeBusy, NodeDown, RemoteError, Undecodable, Unsendable
from batonpass.actors.remote.proxies import RemoteNamed
from batonpass.actors.remote.settings import DistributionSettings
from batonpass.actors.remote.switchboard import AddressBook, LinkEnded
from batonpass.actors.remote.telemetry import NODE_DOWN, NODE_UP

__all__ = [
    "NOCONNECTION",
    "NODE_DOWN",
    "NODE_UP",
    "AddressBook",
    "Codec",
    "Distribution",
    "DistributionSettings",
    "LinkEnded",
    "NodeBusy",
    "NodeDown",
    "RemoteError",
    "RemoteNamed",
    "RemoteNode",
    "Undecodable",
    "Unsendable",
]
