"""The replicated rows as a homeserver uses them: procedures through the log, reads from the local copy.

The copy may be behind the log. What it has was so once; what it does not have may be there all the same, so code that
is about to say that something does not exist asks with `find_row`, `find_entity`, `find_transfer` or `find_servers`.

The names of this module's errors are what REST answers carry as `code`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import wraps
from itertools import islice
from typing import Any, Final, TypeVar

from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.enrolment import Enrolled, Invitation
from batonpass.authority.model.records import (
    DirectoryRow,
    DrainRecord,
    EntityRecord,
    GroupPhase,
    GroupRecord,
    LeaseOffice,
    LeaseRow,
    Phase,
    RecoveryRow,
    Role,
    TransferRecord,
)
from batonpass.authority.model.regions import RegionTable
from batonpass.authority.model.rows import Rows
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.procedures.delete import FAREWELLS
from batonpass.authority.procedures.drain import BALANCE_PAUSE, DRAINS
from batonpass.authority.procedures.enrolment import INVITATION_ORDER, INVITATIONS, enrolled_path
from batonpass.authority.procedures.foreign_custody import CROSSINGS
from batonpass.authority.procedures.group_table import GROUP_ORDER, is_behind
from batonpass.authority.procedures.master_question import fair_order
from batonpass.authority.procedures.rate_limit import Paces
from batonpass.authority.procedures.regions import REGIONS, region_table
from batonpass.authority.procedures.table import PROCEDURES
from batonpass.crypto.bounded_tables import LruTable
from batonpass.homeserver.log.read_barrier import Barrier, SharedBarrier
from batonpass.tree.data.data import encode
from batonpass.tree.data.errors import Abort
from batonpass.tree.member.backend import Backend
from batonpass.tree.raft.submissions import Aborted
from batonpass.tree.store.store import NodeView
from batonpass.tree.store.store import Store as TreeStore
from batonpass.tree.store.transaction import Transaction

__all__ = ["InstanceStore", "replicated_procedures"]

T = TypeVar("T")

MAX_READ_ROWS: Final = 10_000
_REASONS: Final = frozenset(reason.value for reason in Reason)


def replicated_procedures() -> dict[str, Callable[[Transaction, Any], Any]]:
    """Authority's procedures in the form that the tree's replication takes."""

    def adapt(procedure: Callable[[Rows, Mapping[str, Any]], Any]) -> Callable[[Transaction, Any], Any]:
        @wraps(procedure)
        def run(transaction: Transaction, args: Any) -> Any:
            try:
                return procedure(transaction, args)
            except Refused as refused:
                raise Abort(refused.reason.value, refused.sentence, refused.details) from refused

        return run

    return {name: adapt(procedure) for name, procedure in PROCEDURES.items()}


class InstanceStore:
    """Typed access to the rows of this instance.

    Args:
        backend: tells who keeps them at the moment.
        shared: what makes one barrier of several that are waited for.
    """

    def __init__(
        self,
        backend: Callable[[], Backend],
        shared: Callable[[Callable[[], Awaitable[None]]], Barrier] = SharedBarrier,
    ) -> None:
        self._backend = backend
        self._barrier = shared(self.fresh)
        self._read_rows: LruTable[str, tuple[bytes, DirectoryRow]] = LruTable(MAX_READ_ROWS)
        self._read_questions: LruTable[str, tuple[bytes, dict[str, Any]]] = LruTable(MAX_READ_ROWS)
        self._read_recoveries: LruTable[str, tuple[bytes, RecoveryRow]] = LruTable(MAX_READ_ROWS)
        self._read_regions: tuple[bytes | None, RegionTable | None] = None, None

    @property
    def _replica(self) -> Backend:
        return self._backend()

    @property
    def tree(self) -> TreeStore:
        """This member's copy of the tree, for reading."""
        return self._replica.store

    async def submit(self, procedure: str, **args: Any) -> Any:
        """Run a procedure through the log and return its answer.

        Raises:
            Refused: the procedure refused; nothing was changed.
            Aborted: it failed for a reason that is no refusal, which is a fault of ours; nothing was changed.
            NoQuorum, OutcomeUnknown: see `tree.raft.submissions`.
        """
        try:
            return await self._replica.submit(procedure, args)
        except Aborted as aborted:
            if aborted.code not in _REASONS:
                raise
            raise Refused(Reason(aborted.code), aborted.message, **(aborted.details or {})) from aborted

    async def fresh(self) -> None:
        """After this, local reads see everything that was committed before the call.

        Raises:
            NoQuorum: no majority could be asked.
        """
        await self._replica.read_barrier()

    async def confirmed(self) -> None:
        """After this, local reads see everything that was committed before the call; shared with all who wait for that.

        Raises:
            NoQuorum: no majority could be asked.
        """
        await self._barrier.passed()

    async def find_row(self, name: str) -> DirectoryRow | None:
        """The directory row of a server or player of this instance; None when there was none after this call began.

        Raises:
            NoQuorum: this member does not have it, and cannot find out whether there is one.
        """
        return await self._find(lambda: self.row(name))

    async def newer_row(self, name: str) -> DirectoryRow | None:
        """The directory row of a server or player, not older than this call.

        A look because of an unknown key shares one question to the leader with all others at the same time.

        Raises:
            NoQuorum: it cannot be told.
        """
        await self._barrier.passed()
        return self.row(name)

    async def find_entity(self, entity_id: str) -> EntityRecord | None:
        """The record of an entity as this member knows it; None when there was none after this call began.

        Raises:
            NoQuorum: as of `find_row`.
        """
        return await self._find(lambda: self.entity(entity_id))

    async def find_transfer(self, transfer_id: str) -> TransferRecord | None:
        """The record of a transfer as this member knows it; None when there was none after this call began.

        Raises:
            NoQuorum: as of `find_row`.
        """
        return await self._find(lambda: self.transfer(transfer_id))

    async def find_servers(self, role: Role | None = None) -> list[DirectoryRow]:
        """The servers that this member knows, by name; an empty list when there were none after this call began.

        Raises:
            NoQuorum: as of `find_row`.
        """
        return await self._find(lambda: self.servers(role))

    async def _find(self, look: Callable[[], T]) -> T:
        found = look()
        if not found:
            await self._barrier.passed()
            found = look()
        return found

    def entity(self, entity_id: str) -> EntityRecord | None:
        """The record of an entity, as this member knows it."""
        data = self._get(("entities", entity_id))
        return None if data is None else EntityRecord.from_data(data)

    def entity_count(self) -> int:
        """How many entities of this instance there are, as this member knows it."""
        return self._replica.store.count_below(("entities",))

    def entity_names(self) -> list[str]:
        """The entities of this instance, as this member knows them, in no order."""
        store = self._replica.store
        return list(store.children(("entities",))) if store.exists(("entities",)) else []

    def kind_of(self, entity_id: str) -> str:
        """Of which kind an entity of this instance is, as this member knows it; empty if it knows none."""
        data = self._get(("entities", entity_id))
        kind: str = "" if data is None else data["kind"]
        return kind

    def parent_of(self, entity_id: str) -> str:
        """The parent of an entity of this instance, as this member knows it; empty if it knows none."""
        data = self._get(("entities", entity_id))
        parent: str = "" if data is None else data.get("parent", "")
        return parent

    def transfer(self, transfer_id: str) -> TransferRecord | None:
        """The record of a transfer, as this member knows it."""
        data = self._get(("transfers", transfer_id))
        return None if data is None else TransferRecord.from_data(data)

    def group(self, group: str) -> GroupRecord | None:
        """Entities that move together, as this member knows it; a transfer of no group names none."""
        data = self._get(("groups", group)) if group else None
        return None if data is None else GroupRecord.from_data(data)

    def grave(self, entity: str) -> dict[str, Any] | None:
        """What is left of an entity that has ended, as this member knows it: its last `authority`, and `epoch`."""
        grave: dict[str, Any] | None = self._get(("tombstones", entity))
        return grave

    def deletion_notices(self) -> list[str]:
        """The entities that have ended, and of which a server may not have heard yet, as this member knows."""
        store = self._replica.store
        return list(store.children((FAREWELLS,))) if store.exists((FAREWELLS,)) else []

    def farewell(self, entity: str) -> dict[str, Any] | None:
        """Who may simulate an entity still that has ended: `servers`, with their incarnations, and `epoch`."""
        row: dict[str, Any] | None = self._get((FAREWELLS, entity))
        return row

    def is_behind(self, group: GroupRecord, now_s: float) -> bool:
        """Whether another group that names some of the same entities goes first, as this member knows it."""
        return any(is_behind(group, self.group(name), now_s) for name in group.earlier)

    def open_rivals(self, group: GroupRecord) -> list[GroupRecord]:
        """The groups that wait for their last member and name some of the same entities, as this member knows it."""
        rivals = map(self.group, (*group.earlier, *group.later))
        return [one for one in rivals if one is not None and one.phase is GroupPhase.OPEN]

    def open_groups(self) -> list[GroupRecord]:
        """The groups that wait for their last member, as this member knows them."""
        groups = map(self.group, self._get(GROUP_ORDER) or ())
        return [group for group in groups if group is not None and group.phase is GroupPhase.OPEN]

    def transfers_of(self, entity_id: str, limit: int) -> list[TransferRecord]:
        """The transfers of an entity that are still remembered, as this member knows them; with an epoch, newest first.

        There is no index: the log forgets transfers (`authority.procedures.transfer_table`), and rows that do not even
        contain the entity's name are passed over without being decoded.
        """
        name = entity_id.encode()

        def collect(path: tuple[str, ...], view: NodeView, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
            if view.encoded is not None and name in view.encoded and view.data["entity"] == entity_id:
                found.append(view.data)
            return found

        nothing: list[dict[str, Any]] = []
        rows = self._replica.store.fold_below(("transfers",), collect, nothing)
        # Epochs rise with every commit; what is not decided yet has none, nor has what was decided without a freeze.
        rows.sort(key=lambda row: (row.get("epoch", 0) == 0, row.get("epoch", 0), row.get("sub", 0)), reverse=True)
        return [TransferRecord.from_data(row) for row in rows[:limit]]

    def transfer_ids(self) -> list[str]:
        """The transfers that are still remembered, as this member knows them."""
        store = self._replica.store
        return list(store.children(("transfers",))) if store.exists(("transfers",)) else []

    def unreported(self, transfer_ids: Iterable[str]) -> list[TransferRecord]:
        """Of these the transfers that are committed and whose old authority has not reported their end."""
        return self._in_phase(Phase.COMMITTED, transfer_ids)

    def is_left(self, transfer: TransferRecord) -> bool:
        """Whether a transfer is committed and no server will report its end: its old authority is dead, or came back
        anew.

        Of one of another instance, and of one that had no lease, that is not known here.
        """
        may_be = transfer.phase is Phase.COMMITTED and transfer.source_incarnation
        lease = self.lease(transfer.source) if may_be else None
        return lease is not None and lease.has_outlived(transfer.source_incarnation)

    def permitted(self, transfer_ids: Iterable[str]) -> list[TransferRecord]:
        """Of these the transfers that may begin and have no result yet."""
        return [transfer for transfer in self._in_phase(Phase.PERMITTED, transfer_ids) if not transfer.stay]

    def _in_phase(self, phase: Phase, transfer_ids: Iterable[str]) -> list[TransferRecord]:
        views = [self._replica.store.view(("transfers", transfer_id)) for transfer_id in transfer_ids]
        # Most are done: they are not decoded. (The word alone stands in the report of everything that is done.)
        word = encode("phase") + encode(phase.value)
        open_ones = [view for view in views if view is not None and view.encoded and word in view.encoded]
        transfers = [TransferRecord.from_data(view.data) for view in open_ones]
        return [transfer for transfer in transfers if transfer.phase is phase]

    def asks_of(self, master: str, now_s: float, limit: int) -> list[tuple[EntityRecord, TransferRecord]]:
        """The requests that wait for this master's answer, with what they are for: each requester's first, and so on.

        Within a round they come as their time runs out. All that wait have to be looked at, or the many of one
        requester could hide another's: no more than the log remembers (`authority.procedures.transfer_table`), and
        of what has another master only the row that does not even contain the name.
        """
        store, name = self._replica.store, master.encode()
        # One requester can have thousands wait: they are read as records when it is known which are shown.
        found: list[dict[str, Any]] = []
        for entity_id in sorted(store.children(("asks",))) if store.exists(("asks",)) else ():
            view = store.view(("entities", entity_id))
            if view is None or (view.encoded is not None and name not in view.encoded) or view.data["master"] != master:
                continue
            asked = [row for name in self._get(("asks", entity_id)) or () if (row := self._question(name)) is not None]
            found += [row for row in asked if now_s <= row["ask_expires_at_s"]]
        found.sort(key=lambda row: row["ask_expires_at_s"])
        first = [TransferRecord.from_data(row) for row in fair_order(found)[:limit]]
        return [(record, transfer) for transfer in first if (record := self.entity(transfer.entity)) is not None]

    def asked_entities(self) -> list[str]:
        """The entities of which questions may wait, as this member knows them."""
        store = self._replica.store
        return list(store.children(("asks",))) if store.exists(("asks",)) else []

    def asked_masters(self, entity_ids: Iterable[str]) -> set[str]:
        """Of these entities, the masters for whose answer something waits, perhaps for too long already."""
        asked = [e for e in entity_ids if any(self._question(name) for name in self._get(("asks", e)) or ())]
        return {record.master for entity_id in asked if (record := self.entity(entity_id)) is not None}

    def _question(self, transfer_id: str) -> dict[str, Any] | None:
        """The row of a transfer that waits for a master; looked at with every look of that one, and decoded once."""
        view = self._replica.store.view(("transfers", transfer_id))
        if view is None or view.encoded is None:
            return None
        known = self._read_questions.get(transfer_id)
        if known is None or known[0] is not view.encoded:
            known = self._read_questions[transfer_id] = view.encoded, view.data
        return known[1] if known[1]["phase"] == Phase.ASKED.value else None

    def paces(self, entity_id: str) -> Paces:
        """How often whom has asked for an entity lately, as this member knows it."""
        paces: Paces = self._get(("paces", entity_id)) or {}
        return paces

    def row(self, name: str) -> DirectoryRow | None:
        """The directory row of a server or player of this instance, as this member knows it.

        It is asked for with every message and every certificate, and read again only when it was written again.
        """
        store = self._replica.store
        view = store.view(("servers", name)) or store.view(("players", name))
        if view is None or view.encoded is None:
            return None
        known = self._read_rows.get(name)
        # Payloads are never changed in place, and this one is kept: that it is the same object says it all.
        if known is not None and known[0] is view.encoded:
            return known[1]
        row = DirectoryRow.from_data(view.data)
        self._read_rows[name] = view.encoded, row
        return row

    def servers(self, role: Role | None = None) -> list[DirectoryRow]:
        """The servers of this instance, by name, as this member knows them."""
        names = self._replica.store.children(("servers",)) if self._replica.store.exists(("servers",)) else ()
        rows = [self.row(name) for name in sorted(names)]
        return [row for row in rows if row is not None and (role is None or row.role is role)]

    def simserver_names(self) -> list[str]:
        """The simulation servers of this instance, by name, as this member knows them."""
        return [row.name for row in self.servers(Role.SIMSERVER)]

    def drain(self, server: str) -> DrainRecord | None:
        """Since when a server is drained, as this member knows it; None if it is not."""
        data = self._get((DRAINS, server))
        return None if data is None else DrainRecord.from_data(data)

    def drains(self) -> list[DrainRecord]:
        """The servers that are drained, by name, as this member knows them."""
        store = self._replica.store
        names = sorted(store.children((DRAINS,))) if store.exists((DRAINS,)) else []
        return [DrainRecord.from_data(store.get((DRAINS, name))) for name in names]

    def balance_paused_since_s(self) -> float | None:
        """Since when an operator holds the balancer still (Unix time), as this member knows it; None if none does."""
        since_s: float | None = self._get((BALANCE_PAUSE,))
        return since_s

    def regions(self) -> RegionTable | None:
        """Which server has which part of space, as this member knows it; None if there is no such table."""
        view = self._replica.store.view((REGIONS,))
        encoded = None if view is None else view.encoded
        if view is None or encoded is None:
            return None
        if self._read_regions[0] is not encoded:
            self._read_regions = encoded, region_table(view.data)
        return self._read_regions[1]

    def entities_of(self, server: str) -> list[EntityRecord]:
        """The entities that a server has authority over, as this member knows them; looked through as in `named_by`."""
        name = server.encode()

        def collect(path: tuple[str, ...], view: NodeView, found: list[Any]) -> list[Any]:
            if view.encoded is not None and name in view.encoded and view.data["authority"] == server:
                found.append(view.data)
            return found

        if not self._replica.store.exists(("entities",)):
            return []
        nothing: list[Any] = []
        return [EntityRecord.from_data(row) for row in self._replica.store.fold_below(("entities",), collect, nothing)]

    def abroad(self, instance: str) -> list[EntityRecord]:
        """The entities whose authority is of another instance than this one, as this member knows them.

        There is no index: rows that visibly name an authority of this instance are passed over without being decoded.
        """
        own, key = f"{instance}.".encode(), b"authority"

        def collect(path: tuple[str, ...], view: NodeView, found: list[Any]) -> list[Any]:
            encoded = view.encoded or key + own
            at = encoded.find(key)
            # In CBOR, one or two bytes between a key and its text say how long that is.
            is_here = at >= 0 and encoded.find(own, at, at + len(key) + 2 + len(own)) >= 0
            if not is_here and (row := view.data)["authority"] and not row["authority"].startswith(f"{instance}."):
                found.append(row)
            return found

        if not self._replica.store.exists(("entities",)):
            return []
        nothing: list[Any] = []
        return [EntityRecord.from_data(row) for row in self._replica.store.fold_below(("entities",), collect, nothing)]

    def crossings(self) -> list[tuple[EntityRecord, TransferRecord]]:
        """The entities that came from or to another instance, and the transfers, whose end was not told yet."""
        store = self._replica.store
        names = sorted(store.children((CROSSINGS,))) if store.exists((CROSSINGS,)) else []
        found = [(self.entity(name), self.transfer(store.get((CROSSINGS, name)))) for name in names]
        return [(record, way) for record, way in found if record and way and record.fence == way.fence]

    def owned_by(self, player: str) -> list[EntityRecord]:
        """The entities that a player owns, by id, as this member knows them; looked through as in `named_by`."""
        name = player.encode()

        def collect(path: tuple[str, ...], view: NodeView, found: list[Any]) -> list[Any]:
            if view.encoded is not None and name in view.encoded and view.data["owner"] == player:
                found.append(view.data)
            return found

        if not self._replica.store.exists(("entities",)):
            return []
        nothing: list[Any] = []
        rows = self._replica.store.fold_below(("entities",), collect, nothing)
        return sorted(map(EntityRecord.from_data, rows), key=lambda record: record.id)

    def count_mastered(self, player: str) -> int:
        """Of how many entities a player is the master, as this member knows it; looked through as in `named_by`."""
        name = player.encode()

        def count(path: tuple[str, ...], view: NodeView, found: int) -> int:
            return found + (view.encoded is not None and name in view.encoded and view.data["master"] == player)

        return (
            self._replica.store.fold_below(("entities",), count, 0) if self._replica.store.exists(("entities",)) else 0
        )

    def enrolled(self, player: str) -> Enrolled | None:
        """What a player may do by an invitation, or because it was said, as this member knows it."""
        data = self._get(enrolled_path(player))
        return None if data is None else Enrolled.from_data(data)

    def invitation(self, name: str) -> Invitation | None:
        """An invitation, as this member knows it."""
        data = self._get((INVITATIONS, name))
        return None if data is None else Invitation.from_data(data)

    def invitations(self) -> list[Invitation]:
        """The invitations, the oldest first, as this member knows them."""
        found = (self.invitation(name) for name, _ in self._get(INVITATION_ORDER) or ())
        return [one for one in found if one is not None]

    def recovery(self, entity_id: str) -> RecoveryRow | None:
        """How the recovery of an entity stands, as this member knows it; None if it is not being recovered.

        All of them are looked at several times a second, and read again only when they were written again.
        """
        view = self._replica.store.view(("recoveries", entity_id))
        if view is None or view.encoded is None:
            self._read_recoveries.pop(entity_id, None)
            return None
        known = self._read_recoveries.get(entity_id)
        # As in `row`.
        if known is not None and known[0] is view.encoded:
            return known[1]
        row = RecoveryRow.from_data(view.data)
        self._read_recoveries[entity_id] = view.encoded, row
        return row

    def takeovers(self) -> list[RecoveryRow]:
        """The entities whose authority died and that no server has taken over yet, as this member knows them."""
        store = self._replica.store
        names = sorted(store.children(("recoveries",))) if store.exists(("recoveries",)) else []
        return [row for name in names if (row := self.recovery(name)) is not None]

    def named_by(self, server: str) -> tuple[int, int]:
        """How many entities of this instance a server has authority over, and how many others it may be passed.

        As this member knows it. There is no index: rows that do not even contain the name are not decoded.
        """

        def count(row: Mapping[str, Any], found: tuple[int, int]) -> tuple[int, int]:
            here = row["authority"] == server
            return found[0] + here, found[1] + (not here and server in row.get("delegation", ()))

        return self._fold_naming(server, count, (0, 0))

    def rights_of(self, player: str) -> int:
        """How many entities of this instance a player owns or is the master of, as this member knows it."""

        def count(row: Mapping[str, Any], found: int) -> int:
            return found + (player in (row["owner"], row["master"]))

        return self._fold_naming(player, count, 0)

    def delegated_to(self, server: str, at_most: int, after: str = "") -> list[tuple[str, str]]:
        """Entities of others that a server may be passed, each with who has authority, by id.

        They begin behind the entity `after`, and continue with the first ones behind the last. There is no index; rows
        that do not even contain the name are not decoded, nor is what comes when there are enough.
        """
        name = server.encode()
        later: list[NodeView] = []
        earlier: list[NodeView] = []

        def collect(path: tuple[str, ...], view: NodeView, _: None) -> None:
            if view.encoded is not None and name in view.encoded:
                (later if path[-1] > after else earlier).append(view)

        self._replica.store.fold_below(("entities",), collect, None)
        rows = (view.data for view in (*later, *earlier))
        named = (row for row in rows if row["authority"] not in ("", server) and server in row.get("delegation", ()))
        return [(row["id"], row["authority"]) for row in islice(named, at_most)]

    def _fold_naming(self, server: str, function: Callable[[Mapping[str, Any], T], T], initial: T) -> T:
        """Through the rows of all entities that name a server in whatever way."""
        name = server.encode()

        def look(path: tuple[str, ...], view: NodeView, found: T) -> T:
            return found if view.encoded is None or name not in view.encoded else function(view.data, found)

        if not self._replica.store.exists(("entities",)):
            return initial
        return self._replica.store.fold_below(("entities",), look, initial)

    def lease_office(self) -> LeaseOffice:
        """Who grants leases, as this member knows it."""
        data = self._get(("lease_office",))
        return LeaseOffice() if data is None else LeaseOffice.from_data(data)

    def lease(self, server: str) -> LeaseRow | None:
        """The lease of a simulation server, as this member knows it."""
        data = self._get(("leases", server))
        return None if data is None else LeaseRow.from_data(data)

    def incarnation_of(self, server: str) -> int:
        """The present incarnation of a simulation server, as this member knows it; 0 if it has no lease."""
        row = self.lease(server)
        return 0 if row is None else row.incarnation

    def leases(self) -> list[LeaseRow]:
        """All leases, by the names of the servers, as this member knows them."""
        names = self._replica.store.children(("leases",)) if self._replica.store.exists(("leases",)) else ()
        rows = [self.lease(name) for name in sorted(names)]
        return [row for row in rows if row is not None]

    def away(self) -> list[LeaseRow]:
        """The leases that are over of servers that may return: those that were not removed from the directory."""
        return [row for row in self.leases() if row.phase is LeasePhase.OVER and self.row(row.server) is not None]

    def _get(self, path: tuple[str, ...]) -> Any:
        return self._replica.store.get_or(path, None)
