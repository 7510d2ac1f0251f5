"""How much of offered states a server holds before it may simulate them.

Anybody who runs a simulation server somewhere can offer states of any entity, so what is held for nothing has to be
bounded, and nobody may push out what others have offered: when there is no more room, the server that takes up most of
it loses its oldest. What is dropped is sent again if it matters (`authority.machines.source` repeats it).
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from batonpass.authority.limits import MAX_STATE_BYTES
from batonpass.authority.machines.target import Offer

__all__ = ["MAX_STAGED_BYTES", "StagingQuota"]

MAX_STAGED_BYTES: Final = 256 * 1024 * 1024
"""Four of the largest, as the link holds of messages that are arriving."""

OFFER_BYTES: Final = 1024
"""What an offer takes beside its state."""


class StagingQuota:
    """What is staged, of all entities; a ledger, the offers themselves are with their machines."""

    def __init__(self, max_bytes: int = MAX_STAGED_BYTES) -> None:
        if max_bytes < MAX_STATE_BYTES + OFFER_BYTES:
            raise ValueError(f"max_bytes is at least {MAX_STATE_BYTES + OFFER_BYTES}, or the largest would not fit")
        self._max_bytes: Final = max_bytes
        self._of_entity: dict[str, dict[str, str]] = {}
        self._of_source: dict[str, OrderedDict[tuple[str, str], int]] = {}
        self._source_bytes: dict[str, int] = {}
        self.held_bytes = 0

    def settle(self, entity: str, offers: Iterable[Offer]) -> list[tuple[str, str]]:
        """These are all the offers that are held of an entity now; which (entity, transfer) must be let go for them."""
        before = self._of_entity.pop(entity, {})
        now = {offer.transfer_id: offer for offer in offers}
        for transfer_id, source in before.items():
            self._remove(source, (entity, transfer_id))
        for transfer_id, offer in now.items():
            size_bytes = len(offer.state) + OFFER_BYTES
            self._of_source.setdefault(offer.source, OrderedDict())[entity, transfer_id] = size_bytes
            self._source_bytes[offer.source] = self._source_bytes.get(offer.source, 0) + size_bytes
            self.held_bytes += size_bytes
        if now:
            self._of_entity[entity] = {transfer_id: offer.source for transfer_id, offer in now.items()}
        dropped: list[tuple[str, str]] = []
        while self.held_bytes > self._max_bytes:
            greediest = max(self._source_bytes, key=self._source_bytes.__getitem__)
            dropped.append(next(iter(self._of_source[greediest])))
            self._drop(greediest, *dropped[-1])
        return dropped

    def _drop(self, source: str, entity: str, transfer_id: str) -> None:
        self._remove(source, (entity, transfer_id))
        left = self._of_entity[entity]
        del left[transfer_id]
        if not left:
            del self._of_entity[entity]

    def _remove(self, source: str, key: tuple[str, str]) -> None:
        size_bytes = self._of_source[source].pop(key)
        self._source_bytes[source] -= size_bytes
        self.held_bytes -= size_bytes
        if not self._of_source[source]:
            del self._of_source[source], self._source_bytes[source]
