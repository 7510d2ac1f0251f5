"""The tree: what members say to each other, and what commands, states and snapshots hold."""

import functools
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Any, cast

from batonpass.scenarios.simulation.tree.disk import SimulatedDisk
from batonpass.tree.data.data import decode_array_untrusted, decode_untrusted, encode
from batonpass.tree.data.errors import BadData, BadPath, MalformedCommand
from batonpass.tree.data.json_form import from_json_untrusted
from batonpass.tree.data.json_form import to_json as to_json_form
from batonpass.tree.data.payload import StoredProcedure, check_payload_untrusted, encode_payload
from batonpass.tree.disk.snapshot import SnapshotDamaged, SnapshotFile, SnapshotReader
from batonpass.tree.machine.commands import Command, Machine, decode_command_untrusted, encode_command, encode_entry
from batonpass.tree.machine.sessions import ClientSessions
from batonpass.tree.machine.state import StateLoader
from batonpass.tree.member.membership_executor import MembershipExecutor
from batonpass.tree.net.certificates import Credentials
from batonpass.tree.net.frames import (
    FrameBuffer,
    Greeting,
    GreetingVerdict,
    MalformedFrame,
    decode_greeting_untrusted,
    decode_hint_untrusted,
    decode_message_untrusted,
    decode_verdict_untrusted,
    encode_frame,
    encode_hint,
)
from batonpass.tree.net.membership import (
    Admit,
    ChangeRefused,
    Configuration,
    Member,
    change_from_data_untrusted,
    decode_seats_untrusted,
)
from batonpass.tree.net.tls import TlsFailed, TlsSession
from batonpass.tree.net.transport import _Connection
from batonpass.tree.raft.raft import RaftCore
from batonpass.tree.store.condition_reader import condition_from_data_untrusted
from batonpass.tree.store.conditions import (
    AllOf,
    AnyOf,
    IfChildListLength,
    IfDataMatches,
    IfNameMatches,
    IfNodeExists,
    IfPayloadVersion,
    NotOf,
)
from batonpass.tree.store.export import FORMAT as EXPORT_FORMAT
from batonpass.tree.store.export import FORMAT_VERSION, read_rows_untrusted
from batonpass.tree.store.keep_while import keep_while_from_data_untrusted
from batonpass.tree.store.pattern import ANY_DEPTH, ANY_NAME, pattern_from_data_untrusted, pattern_to_data
from batonpass.tree.store.projections import in_use_from_data_untrusted
from batonpass.tree.store.rows import TreeBuilder
from batonpass.tree.store.triggers import Fired, Trigger, Triggers
from tests.fuzz.plain import from_json, to_cbor
from tests.fuzz.target import Target
from tests.fuzz.targets.tree_data import cbor_seeds, plain_data
from tests.tree.disk.test_snapshot import machine_with, write

MEMBERS = Configuration.initial([Member(name, "127.0.0.1", 7000 + number) for number, name in enumerate("abc")])
CONDITION = AllOf([
    AnyOf([IfNodeExists(True), IfChildListLength(3)]), NotOf(IfNameMatches(regex="a.*b")), IfPayloadVersion(2),
    IfDataMatches({"a": 1}),
])  # fmt: skip


def _no_procedures() -> Machine:
    return Machine({}, {"names": lambda *_: None})


@functools.cache
def _machine() -> Machine:
    """One with nodes, sessions, triggers and a projection."""
    machine = machine_with(5)
    pattern = pattern_to_data(("some", ANY_NAME, ANY_DEPTH))
    for number, (procedure, args) in enumerate([
        ("tree.put", {"path": ["proc"], "procedure": "tree.get"}),
        ("tree.trigger_register", {"id": "t", "pattern": pattern, "procedure_path": ["proc"]}),
        ("tree.put", {"path": ["some", "x", "y"], "data": 1}),
        ("tree.put", {"path": ["kept"], "data": 1, "keep_while": [[pattern, CONDITION.to_data()]]}),
    ]):  # fmt: skip
        machine.apply(encode_command(Command(procedure, args, "registrar", number)))
    return machine


def _chunks() -> list[Any]:
    machine = _machine()
    frozen = machine.freeze()
    found = []
    while (chunk := frozen.next_chunk(1000)) is not None:
        found.append(chunk)
    machine.thaw(frozen)
    return found


def _plain(read: Callable[[Any], object]) -> Callable[[bytes], object]:
    """A reader of plain data, given the data that bytes are the CBOR of: what `tree.data.data` lets through."""
    return lambda data: read(plain_data(data))


# --- frames and TLS ---------------------------------------------------------------------------------------------------


def _frame_stream(data: bytes) -> None:
    buffer = FrameBuffer(4096)
    for begin in range(0, len(data), 700):
        buffer.feed(data[begin : begin + 700])
        while buffer.next_untrusted() is not None:
            pass
    buffer.take_rest()


def _greeting(data: bytes) -> None:
    for decode in (decode_greeting_untrusted, decode_verdict_untrusted, decode_hint_untrusted):
        with suppress(MalformedFrame):
            decode(data)


def _message_seeds() -> list[bytes]:
    entries = [[b"command", 6, 2], [b"other", 7, 2]]
    messages: list[dict[str, Any]] = [
        {"type": "append_entries", "term": 2, "commit_index": 5, "entries": entries, "prevLogIdx": 5, "prevLogTerm": 1},
        {"type": "append_entries", "term": 2, "commit_index": 5, "serialized": [b"piece", True, False]},
        {"type": "request_vote", "term": 2, "last_log_index": 5, "last_log_term": 1, "transfer": False},
        {"type": "member_request", "round": 1, "request": ["dismiss", "c"]},
        {"type": "member_answer", "round": 1, "code": None, "sentence": ""},
        {"type": "next_node_idx", "term": 1, "next_node_idx": 2, "reset": False, "success": True},
    ]
    return [to_cbor(message) for message in messages]


@functools.cache
def _credentials() -> Credentials:
    with tempfile.TemporaryDirectory() as directory:
        return Credentials(FilePath(directory), b"s" * 32, kind="homeserver", instance="alpha", name="a")


def _tls_server() -> TlsSession:
    return TlsSession(_credentials().server_context, server_side=True)


def _tls(data: bytes) -> None:
    """In pieces, as a socket gives them; afterwards the session may not be used, whatever it was."""
    connection = _Connection(cast(Any, None))
    connection.decrypted_untrusted(data[:5])
    connection.tls = _tls_server()
    for begin in range(0, len(data), 400):
        connection.decrypted_untrusted(data[begin : begin + 400])
        connection.tls.outgoing()


def _tls_seeds() -> list[bytes]:
    client = TlsSession(_credentials().client_context, server_side=False)
    client.feed_untrusted(b"")
    return [client.outgoing()]


def _steward(data: bytes) -> None:
    """A member asks whoever is not the leader, and the leader, for whatever it likes; it is answered in any case."""
    request = plain_data(data)
    if not isinstance(request, list):
        return
    for leads in (False, True):
        sent: list[Any] = []
        steward = _asked_steward(leads, sent)
        steward.take_request_untrusted("b", {"type": "member_request", "round": 3, "request": request})
        assert len(sent) == 1


def _asked_steward(leads: bool, sent: list[Any]) -> MembershipExecutor:
    def send(*said: Any) -> bool:
        sent.append(said)
        return True

    return MembershipExecutor("a", lambda: cast(RaftCore, _FakeRaft(leads)), send, lambda: None, 1.0)


class _FakeRaft:
    """Answers as `RaftCore` does: with nothing, or ChangeRefused."""

    configuration = MEMBERS

    def __init__(self, leads: bool) -> None:
        self._leads = leads

    def is_leader(self) -> bool:
        return self._leads

    def transfer_leadership(self, to: str | None = None) -> None:
        if not self._leads:
            raise ChangeRefused("not_leader", "another one leads")

    def propose_change(self, change: object) -> None:
        if not self._leads:
            raise ChangeRefused("not_leader", "another one leads")
        raise ChangeRefused("is_leader", "it is the leader itself")


# --- commands and states ----------------------------------------------------------------------------------------------


def _entry(data: bytes) -> None:
    """Whatever stands in the log: no member may stop at it."""
    machine = _no_procedures()
    machine.apply_entry(data)
    machine.apply(data)
    machine.digest()


def _entry_seeds() -> list[bytes]:
    good = [
        encode_command(Command("tree.put", {"path": ["a", "b"], "data": {"x": [1]}}, "c", 1)),
        encode_command(Command("tree.get_many", {"pattern": pattern_to_data(("a", ANY_NAME))}, "c", 2)),
        encode_command(Command("tree.delete_many", {"pattern": pattern_to_data((ANY_DEPTH,))}, "c", 3)),
    ]
    return [*good, encode_entry(good), encode(["x", None, "", -1])]


def _state(data: bytes) -> None:
    loader = StateLoader()
    chunks = plain_data(data)
    if not isinstance(chunks, list):
        return
    for chunk in chunks:
        loader.take_untrusted(chunk)
    _no_procedures().install(loader.finish())


def _whole_state(data: bytes) -> None:
    loader = StateLoader()
    loader.take_whole_untrusted(plain_data(data))
    _no_procedures().install(loader.finish())


def _snapshot(data: bytes) -> None:
    """As the member reads its own, and as it comes from the leader."""
    file = SnapshotFile(FilePath("/member/snapshot"), "i", SimulatedDisk())
    file.take_piece_untrusted(data[:100], True, False, newer_than=0)
    file.take_piece_untrusted(data[100:], False, True, newer_than=0)
    reader = SnapshotReader("i")
    for begin in range(0, len(data), 1000):
        reader.take_untrusted(data[begin : begin + 1000])
    reader.finish()


def _snapshot_chunk(data: bytes) -> None:
    """A chunk with a checksum that fits: what a leader with bad intentions could send."""
    import zlib

    head = to_cbor(["i", [b"p", 4, 1], [b"l", 5, 1]])
    reader = SnapshotReader("i")
    reader.take_untrusted(_magic())
    for chunk in (head, to_cbor(_chunks()[0]), data):
        reader.take_untrusted(len(chunk).to_bytes(4, "big") + zlib.crc32(chunk).to_bytes(4, "big") + chunk)


@functools.cache
def _written() -> bytes:
    return write(machine_with(3), SimulatedDisk())


def _magic() -> bytes:
    from batonpass.tree.disk import snapshot

    return snapshot._MAGIC_2


def _adopt(data: bytes) -> None:
    for anew in (False, True):
        _no_procedures().adopt_registrations_untrusted(data, anew=anew)


def _sessions(data: bytes) -> None:
    sessions = ClientSessions()
    sessions.add_untrusted(plain_data(data))
    sessions.of("c").remember(5, b"answer")


def _session_rows() -> list[Any]:
    return [rows for kind, rows in _chunks() if kind == "sessions"]


def _tree_rows() -> list[Any]:
    return [rows for kind, rows in _chunks() if kind == "tree"]


def _payload_seeds() -> list[bytes]:
    return [encode_payload({"a": 1}) or b"", encode_payload(StoredProcedure("p")) or b""]


EXPORT: list[Any] = [
    {"format": EXPORT_FORMAT, "version": FORMAT_VERSION, "revision": 4, "pattern": pattern_to_data((ANY_DEPTH,))},
    {"path": ["a"], "made_on_the_way": True},
    {"path": ["a", "b"], "data": {"x": 1}, "keep_while": [[["a"], CONDITION.to_data()]]},
    {"path": ["p"], "procedure": "some.procedure"},
    {"end": True, "nodes": 3},
]


# --- as JSON ----------------------------------------------------------------------------------------------------------


def _json_form(data: bytes) -> None:
    value = from_json_untrusted(from_json(data))
    to_json_form(value)


TRIGGER: dict[str, Any] = {"id": "t", "pattern": ["a"], "procedure_path": ["p"], "kinds": ["created"], "priority": 1}
FIRED: list[Any] = [1, "t", "p", 3, "created", ["a"], 1, 0]
TRIGGERS: dict[str, Any] = {"triggers": [TRIGGER], "pending": [FIRED], "missed": {"t": 1}, "next_number": 2}
PROJECTIONS: list[Any] = [["names", ["a", "b"]]]

TARGETS = [
    Target(
        "tree-data",
        decode_untrusted,
        ["batonpass.tree.data.data:decode_untrusted"],
        cbor_seeds({"a": [1, b"x", None, 1.5]}),
        (BadData,),
        plain="cbor",
    ),
    Target(
        "tree-array",
        decode_array_untrusted,
        ["batonpass.tree.data.data:decode_array_untrusted"],
        cbor_seeds([1, {2: 3}]),
        (BadData,),
        plain="cbor",
    ),
    Target(
        "tree-frames",
        _frame_stream,
        ["batonpass.tree.net.frames:FrameBuffer.next_untrusted"],
        lambda: [encode_frame(["x"]) * 3, b"\xff" * 9],
        (MalformedFrame,),
    ),
    Target(
        "tree-greeting",
        _greeting,
        [
            "batonpass.tree.net.frames:decode_greeting_untrusted",
            "batonpass.tree.net.frames:decode_verdict_untrusted",
            "batonpass.tree.net.frames:decode_hint_untrusted",
            "batonpass.tree.net.membership:Configuration.from_data_untrusted",
        ],
        lambda: [
            to_cbor(Greeting("homeserver", "alpha", "a", 2).to_data()),
            to_cbor(GreetingVerdict("code", "sentence").to_data()),
            encode_hint(MEMBERS)[4:],
        ],
        plain="cbor",
    ),
    Target(
        "tree-message",
        decode_message_untrusted,
        ["batonpass.tree.net.frames:decode_message_untrusted"],
        _message_seeds,
        (MalformedFrame,),
        plain="cbor",
    ),
    Target(
        "tree-tls",
        _tls,
        [
            "batonpass.tree.net.tls:TlsSession.feed_untrusted",
            "batonpass.tree.net.transport:_Connection.decrypted_untrusted",
        ],
        _tls_seeds,
        (TlsFailed,),
        slow=True,
    ),
    Target(
        "tree-steward",
        _steward,
        [
            "batonpass.tree.member.membership_executor:MembershipExecutor.take_request_untrusted",
            "batonpass.tree.member.membership_executor:MembershipExecutor._decide_untrusted",
            "batonpass.tree.net.membership:change_from_data_untrusted",
        ],
        cbor_seeds(Admit(Member("d", "127.0.0.1", 7009)).to_data(), ["dismiss", "c"], ["transfer", "b"]),
        plain="cbor",
    ),
    Target(
        "tree-change",
        _plain(change_from_data_untrusted),
        [],
        cbor_seeds(Admit(Member("d", "127.0.0.1", 7009), "c").to_data()),
        (BadData,),
        plain="cbor",
    ),
    Target(
        "tree-seats",
        decode_seats_untrusted,
        ["batonpass.tree.net.membership:decode_seats_untrusted"],
        lambda: [encode(MEMBERS.to_data()["members"])],
        (BadData,),
        plain="cbor",
    ),
    Target(
        "tree-command",
        decode_command_untrusted,
        ["batonpass.tree.machine.commands:decode_command_untrusted"],
        _entry_seeds,
        (MalformedCommand,),
        plain="cbor",
    ),
    Target(
        "tree-entry",
        _entry,
        ["batonpass.tree.machine.commands:_decode_entry_untrusted"],
        _entry_seeds,
        plain="cbor",
        slow=True,
    ),
    Target(
        "tree-registrations",
        _adopt,
        [
            "batonpass.tree.machine.commands:Machine.adopt_registrations_untrusted",
            "batonpass.tree.store.registrations:Registrations.read_untrusted",
            "batonpass.tree.store.projections:in_use_from_data_untrusted",
            "batonpass.tree.store.triggers:Triggers.from_data_untrusted",
            "batonpass.tree.store.triggers:Trigger.from_data_untrusted",
            "batonpass.tree.store.triggers:Fired.from_data_untrusted",
            "batonpass.tree.store.triggers:_path_untrusted",
            "batonpass.tree.store.triggers:_kinds_untrusted",
            "batonpass.tree.store.triggers:_priority_untrusted",
        ],
        lambda: [encode([TRIGGERS, PROJECTIONS]), _machine().registrations()],
        (BadData,),
        plain="cbor",
    ),
    Target("tree-trigger", _plain(Trigger.from_data_untrusted), [], cbor_seeds(TRIGGER), (BadData,), plain="cbor"),
    Target("tree-fired", _plain(Fired.from_data_untrusted), [], cbor_seeds(FIRED), (BadData,), plain="cbor"),
    Target("tree-triggers", _plain(Triggers.from_data_untrusted), [], cbor_seeds(TRIGGERS), (BadData,), plain="cbor"),
    Target(
        "tree-projections", _plain(in_use_from_data_untrusted), [], cbor_seeds(PROJECTIONS), (BadData,), plain="cbor"
    ),
    Target(
        "tree-condition",
        _plain(condition_from_data_untrusted),
        ["batonpass.tree.store.condition_reader:condition_from_data_untrusted"],
        cbor_seeds(CONDITION.to_data()),
        (BadData,),
        plain="cbor",
    ),
    Target(
        "tree-pattern",
        _plain(pattern_from_data_untrusted),
        ["batonpass.tree.store.pattern:pattern_from_data_untrusted"],
        cbor_seeds(pattern_to_data(("a", ANY_NAME, ANY_DEPTH)), ["a", CONDITION.to_data()]),
        (BadPath, BadData),
        plain="cbor",
    ),
    Target(
        "tree-keep-while",
        _plain(keep_while_from_data_untrusted),
        ["batonpass.tree.store.keep_while:keep_while_from_data_untrusted"],
        cbor_seeds([[["a"], CONDITION.to_data()]]),
        (BadData,),
        plain="cbor",
    ),
    Target(
        "tree-payload",
        check_payload_untrusted,
        ["batonpass.tree.data.payload:check_payload_untrusted"],
        _payload_seeds,
        (BadData,),
    ),
    Target(
        "tree-export",
        _plain(read_rows_untrusted),
        ["batonpass.tree.store.export:read_rows_untrusted", "batonpass.tree.store.export:_node_untrusted"],
        cbor_seeds(EXPORT),
        (BadData,),
        plain="cbor",
    ),
    Target(
        "tree-rows",
        _plain(lambda rows: TreeBuilder().add_untrusted(rows)),
        ["batonpass.tree.store.rows:TreeBuilder.add_untrusted"],
        lambda: list(map(to_cbor, _tree_rows())),
        (BadData,),
        plain="cbor",
    ),
    Target(
        "tree-sessions",
        _sessions,
        ["batonpass.tree.machine.sessions:ClientSessions.add_untrusted"],
        lambda: list(map(to_cbor, _session_rows())),
        (BadData,),
        plain="cbor",
    ),
    Target(
        "tree-state",
        _state,
        ["batonpass.tree.machine.state:StateLoader.take_untrusted"],
        lambda: [to_cbor(_chunks())],
        (BadData,),
        plain="cbor",
    ),
    Target(
        "tree-whole-state",
        _whole_state,
        ["batonpass.tree.machine.state:StateLoader.take_whole_untrusted"],
        lambda: [to_cbor(_machine().to_data())],
        (BadData,),
        plain="cbor",
    ),
    Target(
        "tree-snapshot",
        _snapshot,
        [
            "batonpass.tree.disk.snapshot:SnapshotReader.take_untrusted",
            "batonpass.tree.disk.snapshot:SnapshotFile.take_piece_untrusted",
        ],
        lambda: [_written()],
        (SnapshotDamaged,),
        slow=True,
    ),
    Target(
        "tree-snapshot-chunk",
        _snapshot_chunk,
        [],
        lambda: list(map(to_cbor, _chunks()[1:])),
        (SnapshotDamaged,),
        plain="cbor",
    ),
    Target(
        "json-form",
        _json_form,
        ["batonpass.tree.data.json_form:from_json_untrusted"],
        lambda: [b'{"$bytes": "AAE="}', b'{"$map": [["a", {"$float": "nan"}]]}', b'{"a": [1, {"b": null}]}'],
        (BadData,),
        plain="json",
    ),
]
