"""Room for entities on another server, asked for before one is frozen for it: both sides, without clocks or sockets.

A server that is about to hand entities over asks the target for *places*. Will you take this number of this kind, in
this form, of about this size? The target answers with a number that it keeps free for a while, or with a reason. So
what would be refused is refused while the entity is simulated still, and one question serves many hand-overs.

Places are a courtesy, not authority. One that is used after its time makes the target fuller than it likes, by a
bounded number, and nothing else.

How much of offered states a server holds before it may simulate them.

A simulation server anywhere can offer states of any entity. So what is held for nothing has to be bounded, and no
server may push out what others have offered. When there is no more room, the server that takes up most of it loses its
oldest. What is dropped is sent again if it matters (`authority.machines.source` repeats it).
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from batonpass.authority.errors import Reason
from batonpass.authority.limits import MAX_STATE_BYTES
from batonpass.authority.machines.target import Offer
from batonpass.crypto.bounded_tables import LruTable

__all__ = [
    "MAX_PLACES",
    "MAX_STAGED_BYTES",
    "PLACES_TTL_NS",
    "REFUSED_TTL_NS",
    "Need",
    "Places",
    "StagingQuota",
    "Vacancies",
]

# How many places one question may get, and how long they are kept. The answers come in a round trip.
MAX_PLACES: Final = 1024
PLACES_TTL_NS: Final = 5_000_000_000
# A refusal is believed for as long: an entity that wants to go with every tick must not ask with every tick.
REFUSED_TTL_NS: Final = 1_000_000_000
# The first question is for so few, each that follows soon for twice as many: who needs one keeps little from others.
FIRST_PLACES: Final = 16
# A place that finds no room in this table is one that the target does not count.
_MAX_PROMISES: Final = 1000
_MAX_KNOWN: Final = 10_000
_SMALLEST: Final = 1024


@dataclass(frozen=True, slots=True)
class Need:
    """What an entity needs where it goes; sizes are told in powers of two, so that a few questions serve all."""

    kind: str
    schema_version: int
    state_bytes: int

    @classmethod
    def of(cls, kind: str, schema_version: int, state_bytes: int) -> "Need":
        """The need of one entity whose encoded state has `state_bytes`."""
        return cls(kind, schema_version, max(_SMALLEST, 1 << (state_bytes - 1).bit_length()))


@dataclass(slots=True)
class _Promise:
    asker: str
    left: int
    until_ns: int


class Vacancies:
    """The target's side: how many places of its own it has promised to whom.

    Args:
        max_entities: how many entities the server takes.
    """

    def __init__(self, max_entities: int) -> None:
        self.max_entities = max_entities
        self._promises: deque[_Promise] = deque()
        self._kept = 0

    def promise(self, asker: str, places: int, living: int, now_ns: int) -> int:
        """Keep up to `places` free for `asker`, beside what it was promised before; how many, 0 if there are none.

        `living` is how many entities the server holds now.
        """
        while self._promises and (self._promises[0].until_ns <= now_ns or not self._promises[0].left):
            self._kept -= self._promises.popleft().left
        granted = max(0, min(places, MAX_PLACES, self.max_entities - living - self._kept))
        if granted and len(self._promises) < _MAX_PROMISES:
            self._promises.append(_Promise(asker, granted, now_ns + PLACES_TTL_NS))
            self._kept += granted
        return granted

    def arrived(self, asker: str) -> None:
        """An entity of `asker` has come: it lives here now, and has used a place."""
        promise = next((promise for promise in self._promises if promise.asker == asker and promise.left), None)
        if promise is not None:
            promise.left -= 1
            self._kept -= 1


@dataclass(slots=True)
class _KnownPlaces:
    left: int
    until_ns: int
    reason: str
    granted: int


class Places:
    """The asking side: what targets have answered lately."""

    def __init__(self) -> None:
        self._known: LruTable[tuple[str, Need], _KnownPlaces] = LruTable(_MAX_KNOWN)

    def take(self, target: str, need: Need, now_ns: int) -> str | None:
        """Use one place: empty text if there was one, the reason if the target refused lately, None to ask it."""
        known = self._known.get((target, need))
        if known is None or known.until_ns <= now_ns:
            return None
        if known.reason:
            return known.reason
        if not known.left:
            return None
        known.left -= 1
        return ""

    def are_few(self, target: str, need: Need) -> bool:
        """Whether more should be asked for already."""
        known = self._known.get((target, need))
        return known is None or 4 * known.left < known.granted

    def wanted(self, target: str, need: Need, now_ns: int) -> int:
        """For how many places to ask."""
        known = self._known.get((target, need))
        is_soon = known is not None and known.until_ns > now_ns
        return min(2 * known.granted, MAX_PLACES) if known is not None and is_soon and known.granted else FIRST_PLACES

    def answered(self, target: str, need: Need, places: int, reason: str, now_ns: int) -> None:
        """The target promised `places`, or refused for `reason`."""
        before = self._known.get((target, need))
        until_ns, left = now_ns + (REFUSED_TTL_NS if reason else PLACES_TTL_NS), 0 if reason else places
        if left and before is not None and before.left and before.until_ns > now_ns:
            # Those of before are kept no longer than said, and these no longer than those.
            until_ns, left = before.until_ns, left + before.left
        self._known[target, need] = _KnownPlaces(left, until_ns, reason, places)

    def silent(self, target: str, need: Need, now_ns: int) -> None:
        """The target does not answer."""
        self.answered(target, need, 0, Reason.TARGET_FAILED.value, now_ns)


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
