"""Entities of this instance that servers of others have: noticing that such a server is dead, and going on then.

Done by the homeserver that grants leases here, which has no say in those of others. It asks the home of the server, by
the incarnation that the record names (`authority.procedures.foreign_custody`), and takes nothing as long as that cannot
be asked. What it takes is recovered as at home (`homeserver.failover.takeover`), from the copies of that instance's
servers too.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Reason
from batonpass.authority.model.records import EntityRecord, RecoveryRow, TransferRecord
from batonpass.authority.names import instance_of
from batonpass.authority.procedures.failover import is_unsure
from batonpass.authority.procedures.log_rollback import lowest_epoch
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import MAX_LEASES, LeaseInquiry, LeaseOf, LeaseWord
from batonpass.authority.wire.transfer import Grant
from batonpass.homeserver.failover.collecting import UNDECIDED, WhoIsThere, in_parts
from batonpass.homeserver.failover.leases import Starter
from batonpass.homeserver.failover.takeover import Takeovers
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.names.federation import Federation, InstanceUnreachable
from batonpass.homeserver.transfer.certificates import Certification
from batonpass.homeserver.transfer.parcels import NOT_TOLD, Post

__all__ = ["ForeignCustody"]

_log = logging.getLogger("batonpass.homeserver.failover.foreign_custody")

LOOK_S: Final = 0.25
# A small part of the shortest sensible term of a lease: each other instance gets one short request in this time.
ASK_NS: Final = 1_000_000_000

# A healthy hand-over has been reported long before.
TELL_NS: Final = 2_000_000_000
MAX_TELL_NS: Final = 60_000_000_000

Lease = tuple[str, int]


class ForeignCustody:
    """One member's part in taking entities over from servers of other instances.

    Args:
        in_office: whether this member grants leases now.
    """

    def __init__(
        self,
        instance: str,
        store: InstanceStore,
        federation: Federation,
        post: Post,
        certificates: Certification,
        takeovers: Takeovers,
        clock: Clock,
        in_office: Callable[[], bool],
    ) -> None:
        self._instance: Final = instance
        self._store: Final = store
        self._federation: Final = federation
        self._post: Final = post
        self._certificates: Final = certificates
        self._takeovers: Final = takeovers
        self._clock: Final = clock
        self._in_office: Final = in_office
        self._asked_ns = 0
        self._number = 0
        self._busy: set[Any] = set()
        self._there: dict[str, Counter[str]] = {}
        self._silent_since_s: dict[str, float] = {}
        self._told_ns: dict[str, tuple[int, int]] = {}

    # --- looking around --------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after what is abroad, while this member grants leases, until cancelled."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            await self.look_around(nursery)

    async def look_around(self, nursery: Starter) -> None:
        """As `serve`; whatever waits for another instance runs in `nursery`, so that no other waits for it."""
        self._busy.clear()
        while True:
            await self._clock.sleep_s(LOOK_S)
            if self._in_office():
                self._look(nursery)
            else:
                self._there.clear()
                self._silent_since_s.clear()

    def _look(self, nursery: Starter) -> None:
        now_ns = self._clock.monotonic_ns()
        # An instance without a way to others has nothing there, and need not look through all entities.
        if now_ns - self._asked_ns >= ASK_NS and self._federation.reachable_instances():
            self._asked_ns = now_ns
            for instance, records in self._by_instance().items():
                self._begin(nursery, instance, self._watch, instance, records)
            self._begin_telling(nursery, now_ns)
        waiting: dict[tuple[tuple[str, ...], tuple[str, ...]], list[RecoveryRow]] = defaultdict(list)
        for row in self._takeovers.to_go_on_with():
            if row.abroad or row.abroad_too:
                waiting[row.abroad, row.abroad_too].append(row)
        for places, rows in waiting.items():
            self._begin(nursery, places, self._takeovers.go_on, rows, partial(self._everybody, *places))

    def _begin_telling(self, nursery: Starter, now_ns: int) -> None:
        """Have the targets told of which hand-overs may have been forgotten, each again after twice the time."""
        crossings = self._store.crossings()
        told = {way.id: self._told_ns.get(way.id, (now_ns, TELL_NS)) for _, way in crossings}
        due: dict[str, list[TransferRecord]] = defaultdict(list)
        for _, way in crossings:
            at_ns, wait_ns = told[way.id]
            if now_ns - at_ns >= wait_ns:
                told[way.id] = (now_ns, min(wait_ns * 2, MAX_TELL_NS))
                due[instance_of(way.source)].append(way)
        self._told_ns = told
        for instance, ways in due.items():
            self._begin(nursery, ("tell", instance), self._tell_targets, instance, ways)

    async def _tell_targets(self, instance: str, ways: Sequence[TransferRecord]) -> None:
        """Bring the log's word to targets whose sources, of this instance, died: they may not have brought it.

        A target that has begun knows it already; one that has no state for it says so (`stranded`).
        """
        leases = sorted({(way.source, way.source_incarnation) for way in ways})
        over = await self.over(instance, leases) if instance != self._instance else set(filter(self._is_over, leases))
        for way in ways:
            if (way.source, way.source_incarnation) not in over:
                continue
            grant = Grant(certificate=self._certificates.commit(way))
            try:
                await self._post.post(grant, Trace(way.id), way.target, on_path=False)
            except NOT_TOLD as error:
                _log.info("%s was not told that it was given %s: %s", way.target, way.entity, error)

    def _is_over(self, lease: Lease) -> bool:
        known = self._store.lease(lease[0])
        return known is not None and known.has_outlived(lease[1])

    def _by_instance(self) -> dict[str, list[EntityRecord]]:
        found: dict[str, list[EntityRecord]] = defaultdict(list)
        for record in self._store.abroad(self._instance):
            found[instance_of(record.authority)].append(record)
        self._there = {name: Counter(record.authority for record in records) for name, records in found.items()}
        asked = {name for row in self._store.takeovers() for name in (*row.abroad, *row.abroad_too)}
        self._silent_since_s = {name: s for name, s in self._silent_since_s.items() if name in found.keys() | asked}
        return found

    def _begin(self, nursery: Starter, what: Any, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        """One thing at a time about each."""
        if what not in self._busy:
            self._busy.add(what)
            nursery.start_soon(self._guarded, what, work, *args)

    async def _guarded(self, what: Any, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            await work(*args)
        except UNDECIDED as error:
            _log.info("foreign custody (%s): %s; looking again", what, error)
        except Exception:
            self._takeovers.counts["internal_error"] += 1
            _log.exception("looking after foreign custody (%s) ran into an error of ours", what)
        finally:
            self._busy.discard(what)

    # --- asking other instances ------------------------------------------------------------------------------------

    async def _watch(self, instance: str, records: Sequence[EntityRecord]) -> None:
        """Take what servers of this other instance had whose leases are over, or that may have handed it on."""
        leases = sorted({(record.authority, record.incarnation) for record in records})
        over = await self.over(instance, leases)
        for server, incarnation in sorted(over):
            lost = [record for record in records if (record.authority, record.incarnation) == (server, incarnation)]
            for some in in_parts(lost):
                entities = [[record.id, record.epoch, record.sub] for record in some]
                args = {"server": server, "incarnation": incarnation, "entities": entities}
                taken = await self._store.submit("recovery.begin_abroad", **args)
                self._takeovers.counts["taken"] += len(taken)
                self._takeovers.begun(taken)
                _log.warning("%d entities of %s are to be recovered (incarnation %d)", len(taken), server, incarnation)
        await self._contest(records)

    async def _contest(self, records: Sequence[EntityRecord]) -> None:
        """Have it found out which server has what one there may have handed on by another history of this log."""
        lowest = lowest_epoch(self._store.tree)
        for some in in_parts([record for record in records if is_unsure(record, lowest)]):
            entities = [[record.authority, record.id, record.epoch, record.sub] for record in some]
            contested = await self._store.submit("recovery.contest_abroad", entities=entities)
            self._takeovers.counts["contested_abroad"] += len(contested)
            self._takeovers.begun(contested)
            if contested:
                _log.warning(
                    "which server has %d entities in foreign custody is to be found out: there was another log",
                    len(contested),
                )

    async def over(self, instance: str, leases: Sequence[Lease]) -> set[Lease]:
        """Which of these leases are over, by the log of the home of their servers.

        Raises:
            PeerUnreachable: no member there can say now. So none of them is known to be.
        """
        over: set[Lease] = set()
        for first in range(0, len(leases), MAX_LEASES):
            word = await self._ask(instance, leases[first : first + MAX_LEASES], who_is_alive=False)
            over |= {(lease.server, lease.incarnation) for lease in word.over}
        return over & set(leases)

    async def _everybody(self, must: Collection[str], may: Collection[str]) -> WhoIsThere:
        """The servers that are alive here and there, and which of those that `may` have copies cannot be asked.

        Those alive here are looked up last: to ask others takes a while, and one that comes back meanwhile may have a
        copy.
        """
        there: dict[str, int] = {}
        away: set[str] = set()
        silent = set()
        for instance in (*must, *may):
            try:
                alive, away_there = await self._who_is_in(instance)
            except InstanceUnreachable as error:
                if instance in must:
                    raise
                silent.add(instance)
                _log.info("what %s may have is not known: %s", instance, error)
            else:
                there |= alive
                away |= away_there
        here = await self._takeovers.here()
        return WhoIsThere(there | here.alive, frozenset(silent), here.away | away)

    async def _who_is_in(self, instance: str) -> tuple[dict[str, int], set[str]]:
        """The servers that are alive there, by incarnation, and those that are not and may return."""
        word = await self._ask(instance, (), who_is_alive=True)
        # An instance speaks for its own servers alone.
        alive = {one.server: one.incarnation for one in word.alive if instance_of(one.server) == instance}
        return alive, {one.server for one in word.over if instance_of(one.server) == instance} - alive.keys()

    async def _ask(self, instance: str, leases: Sequence[Lease], *, who_is_alive: bool) -> LeaseWord:
        self._number += 1
        number = max(self._number, self._clock.monotonic_ns())
        self._number = number
        asked = [LeaseOf(server=server, incarnation=incarnation) for server, incarnation in leases]
        message = LeaseInquiry(number=number, leases=asked, who_is_alive=who_is_alive)
        try:
            reply, _ = await self._federation.exchange(instance, message, Trace(f"leases-of-{instance}"), on_path=False)
            if not isinstance(reply, LeaseWord) or reply.number != number:
                # Of an earlier question, it would say nothing about what is alive now.
                raise InstanceUnreachable(f"{instance} answered a question about leases with something else")
        except InstanceUnreachable as error:
            if instance not in self._silent_since_s:
                _log.error("no server takes over from %s, whose home cannot be asked about leases: %s", instance, error)
            self._silent_since_s.setdefault(instance, self._clock.unix_s())
            raise
        self._silent_since_s.pop(instance, None)
        return reply

    # --- showing ---------------------------------------------------------------------------------------------------

    def to_data(self) -> list[dict[str, Any]]:
        """The other instances that have entities of this one, or may have copies of them, for people."""
        return [
            {
                "instance": instance,
                "entities": dict(self._there.get(instance, {})),
                "reason": Reason.HOME_UNREACHABLE.value if instance in self._silent_since_s else "",
                "silent_since_s": self._silent_since_s.get(instance),
            }
            for instance in sorted(self._there.keys() | self._silent_since_s.keys())
        ]
