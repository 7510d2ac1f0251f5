"""Players of whom nothing is heard: their home instances are told, which decide whether they count as gone.

The authority is the one that a player's inputs go to, so it is the one that notices. It counts from when it last heard
of the player anything at all, for whichever entity. At the earliest it counts from when it began to simulate: a
hand-over begins the silence anew. It does not know the policies. It asks the home instance who owns the entity, and
says for how long it has heard nothing. It hears how long the player may be silent, which tells it when to ask next.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import trio

from batonpass.authority.fence import Fence
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import OwnerRequest, OwnerWord
from batonpass.simserver.entity.table import Holding
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.ports import SimserverPorts

__all__ = ["FIRST_SILENCE_S", "Inactivity"]

_log = logging.getLogger("batonpass.simserver.owners.inactivity")

# Shorter silences do not matter: players blink.
FIRST_SILENCE_S: Final = 10
SWEEP_S: Final = 2.0
# Of thousands of silent owners this many are asked about in one sweep. They share a parcel, and at home one look at
# whether its copy misses anything. When 256 of them did not, they took most of the time of a server that was being
# drained of 10,000 entities.
MAX_ASKED: Final = 64
# The owner is asked for after this many times the first silence, then after twice that, and so on up to the most.
CONFIRM_SILENCES: Final = 6
MOST_CONFIRM_S: Final = 600
# Of these at most this many in one sweep: no answer is waited for, and nearly all of them are in vain.
MAX_CONFIRMED: Final = 16
_NS: Final = 1_000_000_000


@dataclass(slots=True)
class _WatchedOwnership:
    """One ownership in one custody term: watched since when, and the silence after which home is asked (again)."""

    fence: Fence
    owner_rev: int
    since_ns: int
    ask_after_s: int
    confirm_ns: int
    """When home is asked again who the owner is."""
    confirm_wait_s: int

    def asked(self, now_ns: int) -> None:
        """Home is asked now, whatever for: it answers who the owner is."""
        self.confirm_wait_s = min(2 * self.confirm_wait_s, MOST_CONFIRM_S)
        self.confirm_ns = now_ns + self.confirm_wait_s * _NS


class Inactivity:
    """Notices silent owners of the entities in `holdings`, while it is served.

    Args:
        told: is given every answer.
        first_silence_s: home is not asked about shorter silences.
        sweep_s: how often it looks.
    """

    def __init__(
        self,
        ports: SimserverPorts,
        holdings: Iterable[Holding],
        told: Callable[[OwnerWord], None],
        first_silence_s: int = FIRST_SILENCE_S,
        sweep_s: float = SWEEP_S,
    ) -> None:
        self._holdings = holdings
        self._home = ports.home
        self._clock = ports.clock
        self._counts = ports.counts
        self._told = told
        self._first_silence_s: Final = first_silence_s
        self._sweep_s: Final = sweep_s
        self._heard_ns: dict[str, int] = {}
        self._watched: dict[str, _WatchedOwnership] = {}

    def heard(self, player: str) -> None:
        """Something came from this player."""
        self._heard_ns[player] = self._clock.monotonic_ns()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look which players are silent, and ask, until cancelled."""
        task_status.started()
        while True:
            await self._clock.sleep_s(self._sweep_s)
            silent = self.sweep()
            async with self._clock.tasks() as tasks:
                for request in silent:
                    tasks.start_soon(self._ask, request)

    def sweep(self) -> list[OwnerRequest]:
        """What is to be asked now."""
        now_ns, asked, owners = self._clock.monotonic_ns(), list[OwnerRequest](), set[str]()
        unsure: list[OwnerRequest] = []
        before, self._watched = self._watched, {}
        for holding in self._holdings:
            owner, owner_rev, _ = holding.life.ownership
            owners.add(owner)
            watched = before.get(holding.id)
            fence = holding.life.fence
            if watched is not None and fence == watched.fence.raised():
                # A hand-over was refused, which raises the fence by one epoch; an entity that begins anew is two above,
                # or more.
                watched.fence = fence
            # It may have left, or been unleased, and begun anew between two sweeps: no player could be heard meanwhile.
            if watched is None or watched.owner_rev != owner_rev or watched.fence != fence:
                watched = self._new_watch(fence, owner_rev, now_ns)
            self._watched[holding.id] = watched
            heard_ns = self._heard_ns.get(owner, 0)
            if heard_ns > watched.since_ns:
                watched.since_ns, watched.ask_after_s = heard_ns, self._first_silence_s
            if holding.life.frozen:
                continue
            silent_s = (now_ns - watched.since_ns) // _NS if owner else 0
            if silent_s >= watched.ask_after_s and len(asked) < MAX_ASKED:
                watched.ask_after_s = 2 * silent_s
                watched.asked(now_ns)
                asked.append(OwnerRequest(entity=holding.id, silent_s=silent_s, owner_rev=owner_rev))
            elif now_ns >= watched.confirm_ns and len(unsure) < MAX_CONFIRMED:
                watched.asked(now_ns)
                unsure.append(OwnerRequest(entity=holding.id, owner_rev=owner_rev))
        self._heard_ns = {player: at_ns for player, at_ns in self._heard_ns.items() if player in owners}
        return asked + unsure

    def _new_watch(self, fence: Fence, owner_rev: int, now_ns: int) -> _WatchedOwnership:
        wait_s = CONFIRM_SILENCES * self._first_silence_s
        return _WatchedOwnership(fence, owner_rev, now_ns, self._first_silence_s, now_ns + wait_s * _NS, wait_s)

    def answered(self, request: OwnerRequest, word: OwnerWord) -> None:
        """Home said who owns it, and how long that one may be silent: the next question comes when it is too long."""
        watched = self._watched.get(request.entity)
        if watched is not None and word.owner_rev == watched.owner_rev and word.timeout_s > request.silent_s:
            watched.ask_after_s = word.timeout_s
        self._told(word)

    async def _ask(self, request: OwnerRequest) -> None:
        try:
            answer = await self._home.ask(request, Trace("owner-silent"), on_path=False)
        except (HomeUnreachable, HomeRefused) as error:
            _log.info("home was not asked about the owner of %s: %s", request.entity, error)
            return
        if answer is not None and isinstance(answer.message, OwnerWord) and answer.message.entity == request.entity:
            self._counts["silence_told"] += request.silent_s > 0
            self.answered(request, answer.message)
