"""The mirror: the instance's tree as one process knows it from etcd, and commands rehearsed on it. Pure.

Every change of the instance is one transaction of etcd's that compares and writes the *guard* key. So the changes are
in one order, and a decision on an old state fails. A command is decided here, by the same `Machine` as on our own
Raft: it is rehearsed on the mirror and taken back, and what it would change becomes the transaction. Only what etcd
accepted is ever seen by readers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from batonpass.tree.data.data import decode_untrusted, encode
from batonpass.tree.data.errors import BadData, TreeError
from batonpass.tree.data.path import Path
from batonpass.tree.etcd.answers import MAX_CHUNK_BYTES, MAX_DELETES, Answered, Answers
from batonpass.tree.etcd.keys import EtcdKeys, prefix_end
from batonpass.tree.etcd.mirrored_store import MirroredStore, Rehearsal
from batonpass.tree.etcd.wire import Delete, EtcdPut, KeyValue, Operation, cost_bytes
from batonpass.tree.machine.commands import Command, CommandAnswer, Machine, stale_answer
from batonpass.tree.store.changes import Commit
from batonpass.tree.store.procedures import Procedure
from batonpass.tree.store.projections import Projection

__all__ = ["FORMAT", "MAX_PENDING_TRIGGERS", "Damaged", "EtcdPlan", "Limits", "Loading", "Mirror"]

# The layout of keys and values. A process refuses a tree in any other.
FORMAT: Final = 1
# Of a request, besides its operations and their keys and values.
_ENVELOPE_BYTES: Final = 1024
# What fired is one value, written again with every change of it, so there is less room than on our own Raft.
MAX_PENDING_TRIGGERS: Final = 1024
# Of a row, besides the payload and the keep_while.
_ROW_BYTES: Final = 48


class Damaged(Exception):
    """What is in etcd is not what processes of this kind and version write; the sentence names the key."""


@dataclass(frozen=True)
class Limits:
    """How many operations, and how many bytes, one transaction may have."""

    operations: int
    request_bytes: int


@dataclass
class Changes:
    """What one transaction changed: rows by path (None: no such node), chunks of answers, the tree's revision.

    `registrations` are the encoded triggers and projections, if they are other ones than before.
    """

    rows: dict[Path, bytes | None] = field(default_factory=dict)
    answers: list[tuple[str, int, bytes | None]] = field(default_factory=list)
    tree_revision: int = 0
    registrations: bytes | None = None

    def add_untrusted(self, keys: EtcdKeys, item: KeyValue) -> None:
        """What this key says; raises `Damaged`."""
        try:
            path = keys.read_node(item.key)
        except TreeError as error:
            raise Damaged(f"{error.message}. {_REMEDY}") from error
        if path is not None:
            self.rows[path] = item.value
            return
        if item.key == keys.registrations:
            self.registrations = item.value
            return
        chunk = keys.read_answers(item.key)
        if chunk is None:
            raise Damaged(f"{item.key.decode(errors='replace')} is no key of ours. {_REMEDY}")
        self.answers.append((*chunk, item.value))


class Loading:
    """A tree that is being read from etcd, page by page, all of one revision."""

    def __init__(self, keys: EtcdKeys) -> None:
        self._keys: Final = keys
        self._has_rows = False
        self.store: Final = MirroredStore()
        self.answers: Final = Answers(keys)
        self.guard = KeyValue(keys.guard, None, 0)
        self.registrations: bytes | None = None

    def add_untrusted(self, found: Iterable[KeyValue]) -> None:
        """The next keys of the instance, in their order. Raises `Damaged`."""
        for item in found:
            if item.key == self._keys.guard:
                self.guard = item
            else:
                self._has_rows = True
                self._add_row_untrusted(item)

    def _add_row_untrusted(self, item: KeyValue) -> None:
        changes = Changes()
        changes.add_untrusted(self._keys, item)
        try:
            for path, row in changes.rows.items():
                self.store.add_row_untrusted(path, row or b"")
            for client, first, value in changes.answers:
                self.answers.take_untrusted(client, first, value, item.mod_revision)
            self.registrations = changes.registrations or self.registrations
        except BadData as error:
            raise Damaged(f"{item.key.decode(errors='replace')}: {error.message}. {_REMEDY}") from error

    def tree_revision(self) -> int:
        """The tree's own revision, when all is read; raises `Damaged`."""
        if self.guard.value is not None:
            return _read_guard_untrusted(self.guard)
        if self._has_rows:
            raise Damaged(f"{self._keys.prefix.decode()} has nodes but no guard: it was deleted. {_REMEDY}")
        return 0


@dataclass
class EtcdPlan:
    """What some commands come to. `settled` is so already; the rest is so if the transaction succeeds.

    The transaction consists of `operations`, if the guard was changed last at `guard_revision`. Without operations, the
    guard must still be confirmed to be that.
    """

    guard_revision: int
    operations: list[Operation] = field(default_factory=list)
    changes: Changes = field(default_factory=Changes)
    answered: list[Answered] = field(default_factory=list)
    settled: list[Answered] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be confirmed."""
        return not self.answered


class Mirror:
    """The tree and the answers at one revision of etcd's."""

    def __init__(
        self,
        keys: EtcdKeys,
        procedures: Mapping[str, Procedure],
        limits: Limits,
        projections: Mapping[str, Projection] = MappingProxyType({}),
    ) -> None:
        self._keys: Final = keys
        self._limits: Final = limits
        self.store: Final = MirroredStore()
        self.machine: Final = Machine(
            procedures, projections, store=self.store, max_pending_triggers=MAX_PENDING_TRIGGERS
        )
        # As they are in etcd, or would be if they had ever been written.
        self._nothing_registered: Final = self.machine.registrations()
        self._registered = self._nothing_registered
        self._answers = Answers(keys)
        # etcd's revision of the last change of the guard: 0 while the instance has never been written.
        self.guard_revision = 0

    # --- what etcd has --------------------------------------------------------------------------------------------

    def become(self, loaded: "Loading") -> None:
        """Replace everything by what was loaded; raises `Damaged`, and changes nothing, if that cannot be."""
        tree_revision = loaded.tree_revision()
        loaded.answers.order_by_use()
        self._answers = loaded.answers
        self.guard_revision = loaded.guard.mod_revision
        self.store.become(loaded.store, tree_revision)
        self._registered = loaded.registrations or self._nothing_registered
        try:
            self.machine.adopt_registrations_untrusted(self._registered, anew=True)
        except BadData as error:
            raise Damaged(f"{self._keys.registrations.decode()}: {error.message}. {_REMEDY}") from error

    def take_untrusted(self, events: Iterable[KeyValue], revision: int) -> None:
        """What one revision of etcd's changed, in full; older ones than the mirror's are passed over.

        Raises `Damaged` if it is no change of ours.
        """
        found = {event.key: event for event in events}
        guard = found.pop(self._keys.guard, None)
        if guard is None or guard.value is None:
            raise Damaged(
                f"revision {revision} of etcd changed {self._keys.prefix.decode()} without its guard: somebody else "
                f"writes there. {_REMEDY}"
            )
        if revision > self.guard_revision:
            changes = Changes(tree_revision=_read_guard_untrusted(guard))
            for event in found.values():
                changes.add_untrusted(self._keys, event)
            self._take(changes, revision)

    def accepted(self, plan: EtcdPlan, revision: int) -> None:
        """etcd did what was planned, at this revision."""
        if plan.guard_revision == self.guard_revision:
            self._take(plan.changes, revision)

    def _take(self, changes: Changes, revision: int) -> None:
        try:
            self.store.take_rows_untrusted(changes.rows, changes.tree_revision)
            for client, first, value in changes.answers:
                self._answers.take_untrusted(client, first, value, revision)
            self._take_registrations(changes.registrations)
        except BadData as error:
            raise Damaged(f"revision {revision} of etcd: {error.message}. {_REMEDY}") from error
        self.guard_revision = revision

    def _take_registrations(self, registered: bytes | None) -> None:
        """The commit has fired its triggers here, too; only what commands did to registrations is still to come."""
        if registered is not None:
            if registered != self.machine.registrations():
                self.machine.adopt_registrations_untrusted(registered)
            self._registered = registered

    def answer_to(self, client: str, number: int) -> bytes | None:
        """The remembered answer to a command, encoded; None if it was not carried out, or is forgotten."""
        return self._answers.remembered(client, number)

    def is_read_only(self, procedure: str) -> bool:
        """Whether a procedure of this name is declared to only read."""
        return self.machine.is_read_only(procedure)

    def read(self, procedure: str, args: Any) -> bytes:
        """The encoded answer of a procedure that only reads, from the tree as it is here."""
        return self.machine.read(procedure, args)

    def digest(self) -> bytes:
        """SHA-256 of everything: processes that know the same revision of etcd's have the same digest."""
        return sha256(
            encode([self.store.revision, self.store.to_data(), self._answers.to_data(), self._registered])
        ).digest()

    # --- deciding -------------------------------------------------------------------------------------------------

    def rehearse(self, commands: Iterable[Command]) -> EtcdPlan:
        """Decide the first of these commands, as many as fit one transaction; at least one, if there is one."""
        commands = list(commands)
        while True:
            plan = self._rehearse(commands)
            if sum(map(cost_bytes, plan.operations)) <= self._limits.request_bytes - _ENVELOPE_BYTES:
                return plan
            # Only what triggers fired is not counted before: too much together, or for ever.
            if len(plan.answered) == 1:
                (client, number, _), _ = plan.answered
                return EtcdPlan(plan.guard_revision, answered=[(client, number, _too_much(self._limits))])
            commands = commands[: len(plan.settled) + len(plan.answered) // 2]

    def _rehearse(self, commands: Iterable[Command]) -> EtcdPlan:
        plan = EtcdPlan(self.guard_revision)
        with self.store.rehearsal() as rehearsal:
            group = _Group(self._keys, self._limits, rehearsal)
            is_alone = False
            for command in commands:
                known = self._known(command)
                # What may change registrations, which know no rehearsal, is alone in its transaction.
                is_alone = command.procedure in _BESIDE_THE_TREE
                if known is not None:
                    plan.settled.append((command.client, command.number, known))
                elif (is_alone and plan.answered) or not self._decide(command, group, plan) or is_alone:
                    break
            rows = group.rows()
            if rows and self.machine.has_triggers:
                self.machine.fire(Commit(self.store.revision + 1, rehearsal.changes()))
            if is_alone or (rows and self.machine.has_triggers):
                plan.changes.registrations = self._take_back_registrations()
        if plan.answered:
            self._complete(plan, rows, is_only_refused=group.is_only_refused)
        return plan

    def _take_back_registrations(self) -> bytes | None:
        """Make registrations what they were before the rehearsal: what they would be; None if no other than before."""
        registered = self.machine.registrations()
        if registered == self._registered:
            return None
        self.machine.adopt_registrations_untrusted(self._registered)
        return registered

    def _known(self, command: Command) -> bytes | None:
        """The answer, if there is one without carrying out anything."""
        answer = self._answers.remembered(command.client, command.number)
        if answer is None and self._answers.is_forgotten(command.client, command.number):
            answer = stale_answer(command.number)
        return answer

    def _decide(self, command: Command, group: "_Group", plan: EtcdPlan) -> bool:
        """Carry out one command in the rehearsal; False if it has to wait for the next transaction."""
        mark = group.rehearsal.mark()
        answer = self.machine.execute(command.procedure, command.args, f"{command.client}/{command.number}")
        if not group.add(command.client, answer):
            group.rehearsal.back_to(mark)
            if plan.answered:
                return False
            # Alone in its group, and still too much: it will never fit.
            answer = _too_much(self._limits)
            group.is_only_refused = True
        plan.answered.append((command.client, command.number, answer))
        return not group.is_only_refused

    def _complete(self, plan: EtcdPlan, rows: dict[Path, bytes | None], *, is_only_refused: bool) -> None:
        if is_only_refused:
            return
        plan.changes.rows = rows
        plan.changes.tree_revision = self.store.revision + bool(rows)
        remember = self._answers.plan(plan.answered)
        plan.changes.answers = self._answers.changed_by(remember)
        guard = EtcdPut(self._keys.guard, encode([FORMAT, plan.changes.tree_revision]))
        plan.operations = [guard, *_row_operations(self._keys, rows), *remember]
        if plan.changes.registrations is not None:
            plan.operations.append(EtcdPut(self._keys.registrations, plan.changes.registrations))


class _Group:
    """How much the commands of one transaction take, by bounds that are never too low."""

    def __init__(self, keys: EtcdKeys, limits: Limits, rehearsal: Rehearsal) -> None:
        self.rehearsal: Final = rehearsal
        self.is_only_refused = False
        self._keys: Final = keys
        # One for the guard, one for the registrations.
        self._operations_left: Final = limits.operations - 2 - MAX_DELETES
        self._bytes_left: Final = limits.request_bytes - _ENVELOPE_BYTES - MAX_DELETES * 600
        self._costs: dict[Path, int] = {}
        self._costs_bytes = 0
        self._clients: set[str] = set()
        self._answers_bytes = 0

    def add(self, client: str, answer: bytes) -> bool:
        """Count what was done since the last call; False, and nothing counted, if it is too much."""
        dirty = self.rehearsal.take_dirty()
        costs = {path: self._cost(path) for path in dirty}
        clients = self._clients | {client}
        answers_bytes = self._answers_bytes + len(answer) + 32
        costs_bytes = self._costs_bytes + sum(cost - self._costs.get(path, 0) for path, cost in costs.items())
        operations = len(self._costs.keys() | dirty) + len(clients)
        size_bytes = costs_bytes + answers_bytes + len(clients) * 2 * MAX_CHUNK_BYTES
        fits = operations <= self._operations_left and size_bytes <= self._bytes_left
        if not fits and (self._clients or not self._fits_exactly(answers_bytes)):
            return False
        self._costs |= costs
        self._costs_bytes = costs_bytes
        self._clients = clients
        self._answers_bytes = answers_bytes
        return True

    def _cost(self, path: Path) -> int:
        """A row's: a character of a name has at most four bytes, and a delete names its key twice."""
        key_bytes = len(self._keys.prefix) + 8 + 4 * sum(map(len, path)) + len(path)
        return 2 * key_bytes + self.rehearsal.size_bytes(path) + _ROW_BYTES

    def _fits_exactly(self, answers_bytes: int) -> bool:
        """Whether one command fits when it is counted exactly: whole subtrees are deleted by one operation."""
        operations = _row_operations(self._keys, self.rows())
        size_bytes = sum(map(cost_bytes, operations)) + answers_bytes + 2 * MAX_CHUNK_BYTES
        return len(operations) + 1 <= self._operations_left and size_bytes <= self._bytes_left

    def rows(self) -> dict[Path, bytes | None]:
        """The rows that are other ones than before, as they would be."""
        rows: dict[Path, bytes | None] = {}
        for path, before in self.rehearsal.touched.items():
            row = self.rehearsal.row(path)
            if row is not None or before is not None:
                rows[path] = row
        return rows


def _row_operations(keys: EtcdKeys, rows: Mapping[Path, bytes | None]) -> list[Operation]:
    """One put for each row that is there, one delete for each subtree that is gone."""
    operations: list[Operation] = []
    gone: Path | None = None
    for path in sorted(path for path, row in rows.items() if row is None):
        if gone is None or path[: len(gone)] != gone:
            gone = path
            key = keys.node(path)
            operations.append(Delete(key, prefix_end(key)))
    puts = (EtcdPut(keys.node(path), row) for path, row in rows.items() if row is not None)
    return list(chain(operations, puts))


def _read_guard_untrusted(guard: KeyValue) -> int:
    """The tree's revision in the guard; raises `Damaged`."""
    key = guard.key.decode(errors="replace")
    try:
        match decode_untrusted(guard.value or b""):
            case [int(found), int(tree_revision)] if found == FORMAT and tree_revision >= 0:
                return tree_revision
            case [int(found), *_]:
                raise Damaged(f"{key} says that the tree is kept in format {found}; this version knows {FORMAT} only")
            case _:
                raise BadData("not a guard")
    except BadData as error:
        raise Damaged(f"{key}: {error.message}. {_REMEDY}") from error


_REMEDY: Final = "Restore the prefix from a backup of etcd, or give this instance another one"


# Also what runs a procedure whose name is data: it may be one of them.
_BESIDE_THE_TREE: Final = frozenset(
    {
        "tree.register_trigger",
        "tree.unregister_trigger",
        "tree.trigger_done",
        "tree.register_projection",
        "tree.unregister_projection",
        "tree.run",
    }
)


def _too_much(limits: Limits) -> bytes:
    message = (
        f"this command changes or answers more than one transaction of etcd takes ({limits.operations} operations, "
        f"{limits.request_bytes} bytes, data that is replaced included, as the answer tells it); divide it, delete "
        "what it replaces first, or raise etcd's --max-txn-ops and --max-request-bytes and the settings of the same "
        "meaning here"
    )
    details = {"operations": limits.operations, "bytes": limits.request_bytes}
    return CommandAnswer(None, "too_much_for_etcd", message, details).encoded()
