"""Contacts: an entity of this server meets a ghost, and authority over one of the two moves, or not. No I/O.

What moves is decided by the policy (`contact_policy`); how it moves is a transfer like any other, under the entity's
rule. The server of the one that takes claims the other one. The server of the one that is to go decides by the same
policy, with what it knows itself. Nothing depends on the word of the other server alone. A claim counts only if this
server has been shown the ghost of the entity that claims, by the same server, under the same fence.

What keeps entities from going back and forth:

- *hold*: an entity that came here stays for `HOLD_ROUNDS`, whatever it meets;
- *budget*: at most `BUDGET` entities leave in `BUDGET_ROUNDS` for contacts, and one claim of a ghost in `AGAIN_ROUNDS`;
- *carried*: what was taken stays until it has been at rest for `REST_ROUNDS`, wherever its world wants it. Then it goes
  where its world or the table of regions wants it; of a world that says nothing of places, back to where it came from.

Moves back are counted: those to a server that the entity left for a contact less than `BACK_ROUNDS` ago.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from batonpass.authority.fence import Fence
from batonpass.crypto.bounded_tables import LruTable
from batonpass.simserver.neighbours.contact_policy import CARRIED, DRIVEN, ContactPolicy, MeetingEntity, Verdict

__all__ = [
    "AGAIN_ROUNDS",
    "BUDGET",
    "BUDGET_ROUNDS",
    "HOLD_ROUNDS",
    "REST_ROUNDS",
    "CarriedContact",
    "Claim",
    "Contacts",
]

HOLD_ROUNDS: Final = 20
REST_ROUNDS: Final = 60
AGAIN_ROUNDS: Final = 10
BUDGET: Final = 64
BUDGET_ROUNDS: Final = 20
BACK_ROUNDS: Final = 200
_CARRIED_ROUNDS: Final = 20
"""For so long after its last contact what was taken counts as carried."""
_CLAIM_ROUNDS: Final = 40
"""For so long after a claim its entity may come for it."""
_MAX_NOTED: Final = 16_384
_MAX_WAITS: Final = 1024


class ContactSights(Protocol):
    """What contacts are told of entities and ghosts."""

    def here(self, entity: str) -> tuple[Fence, int] | None:
        """Fence and priority of an entity that is simulated here and not about to leave; None otherwise."""

    def ghost(self, entity: str) -> tuple[MeetingEntity, Fence] | None:
        """The ghost of an entity, and its fence."""

    def is_driven(self, entity: str) -> bool:
        """Whether a player has given an entity of this server inputs a moment ago."""

    def moved_in(self, entity: str) -> int:
        """The last round in which the state of an entity of this server changed."""


@dataclass(frozen=True, slots=True)
class Claim:
    """To the server of a ghost: an entity of this server meets it, and should have it."""

    entity: str
    fence: Fence
    ghost: str
    ghost_fence: Fence
    server: str


@dataclass(slots=True)
class _Claimed:
    first: int
    last: int
    by: str
    server: str


@dataclass(slots=True)
class CarriedContact:
    """An entity that came here for a contact: where it came from, and when it met anything last."""

    back_to: str
    taken_by: str
    touched: int


class Contacts:
    """The contacts of one server.

    Args:
        server: its name.
        policy: decides.
        sights: what is known of entities and ghosts.
        give: hands an entity over to a server, because of an entity there.
        send_back: has an entity go to a server, because it is at rest.
        count: notes what happened by name.
    """

    def __init__(
        self,
        server: str,
        policy: ContactPolicy,
        sights: ContactSights,
        give: Callable[[str, str, str], None],
        send_back: Callable[[str, str], None],
        count: Callable[[str], None],
    ) -> None:
        self._server: Final = server
        self._policy: Final = policy
        self._sights: Final = sights
        self._give: Final = give
        self._send_back: Final = send_back
        self._count: Final = count
        self._round = 0
        self._spent: Final[list[int]] = []
        self._came: Final[LruTable[str, int]] = LruTable(_MAX_NOTED)
        self._claimed: Final[LruTable[str, _Claimed]] = LruTable(_MAX_NOTED)
        self._left: Final[LruTable[str, tuple[int, str]]] = LruTable(_MAX_NOTED)
        self._carried: Final[dict[str, CarriedContact]] = {}
        self.waits: Final[deque[int]] = deque(maxlen=_MAX_WAITS)
        """How many rounds passed from the first claim of an entity until it was simulated here; the latest of them."""
        self.reranked: set[str] = set()
        """The entities whose rank has changed since the set was emptied."""

    def __iter__(self) -> Iterator[tuple[str, CarriedContact]]:
        return iter(sorted(self._carried.items()))

    def __len__(self) -> int:
        return len(self._carried)

    # --- what is asked ---------------------------------------------------------------------------------------------

    def rank(self, entity: str) -> int:
        """What an entity of this server counts in a contact."""
        if self._sights.is_driven(entity):
            return DRIVEN
        carried = self._carried.get(entity)
        return CARRIED if carried is not None and self._round - carried.touched <= _CARRIED_ROUNDS else 0

    def holds(self, entity: str) -> bool:
        """Whether an entity was taken by a contact and is not at rest: its world's wishes have to wait."""
        return entity in self._carried

    # --- what happens ----------------------------------------------------------------------------------------------

    def came(self, entity: str) -> None:
        """An entity is simulated here from now on, or under another fence."""
        claim = self._claimed.pop(entity, None)
        if claim is not None and self._round - claim.last <= _CLAIM_ROUNDS:
            server = claim.server
            self._carried[entity] = CarriedContact(server, claim.by, self._round)
            # The round in which it begins here is not over yet, as that was in which it was claimed.
            self.waits.append(self._round + 1 - claim.first)
            self.reranked.add(entity)
            self._count("contact_taken")
            left = self._left.get(entity)
            if left is not None and left[1] == server and self._round - left[0] <= BACK_ROUNDS:
                self._count("contact_moved_back")
        self._came[entity] = self._round

    def left(self, entity: str) -> None:
        """An entity is not here any more."""
        self._carried.pop(entity, None)
        self._came.pop(entity, None)

    def touched(self, entity: str, others: Sequence[str]) -> list[Claim]:
        """A step is committed in which an entity of this server has met these; what is to be claimed for it."""
        here = self._sights.here(entity)
        if here is None:
            return []
        fence, priority = here
        claims = []
        for other in others:
            known = self._sights.ghost(other)
            if known is None:
                # Of this server, or gone: it moves nothing, and neither of them is at rest.
                self._touches(entity)
                self._touches(other)
                continue
            ghost, ghost_fence = known
            mine = MeetingEntity(entity, self.rank(entity), priority, self._server)
            self._count("contacts")
            match self._policy(mine, ghost):
                case Verdict.TAKES if self._may_claim(other):
                    self._touches(entity)
                    self._note_claim(other, entity, ghost.server)
                    claims.append(Claim(entity, fence, other, ghost_fence, ghost.server))
                case Verdict.GOES:
                    self._go(entity, ghost)
                case _:
                    pass
        return claims

    def claimed(self, claim: Claim, by: str) -> None:
        """Another server claims an entity of this one, because an entity there has met it."""
        here, known = self._sights.here(claim.ghost), self._sights.ghost(claim.entity)
        if here is None or here[0] != claim.ghost_fence:
            self._count("contact_stale")
            return
        if known is None or known[0].server != by or known[1] != claim.fence:
            self._count("contact_unseen")
            return
        mine = MeetingEntity(claim.ghost, self.rank(claim.ghost), here[1], self._server)
        if self._policy(mine, known[0]) is Verdict.GOES:
            self._go(claim.ghost, known[0])
        else:
            self._count("contact_outranked")

    def round_is_over(self, number: int, settled: Callable[[str], bool]) -> None:
        """Round `number` is over. `settled` says whether an entity's world has a place for it, and it goes there."""
        self._round = number
        for entity, carried in list(self._carried.items()):
            if number - carried.touched == _CARRIED_ROUNDS + 1:
                self.reranked.add(entity)
            last = max(carried.touched, self._sights.moved_in(entity))
            if number - last < REST_ROUNDS or self._sights.here(entity) is None:
                continue
            del self._carried[entity]
            self._count("contact_at_rest")
            if not settled(entity):
                self._send_back(entity, carried.back_to)

    # --- bounds ----------------------------------------------------------------------------------------------------

    def _touches(self, entity: str) -> None:
        carried = self._carried.get(entity)
        if carried is not None:
            if self._round - carried.touched > _CARRIED_ROUNDS:
                self.reranked.add(entity)
            carried.touched = self._round

    def _may_claim(self, ghost: str) -> bool:
        claim = self._claimed.get(ghost)
        return claim is None or self._round - claim.last >= AGAIN_ROUNDS

    def _note_claim(self, ghost: str, by: str, server: str) -> None:
        claim = self._claimed.get(ghost)
        is_again = claim is not None and claim.server == server and self._round - claim.last <= _CLAIM_ROUNDS
        first = claim.first if claim is not None and is_again else self._round
        self._claimed[ghost] = _Claimed(first, self._round, by, server)

    def _go(self, entity: str, to: MeetingEntity) -> None:
        """Hand an entity over, if it has been here for long enough and not too many go."""
        left = self._left.get(entity)
        if left is not None and self._round - left[0] < AGAIN_ROUNDS:
            # It is on its way, or was refused a moment ago.
            return
        came = self._came.get(entity)
        if came is not None and self._round - came < HOLD_ROUNDS:
            self._count("contact_held")
            return
        while self._spent and self._round - self._spent[0] >= BUDGET_ROUNDS:
            self._spent.pop(0)
        if len(self._spent) >= BUDGET:
            self._count("contact_over_budget")
            return
        self._spent.append(self._round)
        self._left[entity] = self._round, to.server
        self._count("contact_gone")
        self._give(entity, to.server, to.entity)
