"""Whether this member's log is the one that the others of its instance have.

A member that was started with the history of another, or with an older copy than the others have, may take up theirs as
if it were its own. Raft compares entries by their place and term, and two that were written after a restart can have
both in common. Then its rows differ for good, and no server is told. What tells them apart are the marks of the offices
of granting leases, which are random (`authority.trust.signed_positions`): each member compares its own with those of
the leader of the log, and ends if they differ. It may be the other one that is wrong; then the others end, and no
majority is left to continue by that log.
"""

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.client import HttpClient, HttpFailed
from batonpass.authority.trust.key_pinning import is_proof, rows_proof
from batonpass.authority.trust.signed_positions import MAX_OFFICES, OFFICE_MARKS
from batonpass.homeserver.log.store import InstanceStore

__all__ = ["LogDiffers", "LogIdentity"]

_log = logging.getLogger("batonpass.homeserver.log.log_identity")

LOOK_S: Final = 0.5
ASK_EVERY_NS: Final = 10_000_000_000
REQUEST_TIMEOUT_S: Final = 3.0
PURPOSE: Final = "offices"


class LogDiffers(Exception):
    """This member's log is not the one that its leader has."""


class LogIdentity:
    """One member's look at the others.

    Args:
        join_token: the secret of the instance, which proves who answers.
        leader: who leads the log, as far as this member knows; empty if none does, or it is not kept by members. What
            the log says of who grants leases may be of another history.
        differs: told once that the logs differ; it ends this member.
    """

    def __init__(
        self,
        name: str,
        store: InstanceStore,
        join_token: bytes,
        leader: Callable[[], str],
        client: HttpClient,
        clock: Clock,
        differs: Callable[[LogDiffers], None],
    ) -> None:
        self._name: Final = name
        self._store: Final = store
        self._join_token: Final = join_token
        self._leader: Final = leader
        self._client: Final = client
        self._clock: Final = clock
        self._differs: Final = differs

    def offices(self) -> dict[str, str]:
        """The offices by this member's copy: their marks, and after which revisions they were taken.

        Two histories differ in the first one after they parted.
        """
        tree, last = self._store.tree, self._store.lease_office().number
        found: dict[str, str] = {}
        for number in range(max(last - MAX_OFFICES, 0) + 1, last + 1):
            row: Mapping[str, Any] | None = tree.get_or((OFFICE_MARKS, str(number)), None)
            if row is not None:
                found[str(number)] = f"{row['mark']}.{row['after']}"
        return found

    def shown(self, nonce: str) -> dict[str, Any]:
        """`offices` for another member, with the proof that this is one."""
        offices = self.offices()
        return {"offices": offices, "proof": rows_proof(self._join_token, PURPOSE, nonce, offices)}

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Compare after each start, with each new office, and now and then, until cancelled."""
        task_status.started()
        compared, next_ns = ("", -1), 0
        while True:
            now_ns, present = self._clock.monotonic_ns(), (self._leader(), self._store.lease_office().number)
            if present != compared or now_ns >= next_ns:
                try:
                    if await self.compare():
                        compared, next_ns = present, now_ns + ASK_EVERY_NS
                except Exception:
                    _log.exception("comparing the log with that of another member ran into an error of ours")
            await self._clock.sleep_s(LOOK_S)

    async def compare(self) -> bool:
        """Compare with the leader; whether that was possible, or need not be."""
        leader = self._leader()
        if leader in ("", self._name):
            return True
        row = self._store.row(leader)
        theirs = None if row is None else await self._asked(row.rest_url)
        if theirs is None:
            return False
        ours = self.offices()
        differing = _differing(ours, theirs)
        if differing:
            self._differs(
                LogDiffers(
                    f"log_differs: the log of {self._name} is not that of {leader}, who leads: they part at "
                    f"office {differing[0]} or before. One of them was started with an older copy. Stop all members "
                    f"of the instance and give them the newest log (docs/guides/operations.md, restore a homeserver)"
                )
            )
        return True

    async def _asked(self, url: str) -> Mapping[str, str] | None:
        nonce = secrets.token_urlsafe(16)
        try:
            answered = await self._client.request(
                "GET", f"{url}/v1/cluster/offices", params={"nonce": nonce}, timeout_s=REQUEST_TIMEOUT_S
            )
            answer = answered.json() if answered.is_success else None
        except (HttpFailed, ValueError) as error:
            _log.debug("%s was not asked about its log: %s", url, error)
            return None
        offices = answer.get("offices") if isinstance(answer, dict) else None
        if not isinstance(answer, dict) or not isinstance(offices, dict):
            return None
        if not is_proof(answer.get("proof"), rows_proof(self._join_token, PURPOSE, nonce, offices)):
            _log.warning("what %s says of its log is not proved with the join token", url)
            return None
        return offices


def _differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """The offices, in order, of which one has another mark than the other, or none between earlier and later ones.

    Who is behind remembers offices that the other has forgotten, and has none of the last ones.
    """
    if not ours or not theirs:
        return []
    first = max(min(map(int, offices)) for offices in (ours, theirs))
    last = min(max(map(int, offices)) for offices in (ours, theirs))
    both = [number for number in {*ours, *theirs} if first <= int(number) <= last]
    return sorted((number for number in both if ours.get(number) != theirs.get(number)), key=int)
