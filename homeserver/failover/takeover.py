"""Taking over what a dead simulation server left: the fence first, then every server's copies, then the best one.

Done by the homeserver that grants leases, and taken up where it stands by the next one. What is to be done is in the
log (`recoveries/<id>`), and every message may be repeated. `authority.machines.replica_choice` has the rules.
"""

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import trio

from batonpass.actors.base.clock import Bell, Clock
from batonpass.authority.fence import MAX_EPOCH, Fence
from batonpass.authority.machines.replica_choice import Candidate, choose, never_began, waited_for
from batonpass.authority.model.records import EntityRecord, LeaseRow, RecoveryRow
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.names import instance_of
from batonpass.authority.node.spans import SILENT, Spans
from batonpass.authority.procedures.foreign_custody import asked_of, is_abroad, is_enough, is_possible
from batonpass.authority.procedures.log_rollback import lowest_epoch
from batonpass.authority.wire.recovery import MAX_DEATHS, TOO_OFTEN, AdoptItem, FoundItem, RaisedItem
from batonpass.authority.wire.transfer import Adopt, Adopted, Collected
from batonpass.homeserver.backoff import Due
from batonpass.homeserver.failover.collecting import (
    REPEAT_S,
    UNDECIDED,
    Collecting,
    Everybody,
    HeardCopies,
    Post,
    WhoIsThere,
    again,
    in_parts,
)
from batonpass.homeserver.failover.return_to_owner import ReturnToOwner
from batonpass.homeserver.failover.spans import TakeoverSpans
from batonpass.homeserver.log.store import InstanceStore

__all__ = ["Recovered", "Takeovers", "believed"]

_log = logging.getLogger("batonpass.homeserver.failover.takeover")

LOOK_S: Final = 0.25
# A live server that has not resumed what it was given for this long has lost the copy, for want of room.
ADOPT_NS: Final = 30_000_000_000
# A server that may have been passed an entity, and lost its lease less than this ago, may be back in a moment. It was
# paused or cut off, or killed and is about to be restarted. A server that has been away for longer was given no pass
# that no other has heard of. Only a server that was cut off too can have passed it one.
PASSED_NS: Final = 10_000_000_000
# How long the word of a silent server is waited for that may have died of an entity as others have. A server that only
# took too long for a tick is back by then, as a rule, and says so. Else the next server would be the third.
SUSPECT_NS: Final = 30_000_000_000
MAX_REMEMBERED: Final = 1000


@dataclass(frozen=True, slots=True)
class Recovered:
    """How one recovery went, for people: from which server to which, from which copy."""

    entity: str
    last: str
    target: str
    epoch: int
    tick: int
    source: str
    at_s: float


class Takeovers:
    """One member's part in taking over what dead servers left.

    Args:
        post: sends a sealed message to a simulation server (`Post.post`).
        in_office: whether this member grants leases now.
    """

    def __init__(
        self, store: InstanceStore, post: Post, clock: Clock, in_office: Callable[[], bool], spans: Spans = SILENT
    ) -> None:
        self._takeovers: Final = TakeoverSpans(spans, store)
        self._store = store
        self._clock = clock
        self._in_office = in_office
        self._has_begun: Bell | None = None
        """Rung when there is something new to recover; while this serves."""
        self._over_since_ns: dict[str, int] = {}
        """When this member saw that the leases of servers were over, of those that have not been alive since."""
        self._in_vain_for: dict[str, tuple[int, int, bool]] = {}
        """Entities of which servers were asked for copies in vain; under which epoch, as what was to be waited for."""
        self._waited_for: dict[str, tuple[int, tuple[str, ...]]] = {}
        """For whose later copies entities wait, though there are earlier ones; of recoveries under such epochs."""
        self._died_of: dict[str, list[int]] = {}
        """Under which epochs servers have died of what is to be taken over, as those say that could be asked."""
        self._handed_on: dict[str, int] = {}
        """What was handed on by another history of the log, as its server by this one says; under which epoch."""
        self._adopted: dict[str, RecoveryRow] = {}
        self._told_since_ns: dict[tuple[str, int], int] = {}
        self._told: dict[tuple[str, int], Due] = {}
        self.counts: Final[Counter[str]] = Counter()
        self._collecting: Final = Collecting(post, clock, in_office, self.counts)
        self._return_to_owner: Final = ReturnToOwner(store, self._collecting.tell, clock)
        self.recent: Final[deque[Recovered]] = deque(maxlen=MAX_REMEMBERED)

    # --- taking away -----------------------------------------------------------------------------------------------

    async def sweep(self, lease: LeaseRow) -> bool:
        """Take from a server what it simulated before its lease was over, or before it came back; whether all of it.

        What was delegated is taken only when every server that could have been passed it has answered. Each says that
        it does not have it, and from then on will not take it. Or that server has been away for `PASSED_NS`.
        """
        await self._store.confirmed()
        self._note_ends()
        records = self._left_behind(lease)
        delegated = [record for record in records if record.delegation]
        for some in in_parts([record for record in records if not record.delegation]):
            await self._take(lease, some)
        for some in in_parts(delegated):
            await self._take(lease, await self._nowhere_else(some, lease.server))
        await self._store.confirmed()
        return not self._left_behind(lease)

    def _left_behind(self, lease: LeaseRow) -> list[EntityRecord]:
        """What the log says that a server has, and was given to a life of it that is over."""
        records = self._store.entities_of(lease.server)
        return [record for record in records if lease.has_outlived(record.incarnation)]

    async def _take(self, lease: LeaseRow, records: Sequence[EntityRecord]) -> None:
        if not records:
            return
        entities = [[record.id, record.epoch, record.sub] for record in records]
        taken = await self._store.submit("recovery.begin", server=lease.server, entities=entities)
        self.counts["taken"] += len(taken)
        self.begun(taken)
        _log.warning("%d entities of %s are to be recovered (incarnation %d)", len(taken), *_told(lease))

    async def _nowhere_else(self, records: Sequence[EntityRecord], server: str) -> list[EntityRecord]:
        """Of delegated entities those that no server holds by a chain that the log has not seen.

        The fence is not raised yet: a server that holds one continues, and tells of its chain. No other takes a pass of
        this epoch from here on.
        """
        items = tuple(RaisedItem(entity=record.id, epoch=record.epoch, sub=MAX_EPOCH) for record in records)
        asked = {name: number for name, number in self.alive().items() if name != server}
        answers = (await self._ask(lambda _: items, WhoIsThere(asked), self.here)).answers
        await self._store.confirmed()
        now = {name: number for name, number in self.alive().items() if name != server}
        if now.items() - asked.items():
            # It was not asked, and may have been passed one by one that has answered since; the next sweep asks it.
            self.counts["came_meanwhile"] += 1
            return []
        held = {item.entity for found in answers.values() for item in found if item.holds}
        just_away = self._just_away() - {server}
        waiting = {record.id for record in records if just_away.intersection(record.delegation)} - held
        self.counts["waited_for_passed"] += len(waiting)
        return [record for record in records if record.id not in held | waiting]

    def begun(self, entities: Sequence[str]) -> None:
        """This member has had the log begin with recovering these."""
        if self._in_office():
            self._takeovers.changed(entities)
            if entities and self._has_begun is not None:
                self._has_begun.ring()

    def to_go_on_with(self) -> list[RecoveryRow]:
        """All that is to be recovered, as the log has it at this moment: seen, whichever server has begun with it."""
        rows = self._store.takeovers()
        self._takeovers.seen(rows)
        return rows

    def _note_ends(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for row in self._store.leases():
            if row.phase is LeasePhase.OVER:
                self._over_since_ns.setdefault(row.server, now_ns)
            elif row.phase is LeasePhase.ALIVE:
                # One that only begins to return, and is gone again, puts nothing off any longer.
                self._over_since_ns.pop(row.server, None)

    def _just_away(self) -> set[str]:
        """The servers that lost their leases a moment ago: they cannot be asked, and may have been passed something."""
        self._note_ends()
        since_ns = self._clock.monotonic_ns() - PASSED_NS
        return {row.server for row in self._store.away() if self._over_since_ns[row.server] > since_ns}

    # --- going on --------------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Recover all that is to be recovered, while this member grants leases, until cancelled."""
        has_begun = self._has_begun = self._clock.bell()
        task_status.started()
        while True:
            # What has begun is gone on with at once; all else may wait for the next look.
            await has_begun.wait(LOOK_S)
            if not self._in_office():
                self._left_office()
                continue
            try:
                await self._look()
            except UNDECIDED as error:
                _log.info("recovering: %s; looking again", error)
            except Exception:
                self.counts["internal_error"] += 1
                _log.exception("a recovery ran into an error of ours")

    def _left_office(self) -> None:
        """What this member has seen is as old as the last time it looked; others look now, if any do."""
        self._takeovers.left_office()
        self._return_to_owner.left_office()
        self._over_since_ns.clear()
        self._forget_all_but(())

    def _forget_all_but(self, rows: Collection[RecoveryRow]) -> None:
        """Keep what is remembered of these recoveries alone: others are over, whichever member has heard of it."""
        entities = {row.entity for row in rows}
        for table in (self._in_vain_for, self._waited_for, self._died_of, self._handed_on):
            for entity in table.keys() - entities:
                del table[entity]
        open_now = {(row.entity, row.epoch) for row in rows if row.target}
        for told in (self._told_since_ns, self._told):
            for key in told.keys() - open_now:
                del told[key]

    async def _look(self) -> None:
        self._note_ends()
        # Before anything is finished: what another member has begun with may be adopted already.
        self._takeovers.looked(self._store.takeovers())
        await self._finish()
        await self._return_to_owner.look()
        await self._ask_anew()
        rows = self.to_go_on_with()
        self._forget_all_but(rows)
        # `homeserver.failover.foreign_custody` does the others.
        await self.go_on([row for row in rows if not (row.abroad or row.abroad_too)], self.here)

    async def _ask_anew(self) -> None:
        """What is looked for since before the log heard of another history is looked for under a fence above that."""
        if lowest := lowest_epoch(self._store.tree):
            rows = [row for row in self._store.takeovers() if not row.target and row.epoch < lowest]
            for some in in_parts(rows):
                items = [{"entity": row.entity, "epoch": row.epoch} for row in some]
                self._takeovers.changed(await self._store.submit("recovery.anew", items=items))

    async def go_on(self, rows: Sequence[RecoveryRow], everybody: Everybody) -> None:
        """Take these recoveries as far as they go now, with what `everybody` that is alive has.

        Raises what `everybody` raises, and what the log raises: nothing is decided then.
        """
        there = await everybody() if rows else WhoIsThere({})
        alive = there.alive
        # A server that is removed need not be waited for any more.
        registered = tuple(sorted(self._store.simserver_names())) if rows else ()
        seen = hash((tuple(sorted(alive.items())), tuple(sorted(there.silent)), tuple(sorted(there.away)), registered))
        await self._have_adopted([row for row in rows if row.target], alive)
        await self._look_again([row for row in rows if row.target in alive])
        waiting = [
            row for row in rows if not row.target and self._in_vain_for.get(row.entity) != (seen, row.epoch, row.held)
        ]
        for some in in_parts(waiting):
            if alive:
                await self._collect(some, there, seen, everybody)

    async def _look_again(self, rows: Sequence[RecoveryRow]) -> None:
        """Look for other copies of what was given to a server that does not resume it."""
        now_ns = self._clock.monotonic_ns()
        told_ns = {key: self._told_since_ns.get(key, now_ns) for key in [(row.entity, row.epoch) for row in rows]}
        self._told_since_ns |= told_ns
        late = [key for key, since_ns in told_ns.items() if now_ns - since_ns > ADOPT_NS]
        for some in in_parts(late):
            items = [{"entity": entity, "epoch": epoch} for entity, epoch in some]
            again = await self._store.submit("recovery.again", items=items)
            self.counts["looked_for_again"] += len(again)
            for entity, epoch in some:
                if entity in again:
                    self._takeovers.again(entity, epoch)

    async def _collect(self, rows: Sequence[RecoveryRow], there: WhoIsThere, seen: int, everybody: Everybody) -> None:
        alive = there.alive
        heard = await self._ask(lambda server: [self._asked_of(row, server) for row in rows], there, everybody)
        answers, silent = heard.answers, heard.silent
        self._note_deaths(rows, heard)
        found_of = _found_of_each(answers)
        rows = await self._note_handed_on(rows, heard, found_of)
        found: list[dict[str, Any]] = []
        lost: list[RecoveryRow] = []
        for row in await self._to_decide(rows, there, everybody):
            if row.last not in answers and (self._waits_for_disk(row, answers) or self._waits_for_return(row)):
                self._in_vain_for[row.entity] = (seen, row.epoch, row.held)
                continue
            if row.last not in answers and self._waits_for_witness(row):
                continue
            counting = [one for one in found_of[row.entity] if self._may_count(row, one[0], one[1].epoch)]
            candidates = [_candidate(holder, item) for holder, item in believed(row, counting)]
            best = choose(candidates, last=row.last)
            has_begun = not never_began(row, candidates)
            if self._waits_for_later(row, best, there, answers, has_begun=has_begun):
                self._in_vain_for[row.entity] = (seen, row.epoch, row.held)
            elif not is_enough(row, best, silent):
                # The same question to the same servers has the same answer; a server that fell silent since is another
                # one.
                if silent == there.silent:
                    self._in_vain_for[row.entity] = (seen, row.epoch, row.held)
            elif best is None:
                lost.append(row)
            else:
                fields = {"tick": best.tick, "state_hash": best.state_hash, "source": best.source.value}
                fields |= {"target": best.holder, "incarnation": alive[best.holder], "of_epoch": best.fence.epoch}
                found.append({"entity": row.entity, "epoch": row.epoch, "held": row.held} | fields)
        if found:
            self._takeovers.changed(await self._store.submit("recovery.finish", items=found))
        if lost:
            items = [{"entity": row.entity, "epoch": row.epoch} for row in lost]
            done = await self._store.submit("recovery.lost", items=items)
            self._takeovers.changed(done)
            # Only what the log has heard need not be asked again.
            self._in_vain_for |= {row.entity: (seen, row.epoch, row.held) for row in lost}
            self.counts["lost"] += len(done)
            if done:
                _log.error("no server that is alive has a copy of %d entities (%s, ...)", len(done), done[0])
        decided = [self._store.recovery(row.entity) for row in rows]
        await self._have_adopted([row for row in decided if row is not None and row.target], alive)

    async def _to_decide(
        self, rows: Sequence[RecoveryRow], there: WhoIsThere, everybody: Everybody
    ) -> Sequence[RecoveryRow]:
        """Those of which every server that may have them was asked; the next look asks again about the others.

        What is contested lives on until the server that has it is asked. Meanwhile it may be passed, also to a server
        that has come, or come back, since the question was begun. That one was not asked, and knows of no raised fence.
        """
        if not any(row.contested for row in rows):
            return rows
        await self._store.confirmed()
        now = await everybody()
        if now.alive.items() <= there.alive.items():
            return rows
        self.counts["came_meanwhile"] += 1
        return [row for row in rows if not row.contested]

    def _may_count(self, row: RecoveryRow, holder: str, epoch: int) -> bool:
        """Whether a holder can have a copy under such an epoch that is of this entity."""
        record = self._store.entity(row.entity)
        # What is of before its birth is of an earlier one of its name, which was deleted.
        was_born = record is None or epoch >= record.born
        return was_born and is_possible(row, holder, epoch, was_handed_on=self._was_handed_on(row))

    def _asked_of(self, row: RecoveryRow, server: str) -> RaisedItem:
        return asked_of(row, server, was_handed_on=self._was_handed_on(row))

    def _was_handed_on(self, row: RecoveryRow) -> bool:
        return self._handed_on.get(row.entity) == row.epoch

    async def _note_handed_on(
        self, rows: Sequence[RecoveryRow], heard: HeardCopies, found_of: Mapping[str, Sequence[tuple[str, FoundItem]]]
    ) -> Sequence[RecoveryRow]:
        """Those that nothing new was heard of: the others are asked for anew, since later copies of them count.

        A server is believed that had it by this log, or might have been passed it by that one. So is one to which one
        of them says to have handed it. It is not believed that another one has handed on what it has.
        """
        news: set[str] = set()
        further: list[dict[str, Any]] = []
        for row in rows:
            last_has = [item for holder, item in found_of.get(row.entity, ()) if holder == row.last]
            if not row.own_epoch or _has_it_still(row, last_has):
                continue
            had = (row.last, *row.had)
            said = [server for server in had if row.entity in heard.handed_on.get(server, ())]
            if said and not self._was_handed_on(row):
                self._handed_on[row.entity] = row.epoch
                news.add(row.entity)
            to = {heard.handed_to.get(server, {}).get(row.entity, "") for server in said}
            if servers := sorted(to.difference(had, ("",))):
                further.append({"entity": row.entity, "epoch": row.epoch, "servers": servers})
        if further:
            # It may be in another instance by now, whose servers have not been asked.
            news.update(await self._store.submit("recovery.handed_on", items=further))
        return [row for row in rows if row.entity not in news]

    def _waits_for_disk(self, row: RecoveryRow, answers: Collection[str]) -> bool:
        """Whether a server has not come back yet the disk of which may have what no other has (`is_sole`)."""
        return row.disk and row.last not in answers and self._store.row(row.last) is not None

    def _waits_for_later(
        self, row: RecoveryRow, best: Candidate | None, there: WhoIsThere, answers: Collection[str], *, has_begun: bool
    ) -> bool:
        """Whether the best copy is of an earlier custody term, and a server is silent that may have one of the last."""
        silent = (there.away | there.alive.keys()) - set(answers)
        was_handed_on = self._was_handed_on(row)
        servers = waited_for(row, best, silent, has_begun=has_begun, was_handed_on=was_handed_on)
        if servers and (row.epoch, servers) != self._waited_for.get(row.entity):
            self.counts["waited_for_later_copies"] += 1
            copy = "" if best is None else f" from tick {best.tick} of an earlier custody term ({best.fence})"
            names = ", ".join(servers)
            _log.warning("%s is not taken over%s: %s may have later copies", row.entity, copy, names)
        if servers:
            self._waited_for[row.entity] = (row.epoch, servers)
        else:
            self._waited_for.pop(row.entity, None)
        return bool(servers)

    def _waits_for_return(self, row: RecoveryRow) -> bool:
        """Whether an entity waits for its own server; one that was removed from the directory never returns.

        Those of other instances are not in this directory: they are waited for.
        """
        return row.held and (is_abroad(row.entity, row.last) or self._store.row(row.last) is not None)

    def _waits_for_witness(self, row: RecoveryRow) -> bool:
        """Whether its own server, which does not answer, may have died of it, and one more death would be too many."""
        since_ns = self._over_since_ns.get(row.last)
        if not 0 < len(self._died_of[row.entity]) < TOO_OFTEN or self._store.row(row.last) is None:
            return False
        if since_ns is not None and self._clock.monotonic_ns() - since_ns >= SUSPECT_NS:
            return False
        if self._waited_for.get(row.entity) != (row.epoch, (row.last,)):
            self._waited_for[row.entity] = (row.epoch, (row.last,))
            self.counts["waited_for_witness"] += 1
            _log.warning("a server died of %s, and %s, which had it since, is silent: it is waited for", *_whose(row))
        return True

    async def _have_adopted(self, rows: Sequence[RecoveryRow], alive: dict[str, int]) -> None:
        """Tell each target what to resume from; until they say that they do, ever more seldom."""
        now_ns = self._clock.monotonic_ns()
        for target in sorted({row.target for row in rows} & set(alive)):
            due = [row for row in rows if row.target == target and self._is_to_be_told(row, now_ns)]
            for some in in_parts(due):
                items = [item for row in some if (item := self._adopt_item(row, alive[target])) is not None]
                if items:
                    await self._collecting.tell(Adopt(incarnation=alive[target], items=items), target)

    def _is_to_be_told(self, row: RecoveryRow, now_ns: int) -> bool:
        """Whether it is time to tell its target, again perhaps; it is told now then."""
        key = (row.entity, row.epoch)
        due = self._told.get(key, Due(now_ns, round(REPEAT_S * 1e9)))
        if due.at_ns > now_ns:
            return False
        self._told[key] = again(due, now_ns)
        return True

    def _adopt_item(self, row: RecoveryRow, incarnation: int) -> AdoptItem | None:
        record, known = self._store.entity(row.entity), self._store.recovery(row.entity)
        if known is None or (known.target, known.epoch) != (row.target, row.epoch):
            # It was taken from the target while others were asked: that is no leave any more.
            return None
        if record is None or record.incarnation not in (0, incarnation):
            # It was given to an earlier life of the target, from which it will be taken.
            return None
        return AdoptItem(
            entity=row.entity,
            epoch=row.epoch,
            sub=0,
            tick=row.tick,
            state_hash=row.state_hash,
            owner=record.owner,
            owner_rev=record.owner_rev,
            deaths=self._died_of.get(row.entity, []),
        )

    def adopted(self, message: Adopted, sender: str) -> None:
        """A server has taken entities over; the log is told when this looks around."""
        for item in message.items:
            row = self._store.recovery(item.entity)
            if row is not None and (row.target, row.epoch) == (sender, item.epoch):
                self._adopted[row.entity] = row

    async def _finish(self) -> None:
        """Tell the log what has been taken over."""
        rows, self._adopted = self._adopted, {}
        items = [{"entity": row.entity, "epoch": row.epoch, "target": row.target} for row in rows.values()]
        for entity in await self._store.submit("recovery.adopted", items=items) if items else ():
            row = rows[entity]
            self._takeovers.adopted(row)
            self._return_to_owner.adopted(row)
            self._in_vain_for.pop(entity, None)
            self._waited_for.pop(entity, None)
            self._died_of.pop(entity, None)
            self.counts["recovered"] += 1
            self.counts[f"recovered_from_{row.source}"] += 1
            at_s = self._clock.unix_s()
            report = Recovered(entity, row.last, row.target, row.epoch, row.tick, str(row.source), at_s)
            self.recent.append(report)

    def hands_back(self, entity: str) -> bool:
        """Whether the server that takes it over, or is about to, is to hand it back to the one where it belongs."""
        row = self._store.recovery(entity)
        return (row is not None and row.held) or entity in self._return_to_owner

    # --- asking every server ---------------------------------------------------------------------------------------

    def alive(self) -> dict[str, int]:
        """The servers of this instance whose leases last, or that are coming back, with their incarnations."""
        return {row.server: row.incarnation for row in self._store.leases() if row.phase is not LeasePhase.OVER}

    async def here(self) -> WhoIsThere:
        """Every server, if only this instance's servers may have copies."""
        return WhoIsThere(self.alive(), away=frozenset(row.server for row in self._store.away()))

    async def _ask(
        self, asks: Callable[[str], Sequence[RaisedItem]], there: WhoIsThere, everybody: Everybody
    ) -> HeardCopies:
        return await self._collecting.ask(asks, there, everybody)

    def _note_deaths(self, rows: Sequence[RecoveryRow], heard: HeardCopies) -> None:
        """Servers of an instance that an entity has left have no say in whether it is simulated."""
        for row in rows:
            known: Counter[int] = Counter()
            for server, died in heard.deaths.items():
                if instance_of(server) not in row.abroad_too:
                    # Several may have heard of the same.
                    known |= Counter(epoch for epoch in died.get(row.entity, ()) if epoch < row.epoch)
            # A release is of an epoch, and the latest deaths are of the highest ones.
            self._died_of[row.entity] = sorted(known.elements())[-MAX_DEATHS:]

    def collected(self, message: Collected, sender: str) -> None:
        """A server has said what it has. Raises `MessageError`: it was not asked that."""
        self._collecting.collected(message, sender)

    def to_data(self) -> dict[str, Any]:
        """How it stands, for people."""
        rows = [(row, self._store.entity(row.entity)) for row in self._store.takeovers()]
        return {
            "waiting": [
                row.to_data() | {"standing": record.standing.value, "waits_for": self.waits_for(row)}
                for row, record in rows
                if record
            ],
            "recent": [asdict(report) for report in reversed(self.recent)],
            "counts": dict(self.counts),
        }

    def waits_for(self, row: RecoveryRow) -> list[str]:
        """Servers that may have later copies than those that were found, as far as this member was to find any."""
        epoch, servers = self._waited_for.get(row.entity, (0, ()))
        return list(servers) if epoch == row.epoch and not row.target else []


def believed(row: RecoveryRow, found: list[tuple[str, FoundItem]]) -> list[tuple[str, FoundItem]]:
    """What may be resumed: of what is contested, and its last authority simulated until now, only what that had.

    A server that has passed an entity on does not simulate it any more. One that has it by such a pass has it from a
    thief. But a pass leaves the epoch as it is. A server has something of a later one only by the log's leave. Until it
    was taken away for that, the last authority had simulated it once before.
    """
    its_own = [(holder, item) for holder, item in found if row.contested and item.holds and holder == row.last]
    latest = max((item.epoch for _, item in found), default=0)
    return [(holder, item) for holder, item in its_own if item.epoch == latest] or found


def _has_it_still(row: RecoveryRow, items: Collection[FoundItem]) -> bool:
    """Whether the server that answers with these simulates it until now as this log has given it."""
    return any(item.entity == row.entity and item.holds and item.epoch == row.own_epoch for item in items)


def _found_of_each(answers: Mapping[str, Sequence[FoundItem]]) -> Mapping[str, Sequence[tuple[str, FoundItem]]]:
    """By entity, what was found of it and where: each row looks for its own among what hundreds of others have, too."""
    found: defaultdict[str, list[tuple[str, FoundItem]]] = defaultdict(list)
    for holder, items in answers.items():
        for item in items:
            found[item.entity].append((holder, item))
    return found


def _candidate(holder: str, item: FoundItem) -> Candidate:
    return Candidate(holder, item.source, Fence(item.epoch, item.sub), item.tick, item.state_hash)


def _whose(row: RecoveryRow) -> tuple[str, str]:
    return (row.entity, row.last)


def _told(lease: LeaseRow) -> tuple[str, int]:
    return (lease.server, lease.incarnation)
