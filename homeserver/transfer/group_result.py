"""Telling the servers that wait for the rest of their group what has become of it elsewhere.

The request that puts the last member to the log answers all that wait with it. But that may be on another homeserver;
and a group fails too, because a member is declined or cancelled, or its time is over. Then the sources with members
frozen here would hear of it with their next repetition alone, which in a large group comes after seconds. So as long as
a request waits, this member's copy of the log is looked at.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.model.records import GroupPhase, GroupRecord, Outcome, Phase, TransferRecord
from batonpass.authority.names import instance_of
from batonpass.authority.wire.batch import MAX_BATCH, Letter
from batonpass.authority.wire.transfer import Grant
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.transfer.certificates import Certification
from batonpass.homeserver.transfer.decided import Listeners, reply_of
from batonpass.homeserver.transfer.parcels import NOT_TOLD
from batonpass.homeserver.transfer.ports import HomeserverPorts
from batonpass.homeserver.transfer.spans import DecisionSpans
from batonpass.homeserver.transfer.waiting_group import WaitingRequest, WaitingRequests

__all__ = ["LOOK_S", "GroupAnswers", "GroupResults"]

_log = logging.getLogger("batonpass.homeserver.transfer.group_result")

LOOK_S: Final = 0.1
_OPEN: Final = (Phase.PERMITTED, Phase.PREPARED)
_told = logging.getLogger("batonpass.homeserver.transfer.service")


class GroupAnswers:
    """One member's answers to the requests that wait here for the rest of their group."""

    def __init__(
        self,
        ports: HomeserverPorts,
        waiting: WaitingRequests,
        certificates: Certification,
        decisions: DecisionSpans,
        listeners: Listeners,
    ) -> None:
        self._instance: Final = ports.instance
        self._store: Final = ports.store
        self._post: Final = ports.post
        self._waiting: Final = waiting
        self._certificates: Final = certificates
        self._decisions: Final = decisions
        self.listeners: Final = listeners

    def waits(self, request: WaitingRequest) -> None:
        """This request is one of a group's that is not complete yet."""
        self._waiting.add(request)

    def gave_up(self, transfer_id: str) -> None:
        """The old authority of this one does not wait any more."""
        self._waiting.take(transfer_id)

    async def tell(self, transfer: TransferRecord) -> None:
        """With one of a group the others are decided too: those whose requests wait here are answered at once.

        Where it waits for others, later groups may have been refused for that, which held what its own waits for.
        """
        group = self._store.group(transfer.group) if transfer.group else None
        if group is not None and group.phase is GroupPhase.OPEN:
            await self._tell_who_gave_way(group)
        elif group is not None:
            with self._decisions.of_group(transfer, group) as told:
                await self._tell_members(group)
                self._decisions.group_told(told, transfer)

    async def _tell_who_gave_way(self, group: GroupRecord) -> None:
        for name in group.later:
            later = self._store.group(name)
            if later is not None and later.phase is GroupPhase.REFUSED:
                await self._tell_members(later)

    async def _tell_members(self, group: GroupRecord) -> None:
        """Those of a parcel at a time, which share a signature; one after the other a thousand would take seconds."""
        waiting = deque(one for name in group.members if (one := self._waiting.take(name)) is not None)
        while waiting:
            together = [waiting.popleft() for _ in range(min(len(waiting), MAX_BATCH))]
            decided = [(one, other) for one in together if (other := self._store.transfer(one.transfer_id)) is not None]
            for to, letters in self._words_of(decided).items():
                try:
                    await self._post.post_all(to, letters)
                except NOT_TOLD as error:
                    _told.info("%s was not told of %d transfers of %s: %s", to, len(letters), group.id, error)

    def _words_of(self, decided: Sequence[tuple[WaitingRequest, TransferRecord]]) -> Mapping[str, list[Letter]]:
        """What became of requests that waited, by receiver: grants for targets here, the rest for sources."""
        words: defaultdict[str, list[Letter]] = defaultdict(list)
        committed = [(one, transfer) for one, transfer in decided if transfer.phase is Phase.COMMITTED]
        certificates = self._certificates.commit_all([transfer for _, transfer in committed])
        for (one, transfer), certificate in zip(committed, certificates, strict=True):
            self.listeners.note(transfer)
            if instance_of(transfer.target) == self._instance:
                words[transfer.target].append(Letter(Grant(certificate=certificate), one.trace, on_path=True))
                continue
            given: dict[str, Any] = {"outcome": Outcome.COMMITTED.value, "authority": transfer.target}
            given |= {"epoch": transfer.epoch, "sub": transfer.sub}
            words[one.sender].append(Letter(reply_of(given, transfer, certificate), one.trace, on_path=True))
        for one, transfer in decided:
            record = self._store.entity(transfer.entity) if transfer.phase is Phase.REFUSED else None
            if record is not None:
                self.listeners.note(transfer)
                answer = {"outcome": Outcome.REFUSED.value, "authority": record.authority}
                reply = reply_of(answer | {"epoch": record.epoch, "sub": record.sub}, transfer, "")
                words[one.sender].append(Letter(reply, one.trace))
        return words


class GroupResults:
    """One member's part.

    Args:
        waiting: the requests that wait here.
        tell: answers all requests of a group that wait, if it is decided (`GroupAnswers.tell`).
    """

    def __init__(
        self,
        store: InstanceStore,
        waiting: WaitingRequests,
        tell: Callable[[TransferRecord], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._store: Final = store
        self._waiting: Final = waiting
        self._tell: Final = tell
        self._clock: Final = clock

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look what became of the groups for which a request waits, until cancelled."""
        task_status.started()
        while True:
            if not self._waiting:
                await self._waiting.came.wait()
            await self._clock.sleep_s(LOOK_S)
            for name in self._waiting.one_of_each_group():
                try:
                    await self._look(name)
                except Exception:
                    # It must not take with it what else is looked after here.
                    _log.exception("the servers that wait for the group of %s were not told: an error of ours", name)

    async def _look(self, name: str) -> None:
        """One row for each group: of its members all are decided, or none is."""
        transfer = self._store.transfer(name)
        if transfer is not None and transfer.phase in _OPEN:
            return
        # Also where the log has forgotten the group: this one is asked about again, and answered then.
        try:
            if transfer is not None:
                await self._tell(transfer)
        finally:
            self._waiting.take(name)
