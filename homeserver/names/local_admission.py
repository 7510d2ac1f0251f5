"""Whether a server of this instance would take an entity of another one: what its home asks here, in case 1."""

from typing import Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Reason
from batonpass.authority.model.records import DirectoryRow, LeaseRow, Role
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import AdmitReply, AdmitRequest
from batonpass.homeserver.log.store import InstanceStore

__all__ = ["LocalAdmission"]


class LocalAdmission:
    """One member's answers to the homes of entities that are to come here."""

    def __init__(self, name: str, store: InstanceStore, clock: Clock) -> None:
        """`name` is that of this homeserver."""
        self._name: Final = name
        self._store: Final = store
        self._clock: Final = clock

    async def answer(self, request: AdmitRequest, trace: Trace) -> Letter:
        """Whether its target can be given it now, and by which incarnation. Raises `NoQuorum`."""
        row, lease = self._store.row(request.target), self._store.lease(request.target)
        if row is None or lease is None:
            # Perhaps since, and this copy is behind.
            await self._store.confirmed()
            row, lease = self._store.row(request.target), self._store.lease(request.target)
        reason = self._why_not(row, lease)
        reply = AdmitReply(
            transfer_id=request.transfer_id,
            accepted=reason is None,
            reason="" if reason is None else reason.value,
            incarnation=0 if lease is None else lease.incarnation,
        )
        return Letter(reply, trace.mark(self._name, "admitted", self._clock.monotonic_ns()), on_path=True)

    def _why_not(self, row: DirectoryRow | None, lease: LeaseRow | None) -> Reason | None:
        """Why a server of this instance can be given nothing now, or None; as the log looks at its own targets."""
        if row is None or row.role is not Role.SIMSERVER:
            return Reason.UNKNOWN_TARGET
        if self._store.drain(row.name) is not None:
            return Reason.DRAINING
        return None if lease is None or lease.phase is LeasePhase.ALIVE else Reason.TARGET_DOWN
