"""What a simulation server's parts have of the world outside; nothing of it knows of entities."""

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from batonpass.actors.base.clock import InstanceClock
from batonpass.actors.net.link_service import LinkService
from batonpass.authority.model.records import Role
from batonpass.authority.node.breakpoints import BreakpointReached
from batonpass.authority.node.spans import Spans
from batonpass.authority.trust.certificate_reader import CertificateReader
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import Renew
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.crypto.keys import PublicIdentity
from batonpass.simserver.net.home_client import HomeClient
from batonpass.simserver.net.outbox import Outbox

__all__ = ["EntityWhereabouts", "SimserverPorts", "certificate_reader"]


def certificate_reader(home: HomeClient) -> CertificateReader:
    """Reads certificates by the keys that the home instance shows."""

    async def signer_of(name: str, kid: str) -> tuple[Role, PublicIdentity] | None:
        row, keys = await home.row(name), await home.keys_of(name, kid)
        return None if row is None or keys is None else (row.role, keys)

    def signer_at_hand(name: str, kid: str) -> tuple[Role, PublicIdentity] | None:
        row, keys = home.row_at_hand(name), home.keys_at_hand(name, kid)
        return None if row is None or keys is None else (row.role, keys)

    # Keys whose time is over are not among those that are good now.
    return CertificateReader(signer_of, lambda: -math.inf, signer_at_hand)


class EntityWhereabouts(Protocol):
    """Who simulates an entity, by its home instance, and where its clients ask that server."""

    async def authority_of(self, entity: str) -> str | None:
        """The server's name, empty if there is none at this moment; None if there is no such entity.

        Raises:
            HomeUnreachable, HomeRefused: that is not known at this moment.
        """

    async def door_of(self, server: str, doors: str = "streams") -> str:
        """The base URL at which clients of `doors` ask this server; empty if that is not known at this moment.

        Args:
            server: its name.
            doors: "streams" or "scenes".
        """


@dataclass(frozen=True, kw_only=True)
class SimserverPorts:
    """The ways out of one server, and its time. A simulation gives others, and all parts above are the same."""

    sealer: Sealer
    home: HomeClient
    renew: Callable[[Renew, Trace], Awaitable[OpenedMessage | None]]
    """Asks the home instance to renew the lease, by a way of its own (`simserver.lease.renewal_lane`)."""
    link: LinkService
    outbox: Outbox
    certificates: CertificateReader
    """Shared by signers and readers of passes: what was signed here comes back."""
    clock: InstanceClock
    counts: Counter[str]
    spans: Spans
    reached: BreakpointReached
    """Told of the steps of a hand-over."""
    new_id: Callable[[], str]
    """Makes the ids of the transfers that begin here."""
    whereabouts: EntityWhereabouts
    """Says clients of an entity that is not here where it is."""

    @property
    def name(self) -> str:
        """This server's."""
        return self.sealer.name
