"""The new authority's side: what a server does with states and certificates that are offered to it, per entity.

Rules it keeps:

1. Nothing is simulated without a certificate that names this server, and only from the very state that the certificate
   names by its hash.
2. A certificate under a fence that is not higher than every fence seen is of the past and changes nothing.
3. A repetition of a certificate that was acted on is answered again, so that a lost answer is no dead end. So is a
   certificate under a lower fence than this server has seen, whichever server remembers it. Only the holder of that
   fence can have led to a higher one, so the hand-over happened, and its source may retire.
4. A state is of the past if it was frozen under a lower fence than this server has seen. It is not if a certificate
   names it under which this server may begin. Then the log has decided since, for this very state.
5. States are staged a few at a time; an offer too many pushes the oldest out (it will be sent again if it matters).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from batonpass.authority.fence import Fence
from batonpass.crypto.bounded_tables import LruTable

__all__ = ["ActivateOffer", "AnswerAgain", "AwaitOtherHalf", "Drop", "Effect", "Incoming", "Offer", "Permission"]

MAX_OFFERS: Final = 4


@dataclass(frozen=True, slots=True)
class Offer:
    """A frozen state that another server sent: its hash, the fence it was frozen under and the tick."""

    transfer_id: str
    fence: Fence
    state_hash: str
    kind: str
    tick: int
    state: bytes
    staged_ns: int
    source: str = ""


@dataclass(frozen=True, slots=True)
class Permission:
    """A verified certificate that names this server: the fence it gives and the state it is about."""

    transfer_id: str
    fence: Fence
    state_hash: str
    source: str


@dataclass(frozen=True, slots=True)
class ActivateOffer:
    """Simulate from the offered state, under the permission's fence, and tell the source."""

    offer: Offer
    permission: Permission


@dataclass(frozen=True, slots=True)
class AnswerAgain:
    """This permission was acted on before: tell the source once more."""

    permission: Permission


@dataclass(frozen=True, slots=True)
class AwaitOtherHalf:
    """Noted; the other half has not come yet."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Of the past: count it under `reason` and forget it."""

    reason: str


Effect = ActivateOffer | AnswerAgain | AwaitOtherHalf | Drop


class Incoming:
    """One entity, seen from a server to which it may be handed.

    Args:
        seen: the highest fence under which this server has known the entity so far.

    A server has one for each of thousands of entities that it had lately. So there is a table of offers only while
    there are offers: without it, one takes 100 bytes and what it has acted on.
    """

    __slots__ = ("_acted_on", "_offers", "_permission", "seen")

    def __init__(self, seen: Fence = Fence(0, 0)) -> None:  # noqa: B008 — an immutable tuple
        self.seen = seen
        self._offers: LruTable[str, Offer] | None = None
        self._permission: Permission | None = None
        # The last one is enough: a higher fence has been seen than those before it.
        self._acted_on: Permission | None = None

    @property
    def staged(self) -> int:
        """How many offered states are held."""
        return 0 if self._offers is None else len(self._offers)

    @property
    def offers(self) -> Iterable[Offer]:
        """The offered states that are held, oldest first."""
        return () if self._offers is None else self._offers.values()

    def forget_offer(self, transfer_id: str) -> None:
        """Let go of an offered state, for want of room; it will be sent again if it matters."""
        if self._offers is not None:
            self._offers.pop(transfer_id, None)
            self._offers = self._offers or None

    @property
    def expecting(self) -> bool:
        """Whether something has been announced, so that early inputs are worth keeping."""
        return bool(self._offers) or self._permission is not None

    @property
    def waits_with(self) -> Permission | None:
        """The leave that was given and not used, because its state has not come."""
        return self._permission

    def fence_raised(self, fence: Fence) -> None:
        """This server learned elsewhere (its own hand-over, the log) that the entity has reached `fence`."""
        if fence > self.seen:
            self.seen = fence
            for transfer_id in [offer.transfer_id for offer in self.offers if offer.fence < fence]:
                self.forget_offer(transfer_id)
            if self._permission is not None and self._permission.fence < fence:
                self._permission = None

    def step_down(self) -> None:
        """This server's lease is over: leave that was given to this life and not used is not the next one's."""
        self._permission = None

    def offered(self, offer: Offer) -> Effect:
        """A state arrived."""
        is_named = self._permission is not None and self._permission.transfer_id == offer.transfer_id
        if offer.fence < self.seen and not is_named:
            return Drop("stale_state")
        if self._offers is None:
            self._offers = LruTable(MAX_OFFERS)
        self._offers[offer.transfer_id] = offer
        return self._try()

    def permitted(self, permission: Permission) -> Effect:
        """A verified certificate arrived."""
        if permission.fence < self.seen or permission == self._acted_on:
            # Even after the entity was handed on: the source still wants to hear that it may retire.
            return AnswerAgain(permission)
        if permission.fence == self.seen or (self._permission and permission.fence < self._permission.fence):
            return Drop("stale_certificate")
        self._permission = permission
        return self._try()

    def _try(self) -> Effect:
        permission = self._permission
        if permission is None:
            return AwaitOtherHalf()
        offer = None if self._offers is None else self._offers.get(permission.transfer_id)
        if offer is None:
            return AwaitOtherHalf()
        if offer.state_hash != permission.state_hash:
            self.forget_offer(permission.transfer_id)
            return Drop("wrong_state")
        self.seen = permission.fence
        self._acted_on, self._permission = permission, None
        self._offers = None
        return ActivateOffer(offer, permission)
