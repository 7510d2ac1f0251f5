"""Snapshots: whole or refused, written and read in slices, and of one moment whatever happens meanwhile."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from batonpass.scenarios.simulation.tree.disk import SimulatedDisk
from batonpass.tree.data.data import decode, encode
from batonpass.tree.data.errors import Abort, BadData
from batonpass.tree.data.path import Path as TreePath
from batonpass.tree.data.payload import NO_PAYLOAD
from batonpass.tree.disk.journal import Entry
from batonpass.tree.disk.snapshot import Snapshot, SnapshotDamaged, SnapshotFile, SnapshotReader
from batonpass.tree.machine.commands import Command, Machine, encode_command
from batonpass.tree.machine.state import FrozenState, StateLoader
from batonpass.tree.store.conditions import IfNodeExists
from batonpass.tree.store.pattern import ANY_NAME, Pattern
from batonpass.tree.store.rows import FrozenTree, TreeBuilder
from batonpass.tree.store.store import Store
from tests.tree.strategies import close_paths, few_values

FILE = Path("/member/snapshot")
PREVIOUS: Entry = (b"previous", 4, 1)
LAST: Entry = (b"last", 5, 1)


def machine_with(nodes: int, *, payload: bytes = b"x" * 30) -> Machine:
    machine = Machine({})
    for number in range(nodes):
        put(machine, number, ["some", f"part {number % 7}", f"node {number}"], payload)
    return machine


def put(machine: Machine, number: int, path: list[str], data: Any) -> None:
    machine.apply(encode_command(Command("tree.put", {"path": path, "data": data}, f"client {number % 3}", number)))


def chunks(frozen: FrozenState, rows: int = 10) -> list[Any]:
    found = []
    while (chunk := frozen.next_chunk(rows)) is not None:
        found.append(chunk)
    return found


def loaded(found: list[Any]) -> Machine:
    loader = StateLoader()
    for chunk in found:
        loader.take_untrusted(decode(cbor2.dumps(chunk)))
    machine = Machine({})
    machine.install(loader.finish())
    return machine


def write(machine: Machine, disk: SimulatedDisk, *, last: Entry = LAST, owner: str = "i") -> bytes:
    """Write a snapshot of the machine; the bytes of the file."""
    file = SnapshotFile(FILE, owner, disk)
    writer = file.begin((PREVIOUS[0], last[1] - 1, 1), last)
    frozen = machine.freeze()
    for chunk in chunks(frozen):
        writer.append(chunk)
    machine.thaw(frozen)
    writer.finish()
    file.commit(writer)
    handle = disk.open(FILE)
    return handle.read(0, handle.size())


def read(encoded: bytes, owner: str = "i", piece: int = 1 << 20) -> Snapshot:
    reader = SnapshotReader(owner)
    for begin in range(0, len(encoded), piece):
        reader.take_untrusted(encoded[begin : begin + piece])
    return reader.finish()


# --- a view of one moment -----------------------------------------------------------------------------------------


def sorted_rows(rows: list[Any]) -> list[Any]:
    """The rows in the order of `Store.to_data`: a frozen view gives siblings in any order."""
    builder = TreeBuilder()
    builder.add_untrusted(rows)
    store = Store()
    store.install(builder.finish(), 0)
    return store.to_data()


class FrozenAgainstCopy(RuleBasedStateMachine):
    """Any changes between any slices of a frozen view leave it what a copy of that moment is."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.frozen: Any = None

    @rule(path=close_paths, value=few_values)
    def put(self, path: TreePath, value: Any) -> None:
        self.store.put(path, value)

    @rule(path=close_paths)
    def delete(self, path: TreePath) -> None:
        self.store.delete(path)

    @rule(path=close_paths)
    def make(self, path: TreePath) -> None:
        """A parent made on the way stays from now on."""
        self.store.put(path, NO_PAYLOAD)

    @rule(path=close_paths)
    def clear(self, path: TreePath) -> None:
        self.store.clear_payload(path)

    @rule(path=close_paths, value=few_values, way=st.sampled_from(["put", "update", "clear", "delete"]))
    def many(self, path: TreePath, value: Any, way: str) -> None:
        pattern: Pattern = (*path, ANY_NAME)
        match way:
            case "put":
                self.store.put_many((*pattern, "end"), value)
            case "update":
                self.store.update_many(pattern, value)
            case "clear":
                self.store.clear_many_payloads(pattern)
            case _:
                self.store.delete_many(pattern)

    @rule(path=close_paths)
    def no_longer_kept(self, path: TreePath) -> None:
        if path and self.store.exists(path):
            self.store.put(path, 0, keep_while=[])

    @rule(path=close_paths, other=close_paths)
    def mirror(self, path: TreePath, other: TreePath) -> None:
        """As mirrors of a tree do: a row of one node becomes that of another, or there is none any more."""
        if path and other and self.store.exists(path[:-1]):
            self.store.adopt([(path, self.store.row(other))], self.store.revision + 1)

    @rule(path=close_paths, watched=close_paths, value=few_values)
    def put_kept(self, path: TreePath, watched: TreePath, value: Any) -> None:
        if path and watched and self.store.exists(watched):
            self.store.put(path, value, keep_while=[(watched, IfNodeExists(True))])

    @rule(paths=st.lists(close_paths, max_size=3), value=few_values, keep=st.booleans())
    def transact(self, paths: list[TreePath], value: Any, keep: bool) -> None:
        try:
            with self.store.transaction() as transaction:
                for path in paths:
                    transaction.delete(path)
                    transaction.put(path, value)
                if not keep:
                    raise Abort("changed_its_mind")
        except Abort:
            pass

    @precondition(lambda self: self.frozen is None)
    @rule()
    def freeze(self) -> None:
        self.expected = self.store.to_data()
        frozen: FrozenTree = self.store.freeze()
        assert frozen.node_count == self.store.count_below(())
        self.frozen = frozen.rows()
        self.rows: list[Any] = []

    @precondition(lambda self: self.frozen is not None)
    @rule(count=st.integers(1, 6))
    def read(self, count: int) -> None:
        for _ in range(count):
            row = next(self.frozen, None)
            if row is None:
                self.store.thaw()
                self.frozen = None
                assert sorted_rows(self.rows) == self.expected
                return
            self.rows.append(row)

    def teardown(self) -> None:
        while self.frozen is not None:
            self.read(6)


TestFrozenAgainstCopy = FrozenAgainstCopy.TestCase
TestFrozenAgainstCopy.settings = settings(stateful_step_count=60)


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.put(("a",), NO_PAYLOAD),
        lambda store: store.put(("a",), NO_PAYLOAD, keep_while=[(("x",), IfNodeExists(True))]),
        lambda store: store.put(("x",), 1, keep_while=[(("a",), IfNodeExists(True))]),
        lambda store: store.put(("x",), 2),
        lambda store: store.clear_payload(("x",)),
        lambda store: store.put(("a", "c"), 1),
        lambda store: store.delete(("a", "b")),
        lambda store: store.delete(()),
        lambda store: store.adopt([(("a",), store.row(("x",)))], 9),
        lambda store: store.adopt([(("x",), None)], 9),
        lambda store: store.adopt([((), [b"\x01", 7, 7, False])], 9),
    ],
)
def test_each_change_of_a_node_leaves_the_frozen_view_alone(change: Callable[[Store], object]) -> None:
    """The search above finds these seldom: the change must be the first one that touches its node."""
    store = Store()
    store.put(("x",), 1)
    store.put(("a", "b"), 1)
    expected = store.to_data()
    rows = store.freeze().rows()
    change(store)
    assert store.to_data() != expected
    assert sorted_rows(list(rows)) == expected


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=40), st.integers(1, 9))
def test_a_frozen_machine_is_what_it_was_when_it_was_frozen(commands: list[tuple[int, int]], slice_rows: int) -> None:
    machine = machine_with(12)
    digest = machine.digest()
    frozen = machine.freeze()
    found = []
    pending = list(commands)
    while (chunk := frozen.next_chunk(slice_rows)) is not None:
        found.append(chunk)
        if pending:
            number, target = pending.pop()
            put(machine, 100 + number, ["some", f"part {target % 7}", f"node {target}"], number)
    machine.thaw(frozen)
    assert loaded(found).digest() == digest


def test_a_machine_is_frozen_once_at_a_time_and_not_within_a_transaction() -> None:
    machine = machine_with(1)
    frozen = machine.freeze()
    with pytest.raises(RuntimeError, match="twice"):
        machine.freeze()
    machine.thaw(frozen)
    with machine.store.transaction(), pytest.raises(RuntimeError, match="transaction"):
        machine.freeze()


def test_a_chunk_ends_where_it_gets_large() -> None:
    machine = machine_with(20, payload=b"x" * 60_000)
    frozen = machine.freeze()
    sizes = [len(chunk[1]) for chunk in chunks(frozen, rows=1000) if chunk[0] == "tree"]
    assert len(sizes) > 5
    assert max(sizes) <= 6


def test_the_revision_and_the_configuration_are_part_of_the_state() -> None:
    machine = machine_with(5)
    machine.configuration = {"members": ["h1"]}
    restored = loaded(chunks(machine.freeze()))
    assert restored.store.revision == machine.store.revision == 5
    assert restored.configuration == {"members": ["h1"]}
    assert restored.answer_to("client 1", 1) == machine.answer_to("client 1", 1) is not None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda found: found[1:],
        lambda found: found[:1] + found[2:],
        lambda found: [found[0], *found],
        lambda found: [*found, ["surprise", []]],
        lambda found: [*found, "surprise"],
        lambda found: [*found, ["tree", [[9, "deep", None, 1, 1, False]]]],
        lambda found: [*found, ["tree", [[1, "some", None, 1, 1, False]]]],
        lambda found: [*found, ["tree", [[1, "", None, 1, 1, False]]]],
        lambda found: [*found, ["tree", [[1, "x", "text", 1, 1, False]]]],
        lambda found: [*found, ["tree", [[1, "x"]]]],
        lambda found: [*found, ["tree", [7]]],
        lambda found: [*found, ["tree", 7]],
        lambda found: [*found, found[-1]],
        lambda found: [*found, ["sessions", [["c", [0]]]]],
        lambda found: [*found, ["sessions", [["c", [0, [[1, "text"]]]]]]],
        lambda found: [*found, ["sessions", [["c", [0, [1]]]]]],
        lambda found: [*found, ["sessions", [[7, [0, []]]]]],
        lambda found: [*found, ["sessions", [7]]],
        lambda found: [*found, ["sessions", 7]],
        lambda found: [["machine", {**found[0][1], "format": 99}], *found[1:]],
        lambda found: [["machine", {**found[0][1], "nodes": 3}], *found[1:]],
    ],
)
def test_chunks_that_make_no_state_are_refused(spoil: Any) -> None:
    found = spoil(chunks(machine_with(5).freeze()))
    with pytest.raises(BadData):
        loaded(found)


# --- files --------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_read_back() -> None:
    machine, disk = machine_with(50), SimulatedDisk()
    write(machine, disk)
    snapshot = SnapshotFile(FILE, "i", disk).load()
    assert snapshot is not None
    assert (snapshot.previous, snapshot.last) == (PREVIOUS, LAST)
    restored = Machine({})
    restored.install(snapshot.state)
    assert restored.digest() == machine.digest()


def test_a_snapshot_of_format_1_is_read() -> None:
    machine = machine_with(5)
    state = {"format": 1, "store": machine.to_data()["store"], "sessions": machine.to_data()["sessions"]}
    for whole in (state, machine.to_data()):
        body = b"batonpass snapshot 1\n" + cbor2.dumps(["i", PREVIOUS, LAST, whole])
        encoded = body + hashlib.sha256(body).digest()
        restored = Machine({})
        restored.install(read(encoded, piece=100).state)
        assert restored.store.digest() == machine.store.digest()
        assert restored.answer_to("client 1", 1) == machine.answer_to("client 1", 1)
        with pytest.raises(SnapshotDamaged, match="checksum"):
            read(encoded[:-1] + bytes([encoded[-1] ^ 1]))
    for spoiled in ([*[0] * 3, {}], ["i", PREVIOUS, LAST, {"format": 9}], 7):
        body = b"batonpass snapshot 1\n" + cbor2.dumps(spoiled)
        with pytest.raises(SnapshotDamaged):
            read(body + hashlib.sha256(body).digest())


@given(st.data(), st.integers(1, 400))
def test_a_snapshot_with_any_bit_flipped_or_any_byte_missing_is_refused(data: Any, piece: int) -> None:
    encoded = write(machine_with(4), SimulatedDisk())
    position = data.draw(st.integers(0, len(encoded) - 1))
    flipped = bytearray(encoded)
    flipped[position] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (bytes(flipped), encoded[:position], encoded + b"more"):
        with pytest.raises(SnapshotDamaged):
            read(damaged, piece=piece)


@given(st.binary(max_size=300))
def test_bytes_that_are_no_snapshot_are_refused(noise: bytes) -> None:
    for encoded in (noise, b"batonpass snapshot 2\n" + noise):
        with pytest.raises(SnapshotDamaged):
            read(encoded)


def test_the_snapshot_of_another_instance_is_refused() -> None:
    encoded = write(machine_with(1), SimulatedDisk(), owner="homeserver/beta")
    with pytest.raises(SnapshotDamaged, match="belongs to 'homeserver/beta'"):
        read(encoded, owner="homeserver/alpha")


def test_a_damaged_snapshot_stops_the_member_with_its_name() -> None:
    disk = SimulatedDisk()
    write(machine_with(1), disk)
    disk.scribble(FILE, 60, b"nonsense")
    with pytest.raises(SnapshotDamaged, match=r"/member/snapshot: .* Check the disk; then remove this member"):
        SnapshotFile(FILE, "i", disk).load()


# --- from member to member ----------------------------------------------------------------------------------------


def pieces(file: SnapshotFile, member: str) -> list[tuple[bytes, bool, bool]]:
    found = []
    while (piece := file.next_piece(member)) is not None:
        found.append(piece)
        if piece[2]:
            break
    return found


def test_a_snapshot_arrives_in_pieces_and_is_durable_when_it_is_taken() -> None:
    machine, source, target = machine_with(40, payload=b"x" * 20_000), SimulatedDisk(), SimulatedDisk()
    assert SnapshotFile(FILE, "i", source).next_piece("h1") is None
    write(machine, source)
    sender, receiver = SnapshotFile(FILE, "i", source), SnapshotFile(FILE, "i", target)
    sent = pieces(sender, "h1")
    assert len(sent) > 10
    taken = [receiver.take_piece_untrusted(*piece, newer_than=4) for piece in sent]
    assert taken[:-1] == [None] * (len(taken) - 1)
    received = taken[-1]
    assert received is not None
    restored = Machine({})
    restored.install(received.state)
    assert restored.digest() == machine.digest()
    target.crash(None)
    again = SnapshotFile(FILE, "i", target).load()
    assert again is not None
    assert again.last == LAST


def test_a_member_goes_on_receiving_the_file_that_it_began_with() -> None:
    disk = SimulatedDisk()
    first = write(machine_with(40, payload=b"x" * 5000), disk)
    sender = SnapshotFile(FILE, "i", disk)
    begun = sender.next_piece("h1")
    assert begun is not None
    write(machine_with(1), disk, last=(b"later", 9, 1))
    assert b"".join(piece for piece, _, _ in [begun, *pieces(sender, "h1")]) == first


@pytest.mark.parametrize("newer_than", [5, 6])
def test_a_late_snapshot_never_moves_the_state_back(newer_than: int) -> None:
    source, target = SimulatedDisk(), SimulatedDisk()
    write(machine_with(3), source)
    receiver = SnapshotFile(FILE, "i", target)
    for piece in pieces(SnapshotFile(FILE, "i", source), "h1"):
        assert receiver.take_piece_untrusted(*piece, newer_than=newer_than) is None
    assert receiver.load() is None


def test_a_snapshot_that_got_late_on_the_way_is_not_taken() -> None:
    source, target = SimulatedDisk(), SimulatedDisk()
    write(machine_with(3), source)
    receiver = SnapshotFile(FILE, "i", target)
    first, last = pieces(SnapshotFile(FILE, "i", source), "h1")
    assert receiver.take_piece_untrusted(*first, newer_than=4) is None
    assert receiver.take_piece_untrusted(*last, newer_than=5) is None
    assert receiver.load() is None


def test_pieces_that_miss_their_beginning_or_do_not_fit_are_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    source, target = SimulatedDisk(), SimulatedDisk()
    write(machine_with(3), source)
    receiver = SnapshotFile(FILE, "i", target)
    (data, _, _), _ = pieces(SnapshotFile(FILE, "i", source), "h1")
    assert receiver.take_piece_untrusted(data, False, True, newer_than=0) is None
    assert receiver.take_piece_untrusted(data[:-1], True, True, newer_than=0) is None
    assert "not taken" in caplog.text
    assert receiver.load() is None
    receiver.close()


def test_whoever_encodes_a_state_in_one_piece_gets_the_same_digest() -> None:
    machine, restored = machine_with(9), Machine({})
    restored.restore(decode(encode(machine.to_data())))
    assert restored.digest() == machine.digest()
