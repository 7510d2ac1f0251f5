"""The tree in etcd: its answers, rows and watches, as whoever may write into that etcd could make them."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from batonpass.tree.data.data import encode
from batonpass.tree.data.errors import BadData
from batonpass.tree.data.payload import encode_payload
from batonpass.tree.etcd import wire
from batonpass.tree.etcd.answers import Answers
from batonpass.tree.etcd.keys import EtcdKeys
from batonpass.tree.etcd.mirror import FORMAT, Damaged, Limits, Loading, Mirror
from batonpass.tree.etcd.mirrored_store import MirroredStore
from tests.fuzz.plain import to_json
from tests.fuzz.target import Target
from tests.fuzz.targets.tree_data import cbor_seeds, plain_data

KEYS = EtcdKeys("/batonpass", "homeserver", "alpha")


def _row(payload: Any = 1) -> bytes:
    return encode([encode_payload(payload), 1, 1, False])


def _items(data: bytes) -> Iterator[wire.KeyValue]:
    """[[which key, suffix, value], ...]: keys below the instance's prefix, and others."""
    rows = plain_data(data)
    if not isinstance(rows, list):
        return
    prefixes = (KEYS.prefix + b"node/", KEYS.prefix + b"answer/", KEYS.registrations, KEYS.guard, KEYS.prefix, b"")
    for revision, row in enumerate(rows, 1):
        match row:
            case [int(which), bytes(suffix), bytes() | None as value]:
                yield wire.KeyValue(prefixes[which % len(prefixes)] + suffix, value, revision)
            case _:
                return


ETCD_ROWS: list[Any] = [
    [3, b"", encode([FORMAT, 7])], [0, b"", _row()], [0, b"a/", _row()], [0, b"a/b/", _row({"x": 1})],
    [1, b"client/0000000000000000001", encode([0, [[1, b"answer"]]])],
]  # fmt: skip


def _mirror() -> Mirror:
    return Mirror(KEYS, {}, Limits(128, 1_572_864), {})


def _etcd_loading(data: bytes) -> None:
    loading = Loading(KEYS)
    loading.add_untrusted(_items(data))
    _mirror().become(loading)


def _etcd_mirror(data: bytes) -> None:
    mirror = _mirror()
    loading = Loading(KEYS)
    loading.add_untrusted([wire.KeyValue(KEYS.guard, encode([FORMAT, 7]), 1), wire.KeyValue(KEYS.node(()), _row(), 1)])
    mirror.become(loading)
    mirror.take_untrusted(_items(data), 9)


def _etcd_row(data: bytes) -> None:
    store = MirroredStore()
    store.add_row_untrusted((), _row())
    store.add_row_untrusted(("a",), data)
    store.take_rows_untrusted({("a",): None, ("b",): data}, 9)


def _etcd_answers(data: bytes) -> None:
    answers = Answers(KEYS)
    answers.take_untrusted("client", 1, data, 5)
    answers.take_untrusted("client", 1, None, 6)


def _etcd_wire(data: bytes) -> None:
    """One body, read as each of the answers that there are."""
    readers: list[Callable[[bytes], object]] = [
        wire.read_range_untrusted, wire.read_txn_untrusted, wire.read_leader_untrusted, wire.read_members_untrusted,
        wire.read_lease_untrusted, wire.read_token_untrusted, wire.read_watch_untrusted,
    ]  # fmt: skip
    for read in readers:
        with suppress(wire.MalformedAnswer):
            read(data)
    wire.read_failure_untrusted(503, data)


def _etcd_wire_seeds() -> list[bytes]:
    header = {"cluster_id": "1", "member_id": "2", "revision": "7", "raft_term": "3"}
    item = {"key": "YQ==", "value": "Yg==", "mod_revision": "5"}
    event = {"type": "DELETE", "kv": item}
    answers: list[dict[str, Any]] = [
        {"header": header, "kvs": [item], "more": True},
        {"header": header, "succeeded": True},
        {"leader": "5", "raftTerm": "3"},
        {"members": [{"ID": "5", "name": "m", "clientURLs": ["http://127.0.0.1:1"]}]},
        {"result": {"ID": "5", "TTL": "10"}},
        {"token": "abc"},
        {"result": {"header": header, "events": [event], "created": True, "compact_revision": "2"}},
        {"error": {"message": "no", "code": 5}},
    ]
    return [to_json(answer) for answer in answers]


def _etcd_lines(data: bytes) -> None:
    lines = wire.Lines(1000)
    for begin in range(0, len(data), 300):
        lines.receive_untrusted(data[begin : begin + 300])
        assert lines._held_bytes <= 1000


TARGETS = [
    Target(
        "etcd-loading",
        _etcd_loading,
        [
            "batonpass.tree.etcd.mirror:Changes.add_untrusted",
            "batonpass.tree.etcd.mirror:Loading.add_untrusted",
            "batonpass.tree.etcd.mirror:Loading._add_row_untrusted",
            "batonpass.tree.etcd.mirror:_read_guard_untrusted",
        ],
        cbor_seeds(ETCD_ROWS),
        (Damaged,),
        plain="cbor",
    ),
    Target(
        "etcd-mirror",
        _etcd_mirror,
        ["batonpass.tree.etcd.mirror:Mirror.take_untrusted"],
        cbor_seeds([ETCD_ROWS[0], *ETCD_ROWS[2:]]),
        (Damaged,),
        plain="cbor",
    ),
    Target(
        "etcd-row",
        _etcd_row,
        [
            "batonpass.tree.etcd.mirrored_store:MirroredStore.take_rows_untrusted",
            "batonpass.tree.etcd.mirrored_store:MirroredStore.add_row_untrusted",
            "batonpass.tree.etcd.mirrored_store:_read_row_untrusted",
        ],
        lambda: [_row(), _row([1, {"x": b"y"}])],
        (BadData,),
        plain="cbor",
    ),
    Target(
        "etcd-answers",
        _etcd_answers,
        ["batonpass.tree.etcd.answers:Answers.take_untrusted", "batonpass.tree.etcd.answers:_read_chunk_untrusted"],
        cbor_seeds([0, [[1, b"answer"], [2, b"other"]]]),
        (BadData,),
        plain="cbor",
    ),
    Target(
        "etcd-wire",
        _etcd_wire,
        [
            "batonpass.tree.etcd.wire:read_range_untrusted",
            "batonpass.tree.etcd.wire:read_txn_untrusted",
            "batonpass.tree.etcd.wire:read_leader_untrusted",
            "batonpass.tree.etcd.wire:read_members_untrusted",
            "batonpass.tree.etcd.wire:read_lease_untrusted",
            "batonpass.tree.etcd.wire:read_token_untrusted",
            "batonpass.tree.etcd.wire:read_watch_untrusted",
            "batonpass.tree.etcd.wire:read_failure_untrusted",
            "batonpass.tree.etcd.wire:_json_untrusted",
        ],
        _etcd_wire_seeds,
        plain="json",
    ),
    Target(
        "etcd-lines",
        _etcd_lines,
        ["batonpass.tree.etcd.wire:Lines.receive_untrusted"],
        lambda: [b'{"a":1}\n\n{"b":2}\n{"c"'],
        (wire.MalformedAnswer,),
    ),
]
