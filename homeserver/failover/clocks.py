"""What time it is in this instance, as this member finds out by asking the others (`member_clocks`).

A member whose own clock is off counts by theirs, and says so. It gives the leadership, and with it the office of
granting leases, to one whose clock is right. What one host does to its clock is to concern as few as possible.
"""

import logging
import secrets
from collections.abc import Callable
from typing import Any, Final, Protocol

import trio

from batonpass.actors.base.clock import TOLERANCE_S, InstanceClock
from batonpass.actors.http.client import HttpClient, HttpFailed
from batonpass.authority.machines.member_clocks import MemberClocks
from batonpass.authority.model.records import Role
from batonpass.authority.trust.key_pinning import CLOCK, is_proof, rows_proof
from batonpass.homeserver.log.store import InstanceStore
from batonpass.tree.member.membership_executor import ChangeNotFinished
from batonpass.tree.net.membership import ChangeRefused

__all__ = ["Clocks", "Leadership"]

_log = logging.getLogger("batonpass.homeserver.failover.clocks")

LOOK_S: Final = 0.5
ASK_EVERY_NS: Final = 5_000_000_000
# After a start, until others have had the time to be there.
_FIRST_LOOKS: Final = 20
REQUEST_TIMEOUT_S: Final = 2.0
# A clock that has moved by this since it was looked at last was set.
_SET_S: Final = 1.0


class Leadership(Protocol):
    """What there is to lead: the part of `tree.member.replica.Replica` that this needs."""

    reluctant: bool

    async def transfer_leadership(self, name: str | None = None, *, timeout_s: float = ...) -> str:
        """Have this voter lead. Raises `ChangeRefused`, `ChangeNotFinished`."""


class Clocks:
    """One member's look at the clocks of all.

    Args:
        join_token: the secret of the instance, which proves that a member answers.
        leadership: of the log, if members keep it; else None.
        leads: whether this member leads.
    """

    def __init__(
        self,
        name: str,
        store: InstanceStore,
        join_token: bytes,
        client: HttpClient,
        clock: InstanceClock,
        leadership: Callable[[], Leadership | None],
        leads: Callable[[], bool],
    ) -> None:
        self._name: Final = name
        self._store: Final = store
        self._join_token: Final = join_token
        self._client: Final = client
        self._clock: Final = clock
        self._leadership: Final = leadership
        self._leads: Final = leads
        self._clocks: Final = MemberClocks(name)
        self.ahead_s: dict[str, float] = {name: 0.0}
        """By how much the clock of each member is ahead of the time of the instance, as far as they have answered."""

    def shown(self, nonce: str) -> dict[str, Any]:
        """What the clock of this host shows, for another member, with the proof that this is one."""
        now_ms = round(self._clock.host.unix_s() * 1e3)
        return {"now_ms": now_ms, "proof": rows_proof(self._join_token, CLOCK, nonce, now_ms)}

    def is_better_elsewhere(self) -> bool:
        """Whether the clock of this host is off, and that of another member is not."""
        return self._clock.is_off and bool(self._right())

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask the others from time to time, and at once when the clock of this host was set, until cancelled."""
        task_status.started()
        looks, next_ns, began_s = 0, 0, self._began_s()
        while True:
            try:
                now_ns, now_began_s = self._clock.monotonic_ns(), self._began_s()
                if now_ns >= next_ns or looks < _FIRST_LOOKS or abs(now_began_s - began_s) > _SET_S:
                    looks, next_ns, began_s = looks + 1, now_ns + ASK_EVERY_NS, now_began_s
                    await self.look()
                await self.give_away()
            except Exception:
                _log.exception("looking at the clocks of the members ran into an error of ours")
            await self._clock.sleep_s(LOOK_S)

    async def look(self) -> None:
        """Ask every other member what its clock shows, and count by what most of them do."""
        others = {row.name: row.rest_url for row in self._store.servers(Role.HOMESERVER) if row.name != self._name}
        self._clocks.keep(others)
        async with trio.open_nursery() as nursery:
            for name, url in others.items():
                nursery.start_soon(self._ask, name, url)
        self._clocks.own(self._clock.host.unix_s(), self._clock.monotonic_ns())
        self.ahead_s = self._clocks.ahead_s()
        self._clock.measured(self.ahead_s[self._name])

    async def give_away(self) -> None:
        """Have another member lead whose clock is right, if that of this host is not, and stand for nothing."""
        leadership = self._leadership()
        if leadership is None:
            return
        leadership.reluctant = self.is_better_elsewhere()
        if not (leadership.reluctant and self._leads()):
            return
        for name in self._right():
            _log.warning("%s is to lead: %s", name, self._clock.why)
            try:
                await leadership.transfer_leadership(name)
            except (ChangeRefused, ChangeNotFinished) as error:
                _log.warning("%s does not lead yet: %s", name, error.sentence)
            else:
                return

    def _right(self) -> list[str]:
        """The other members whose clocks are not off."""
        return [name for name, ahead in self.ahead_s.items() if name != self._name and abs(ahead) <= TOLERANCE_S]

    def _began_s(self) -> float:
        return self._clock.host.unix_s() - self._clock.monotonic_ns() / 1e9

    async def _ask(self, name: str, url: str) -> None:
        nonce, asked_ns = secrets.token_urlsafe(16), self._clock.monotonic_ns()
        try:
            answered = await self._client.request(
                "GET", f"{url}/v1/cluster/clock", params={"nonce": nonce}, timeout_s=REQUEST_TIMEOUT_S
            )
            answer = answered.json() if answered.is_success else None
        except (HttpFailed, ValueError) as error:
            _log.debug("%s was not asked what time it is: %s", name, error)
            return
        now_ms = answer.get("now_ms") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or type(now_ms) is not int:
            return
        if not is_proof(answer.get("proof"), rows_proof(self._join_token, CLOCK, nonce, now_ms)):
            _log.warning("what %s says of its clock is not proved with the join token", name)
            return
        self._clocks.heard(name, now_ms, asked_ns, self._clock.monotonic_ns())
