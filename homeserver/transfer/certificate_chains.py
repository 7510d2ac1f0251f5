"""Chains of direct passes that come home, and those of which a key is not good any more.

A chain that verifies is the log's to follow. One that would, if a key had not been revoked or ended since, may have
been verified by whoever was passed the entity, and nobody can be shown that it was: home cannot follow it, nor take it
for nothing. So the entity is *contested*: its fence is raised, everybody who is alive is asked what he has of it, who
simulates it stands still, and one goes on (`homeserver.failover.takeover`). Until then whoever brought the chain is
told that nothing is decided (`unproven`); after that the log answers as it does whoever is of the past.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.trust.certificates import UnprovenChain
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.transfer.certificates import Certification

__all__ = ["CertificateChains"]

_log = logging.getLogger("batonpass.homeserver.transfer.certificate_chains")


class CertificateChains:
    """One member's look at the chains of its instance's entities.

    Args:
        contested: told of each entity that is looked for because of its chain.
    """

    def __init__(self, certificates: Certification, store: InstanceStore, contested: Callable[[str], None]) -> None:
        self._certificates: Final = certificates
        self._store: Final = store
        self._contested: Final = contested

    async def passes(self, chain: Sequence[str], entity: str, by: str, transfer_id: str = "") -> list[dict[str, Any]]:
        """The passes of a chain, as the log's arguments; none if the log is beyond what nobody can prove of them.

        Args:
            by: the server that says that it was passed the entity, or has passed it on.
            transfer_id: what that is about, if it may be open; it has its result then.

        Raises:
            Refused: `unproven` while who has the entity is looked for; `no_delegation` if `by` has nothing to say.
            MessageError, NoQuorum, PeerUnreachable: as `Certification.passes_untrusted`.
            OutcomeUnknown: the log did not say what it made of it.
        """
        try:
            return await self._certificates.passes_untrusted(chain, entity)
        except UnprovenChain as error:
            await self._contest(error, entity, by, transfer_id)
            return []

    async def followed(
        self, chain: Sequence[str], entity: str, by: str, transfer_id: str
    ) -> tuple[list[dict[str, Any]], bool]:
        """As `passes`, of a chain that may break: the passes before it does, and whether it does."""
        try:
            return await self._certificates.followed_untrusted(chain, entity)
        except UnprovenChain as error:
            await self._contest(error, entity, by, transfer_id)
            return [], False

    async def _contest(self, error: UnprovenChain, entity: str, by: str, transfer_id: str) -> None:
        last = error.last
        transfers = [name for name in dict.fromkeys((last.transfer_id, transfer_id)) if name]
        is_open = await self._store.submit(
            "recovery.contest", entity=entity, epoch=last.epoch, sub=last.sub, by=by, transfers=transfers
        )
        if is_open:
            self._contested(entity)
            text = f"the server that has {entity} is looked for, as {by} cannot prove what became of it: {error}"
            _log.warning("%s", text)
            raise Refused(Reason.UNPROVEN, text, entity=entity)
