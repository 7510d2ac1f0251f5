"""Replicated commands and the machine that applies them: the same commands in the same order give the same tree.

A command names a procedure and carries plain arguments, and the pair (client, number) that makes it unique. The
machine applies each pair at most once and remembers the answer, so a command may be submitted again whenever its fate
is unknown (Raft thesis, section 6.3). What it remembers is bounded: see the constants below.
"""

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

from batonpass.tree.data.data import (
    decode,
    decode_array_untrusted,
    decode_untrusted,
    encode,
    encode_count,
    encode_shallow,
)
from batonpass.tree.data.errors import Abort, BadData, MalformedCommand, TreeError
from batonpass.tree.data.work_budget import STEPS_PER_COMMAND, values_in
from batonpass.tree.machine.sessions import ClientSessions
from batonpass.tree.machine.state import FrozenState, LoadedState, StateLoader
from batonpass.tree.store.changes import Commit, Written
from batonpass.tree.store.procedures import BUILT_IN, Procedure, ReadOnly
from batonpass.tree.store.projections import Projection, ProjectionStatus
from batonpass.tree.store.registrations import Registrations, stored_procedure_at
from batonpass.tree.store.rows import Remains
from batonpass.tree.store.store import Store
from batonpass.tree.store.transaction import Transaction
from batonpass.tree.store.triggers import Fired

__all__ = [
    "MAX_COMMAND_BYTES",
    "MAX_COMMAND_VALUES",
    "Command",
    "CommandAnswer",
    "Machine",
    "decode_command_untrusted",
    "encode_command",
    "encode_entry",
    "encode_fields",
    "stale_answer",
]

log = logging.getLogger("batonpass.tree.machine.commands")

# One command fits one frame of replication with room to spare; bigger data belongs elsewhere, with its hash here.
MAX_COMMAND_BYTES: Final = 1_000_000
# And this number of values, lists, maps and keys included: a value can be one byte, and each is read and written
# everywhere.
MAX_COMMAND_VALUES: Final = 100_000
MAX_CLIENT_CHARACTERS: Final = 255
# The highest number that is a 64-bit integer in every language.
MAX_NUMBER: Final = 2**63 - 1
# By which rules of the tree a command is applied: those of the time when it was written into the log, on every member.
# 1: `child_list_version` rises with every child. 2: it rises once with an operation. Commands of 1 do not say so.
RULES: Final = 2

# How deep a procedure may recurse; the limit that Python programs have by default.
MAX_RECURSION: Final = 1000

CommandId = tuple[str, int]

_FORM: Final = f"a command is [procedure, args, client, number, {RULES}], or without the {RULES} if it is an old one"


@dataclass(frozen=True, slots=True)
class Command:
    """Run `procedure` with `args`, once: `number` is unique for this `client`, and rises with time.

    `rules` are those by which the tree changes; see `RULES`.
    """

    procedure: str
    args: Any
    client: str
    number: int
    rules: int = RULES


# Not frozen: setting four fields the frozen way takes longer than reading the bytes they come from.
@dataclass(slots=True)
class CommandAnswer:
    """What a command came to: a value, or the stable code of an error with its message and details."""

    value: Any = None
    code: str | None = None
    message: str = ""
    details: Any = None

    @property
    def ok(self) -> bool:
        """Whether the command was applied; otherwise it changed nothing."""
        return self.code is None

    def encoded(self) -> bytes:
        """As bytes; raises `BadData` when the value or the details are not plain data."""
        if self.value is None and self.code is None:
            return _NOTHING
        fields = [self.value] if self.code is None else [self.code, self.message, self.details]
        return encode(fields, canonical=False)

    @staticmethod
    def from_encoded(encoded: bytes) -> "CommandAnswer":
        """Read what `encoded` wrote, on this or another member."""
        fields = decode(encoded)
        if type(fields) is list and len(fields) == 1:
            return CommandAnswer(fields[0])
        match fields:
            case [str(code), str(message), details]:
                return CommandAnswer(None, code, message, details)
            case other:
                raise BadData(f"not an answer: {other!r:.100}")


def encode_command(command: Command) -> bytes:
    """As bytes for the log; raises `BadData` or `MalformedCommand` when it could not be read back."""
    fields = [command.procedure, command.args, command.client, command.number, command.rules]
    return _encoded(fields[: 4 if command.rules == 1 else 5])


def encode_fields(procedure: str, args: Any, client: str, number: int) -> bytes:
    """As `encode_command`, of the fields of a command by the rules of today."""
    return _encoded([procedure, args, client, number, RULES])


def _encoded(fields: list[Any]) -> bytes:
    encoded = encode_shallow(fields)
    if len(encoded) > MAX_COMMAND_BYTES:
        raise MalformedCommand(f"the command has {len(encoded)} bytes; at most {MAX_COMMAND_BYTES} can be replicated")
    if len(encoded) > MAX_COMMAND_VALUES and (values := values_in(encoded)) > MAX_COMMAND_VALUES:
        raise MalformedCommand(f"the command has {values} values; at most {MAX_COMMAND_VALUES} can be replicated")
    if not _is_command(fields):
        raise MalformedCommand(_FORM)
    return encoded


def encode_entry(commands: Sequence[bytes]) -> bytes:
    """Encoded commands as one entry of the log: a CBOR array of them, put together without decoding any."""
    head = encode_count(len(commands))
    # Major type 4 in the place of 0, with the same count (RFC 8949, section 3).
    return bytes((0x80 | head[0],)) + head[1:] + b"".join(commands)


def _decode_entry_untrusted(encoded: bytes) -> list[Any]:
    """The commands of an entry, not yet looked at; an entry of before there were several is its one command."""
    try:
        fields = decode_array_untrusted(encoded)
    except BadData as error:
        raise MalformedCommand(error.message) from error
    return [fields] if fields and isinstance(fields[0], str) else fields


def decode_command_untrusted(encoded: bytes) -> Command:
    """Read a command; raises `MalformedCommand` for anything else."""
    if len(encoded) > MAX_COMMAND_BYTES:
        raise MalformedCommand(f"{len(encoded)} bytes are too many for a command")
    try:
        return _checked(decode_untrusted(encoded))
    except BadData as error:
        raise MalformedCommand(error.message) from error


def _is_command(fields: Any) -> bool:
    """Whether this is what `_FORM` says. On the path of every command, hence without patterns."""
    if type(fields) is not list or not 4 <= len(fields) <= 5:
        return False
    procedure, _, client, number = fields[:4]
    if len(fields) == 5 and (type(fields[4]) is not int or fields[4] != RULES):
        return False
    return (
        type(procedure) is str
        and type(client) is str
        and 0 < len(client) <= MAX_CLIENT_CHARACTERS
        and type(number) is int
        and 0 <= number <= MAX_NUMBER
    )


def _checked(fields: Any) -> Command:
    if not _is_command(fields):
        raise MalformedCommand(_FORM)
    return Command(*fields, *(() if len(fields) == 5 else (1,)))


_NOTHING: Final = encode([None])


def _encoded_value(value: Any) -> bytes:
    """The answer that is this value; raises `BadData`."""
    if type(value) is Written:
        return b"\x81" + value.to_bytes()  # a list of one
    return CommandAnswer(value).encoded()


@contextmanager
def _same_depth_everywhere() -> Iterator[None]:
    """Let procedures recurse `MAX_RECURSION` deep, however deep the caller is.

    The limit counts from the bottom of the stack, and a leader and a follower apply a command at different depths: one
    of them would refuse what the other one applies. It costs a microsecond per entry.
    """
    depth, frame = 0, sys._getframe()
    while (outer := frame.f_back) is not None:
        depth, frame = depth + 1, outer
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + MAX_RECURSION)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


class Machine:
    """A store, the procedures that may change it, and the memory of what was answered. Pure and deterministic."""

    def __init__(
        self,
        procedures: Mapping[str, Procedure],
        projections: Mapping[str, Projection] = MappingProxyType({}),
        store: Store | None = None,
        max_pending_triggers: int | None = None,
    ) -> None:
        """`procedures` and `projections` are declared under names, and must be the same on all members.

        `store` is for those who keep the tree, the answers and the registrations in another place (`tree.etcd`).
        """
        self._sessions: Final = ClientSessions()
        self.store: Final = Store() if store is None else store
        self._max_pending_triggers: Final = max_pending_triggers
        self._registrations: Final = Registrations(self.store, projections, max_pending_triggers)
        built_in = {**BUILT_IN, **self._registrations.procedures, "tree.run": self._run_stored}
        clash = sorted(set(procedures) & set(built_in))
        if clash:
            raise ValueError(f"procedures {clash} have the names of built-in ones; rename them")
        self._procedures: Final = MappingProxyType({**built_in, **procedures})
        self._projections: Final = tuple(projections)
        # Who the members are, as plain data, once that was changed through the log (`tree.net.membership`); else None.
        # Written by the member that applies the log, and kept here so that it is part of every snapshot.
        self.configuration: Any = None

    def declared(self, version: int) -> str:
        """By which procedures and projections this machine applies a log. That is the version of what they do, which is
        raised by hand, and a digest of their names and of the rules of the tree, which follows by itself.
        """
        names = "\n".join([*sorted(self._procedures), "", *sorted(self._projections), "", f"rules {RULES}"])
        return f"{version}-{sha256(names.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"

    def apply(self, encoded: bytes) -> tuple[CommandId | None, bytes]:
        """Apply one command: its id (None if the bytes are not a command) and its encoded answer. See `apply_entry`."""
        try:
            command = decode_command_untrusted(encoded)
        except MalformedCommand as error:
            log.error("a command in the log is malformed and was skipped: %s", error.message)
            return None, CommandAnswer(None, error.code, error.message).encoded()
        return self._apply(command.procedure, command.args, command.client, command.number, command.rules)

    def apply_entry(self, encoded: bytes) -> list[tuple[CommandId, bytes]]:
        """As `apply_each`, of all commands at once."""
        return [(command_id, answer) for command_id, answer, _ in self.apply_each(encoded)]

    def apply_each(self, encoded: bytes) -> Iterator[tuple[CommandId, bytes, int]]:
        """Apply the commands of one entry of the log, in order: the id of each, its encoded answer, and its steps.

        A command is applied when its answer is asked for. Each applies as a whole, so others may be read in between.
        Never raises for anything that a command or a procedure does: a member that stopped at a command would stop at
        it again after every restart, and so would all the others. What is not a command is skipped.
        """
        try:
            entry = _decode_entry_untrusted(encoded)
        except MalformedCommand as error:
            log.error("an entry of the log is malformed and was skipped: %s", error.message)
            return
        store = self.store
        for fields in entry:
            if _is_command(fields):
                before = store.steps_taken
                with _same_depth_everywhere():
                    command_id, answer = self._apply(*fields)
                yield command_id, answer, STEPS_PER_COMMAND + store.steps_taken - before
            else:
                log.error("a command in the log is malformed and was skipped: %.100r", fields)

    def read(self, procedure: str, args: Any = None) -> bytes:
        """The encoded answer of a procedure that only reads, run here and now, outside the log.

        One that is not declared as read-only is refused with `not_read_only`: it must be submitted.
        """
        if not isinstance(self._procedures.get(procedure), ReadOnly):
            message = f"{procedure!r:.100} is not declared as read-only, or not at all"
            return CommandAnswer(None, "not_read_only", message, {"procedure": procedure[:100]}).encoded()
        return self.execute(procedure, args, "read")

    def pending_triggers(self) -> tuple[Fired, ...]:
        """What fired and was not acknowledged by `tree.trigger_done`, in the order in which it is to be run."""
        return self._registrations.triggers.pending()

    def projection(self, name: str) -> Mapping[Any, Any]:
        """The table of a projection in use, as it is now and will be; raises `KeyError`. Do not write."""
        return self._registrations.projections.table(name)

    def projections(self) -> tuple[ProjectionStatus, ...]:
        """The projections in use, and which of them are broken."""
        return self._registrations.projections.status()

    # --- for those who keep the state in another place -------------------------------------------------------------

    @property
    def has_triggers(self) -> bool:
        """Whether a commit could fire any."""
        return bool(self._registrations.triggers)

    def fire(self, commit: Commit) -> None:
        """Queue what this commit fires, though it is not made here."""
        self._registrations.triggers.fire(commit, self.store)

    def registrations(self) -> bytes:
        """Triggers, what they fired, and the projections in use, encoded."""
        return encode(self._registrations.to_data())

    def adopt_registrations_untrusted(self, encoded: bytes, *, anew: bool = False) -> None:
        """Take over what `registrations` gave; raises `BadData`. With `anew`, every table is made again."""
        registered = self._registrations.read_untrusted(decode_untrusted(encoded), self._max_pending_triggers)
        if anew:
            self._registrations.become(registered)
        else:
            self._registrations.adopt(registered)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _apply(self, procedure: str, args: Any, client: str, number: int, rules: int = 1) -> tuple[CommandId, bytes]:
        session = self._sessions.of(client)
        answer = session.remembered(number)
        if answer is None:
            if session.is_forgotten(number):
                answer = stale_answer(number)
            elif rules == RULES:
                answer = self.execute(procedure, args, f"{client}/{number}")
            else:
                with self.store.counting_each_child():
                    answer = self.execute(procedure, args, f"{client}/{number}")
            session.remember(number, answer)
        return (client, number), answer

    def answer_to(self, client: str, number: int) -> bytes | None:
        """The remembered answer, encoded, or None. Does not count as use of the session."""
        session = self._sessions.peek(client)
        return None if session is None else session.remembered(number)

    def is_read_only(self, name: str) -> bool:
        """Whether there is a procedure of this name that is declared to only read."""
        return isinstance(self._procedures.get(name), ReadOnly)

    def execute(self, name: str, args: Any, command: str) -> bytes:
        """Carry out a procedure and encode its answer, which is not remembered; `command` names it in logs.

        Never raises.
        """
        procedure = self._procedures.get(name)
        if procedure is None:
            message = f"there is no procedure {name!r:.100}"
            return CommandAnswer(None, "unknown_procedure", message).encoded()
        try:
            if type(procedure) is ReadOnly:
                with self.store.reading() as reading:
                    return CommandAnswer(procedure(reading, args)).encoded()
            # Encoding belongs to the transaction: an answer that cannot be given must not have had an effect.
            return self.store.transact(procedure, args, _encoded_value)
        except TreeError as error:
            return _refusal(error)
        except MemoryError:
            # The member's trouble and not the command's: the others may well apply it. This one must stop.
            raise
        except Exception as error:  # the poison command: see `apply`
            log.exception("procedure %s crashed on command %s", name, command)
            message = f"{name} raised {type(error).__name__}; nothing was changed"
            return CommandAnswer(None, "procedure_crashed", message).encoded()

    def _run_stored(self, transaction: Transaction, args: Any) -> Any:
        """{path, args}: run the procedure whose name is stored at this path, as if it had been submitted."""
        name = stored_procedure_at(transaction, args)
        procedure = self._procedures.get(name)
        if procedure is None or name == "tree.run":
            raise Abort("unknown_procedure", f"{name!r:.100} is stored there, and is not a procedure that can be run")
        return procedure(transaction, args.get("args"))

    # --- the whole state ------------------------------------------------------------------------------------------

    def to_data(self) -> dict[str, Any]:
        """Everything as plain data, at once: for digests and small states. See `freeze` for snapshots."""
        data = {
            "format": 2,
            "revision": self.store.revision,
            "store": self.store.to_data(),
            "registrations": self._registrations.to_data(),
            "sessions": self._sessions.to_data(),
        }
        return data if self.configuration is None else {**data, "configuration": self.configuration}

    def restore(self, data: Any) -> None:
        """Become what `to_data` described; raises `BadData` for anything else."""
        loader = StateLoader()
        loader.take_whole_untrusted(data)
        self.install(loader.finish())

    def freeze(self) -> FrozenState:
        """The state as it is now, to be read in chunks while commands are applied; one at a time. See `thaw`."""
        parts = {
            "revision": self.store.revision,
            "registrations": self._registrations.to_data(),
            "configuration": self.configuration,
        }
        return FrozenState(parts, self.store.freeze(), self._sessions.freeze())

    def thaw(self, frozen: FrozenState) -> None:
        """What `freeze` gave is not needed any more."""
        frozen.release()
        self.store.thaw()

    def install(self, state: LoadedState) -> Remains:
        """Become this state at once; the old tree, to be taken apart in slices. To be called after `thaw`."""
        remains = self.store.install(state.tree, state.revision)
        self._registrations.become(state.registered)
        self._sessions.become(state.sessions)
        self.configuration = state.configuration
        return remains

    def digest(self) -> bytes:
        """SHA-256 of the whole state: members that applied the same commands have the same digest."""
        return sha256(encode(self.to_data())).digest()


def stale_answer(number: int) -> bytes:
    """The encoded answer to a command that may have been carried out before, and whose answer is forgotten."""
    message = "this number is older than every answer still remembered for its client; it was not applied now"
    return CommandAnswer(None, "stale_command", message, {"number": number}).encoded()


def _refusal(error: TreeError) -> bytes:
    try:
        return CommandAnswer(None, error.code, error.message, error.details).encoded()
    except BadData:
        return CommandAnswer(None, error.code, error.message, {"details": "not plain data"}).encoded()
