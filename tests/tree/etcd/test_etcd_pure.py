"""The parts of the etcd backend that know no network: keys, the gateway's JSON, and the memory of answers."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.tree import BadData, BadPath
from batonpass.tree.etcd.answers import MAX_ANSWERS, MAX_CHUNK_ANSWERS, MAX_CLIENT_BYTES, Answers
from batonpass.tree.etcd.keys import EtcdKeys, prefix_end
from batonpass.tree.etcd.wire import (
    Delete,
    EtcdCompare,
    EtcdPut,
    Lines,
    MalformedAnswer,
    Operation,
    cost_bytes,
    read_failure_untrusted,
    read_leader_untrusted,
    read_lease_untrusted,
    read_members_untrusted,
    read_range_untrusted,
    read_token_untrusted,
    read_txn_untrusted,
    read_watch_untrusted,
    request_authenticate,
    request_for_lease,
    request_lease,
    request_range,
    request_txn,
    request_watch,
)
from tests.tree.strategies import paths

KEYS = EtcdKeys("/batonpass", "homeserver", "alpha")
HEADER = {"cluster_id": "1", "member_id": "2", "revision": "3", "raft_term": "4"}


def text(raw: bytes) -> str:
    return b64encode(raw).decode()


# --- keys ---------------------------------------------------------------------------------------------------------


@given(paths)
def test_the_key_of_a_node_tells_its_path(path: tuple[str, ...]) -> None:
    assert KEYS.read_node(KEYS.node(path)) == path


@given(paths, paths)
def test_a_range_of_keys_is_a_subtree_and_parents_sort_first(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    key = KEYS.node(one)
    below = other[: len(one)] == one
    assert (key <= KEYS.node(other) < prefix_end(key)) is below


def test_keys_are_readable_and_escape_only_what_they_must() -> None:
    assert (
        KEYS.node(("entities", "e 1", "a/b%", "ü"))
        == "/batonpass/homeserver/alpha/node/entities/e 1/a%2Fb%25/ü/".encode()
    )
    assert KEYS.node(()) == b"/batonpass/homeserver/alpha/node/"
    assert KEYS.answers("h1/00ff", 7) == b"/batonpass/homeserver/alpha/answer/h1%2F00ff/0000000000000000007"


def test_other_keys_are_told_apart() -> None:
    assert KEYS.read_answers(KEYS.answers("h1/00ff", 7)) == ("h1/00ff", 7)
    assert KEYS.read_node(KEYS.guard) is None
    for key in (KEYS.guard, KEYS.answers_of("x"), KEYS.prefix + b"answer/x/y", KEYS.prefix + b"answer/\xff/1"):
        assert KEYS.read_answers(key) is None


@pytest.mark.parametrize("rest", [b"a", b"a//", b"\xff/", b"%41/", b"a%2f/", b"/"])
def test_a_key_that_no_node_has_is_refused(rest: bytes) -> None:
    with pytest.raises(BadPath):
        KEYS.read_node(KEYS.node(()) + rest)


def test_the_end_of_a_prefix() -> None:
    assert prefix_end(b"a/") == b"a0"
    assert prefix_end(b"a\xff") == b"b"
    with pytest.raises(ValueError, match="no end"):
        prefix_end(b"\xff")


# --- the gateway's JSON -------------------------------------------------------------------------------------------


def test_requests_are_what_the_gateway_documents() -> None:
    assert request_range(b"a", b"b", revision=5, limit=10, serializable=True) == {
        "key": text(b"a"),
        "range_end": text(b"b"),
        "revision": "5",
        "limit": "10",
        "serializable": True,
    }
    assert request_range(b"a") == {"key": text(b"a")}
    assert request_txn(EtcdCompare(b"g", 7), [EtcdPut(b"k", b"v"), Delete(b"k"), Delete(b"k", b"l")]) == {
        "compare": [{"key": text(b"g"), "target": "MOD", "result": "EQUAL", "mod_revision": "7"}],
        "success": [
            {"request_put": {"key": text(b"k"), "value": text(b"v")}},
            {"request_delete_range": {"key": text(b"k")}},
            {"request_delete_range": {"key": text(b"k"), "range_end": text(b"l")}},
        ],
    }
    assert request_watch(b"a", b"b", 9)["create_request"]["start_revision"] == "9"
    assert request_authenticate("u", "p") == {"name": "u", "password": "p"}


def test_the_size_of_an_operation_is_never_underestimated() -> None:
    # Protobuf's own: a tag and a length before each of key, value and operation, at most 6 bytes each.
    assert cost_bytes(EtcdPut(b"k" * 100, b"v" * 1000)) >= 1100 + 3 * 6
    assert cost_bytes(Delete(b"k" * 100, b"l" * 100)) >= 200 + 3 * 6
    assert cost_bytes(Delete(b"k" * 100)) >= 100 + 3 * 6


def test_what_is_zero_or_empty_is_left_out_of_answers() -> None:
    ranged = read_range_untrusted(json.dumps({"header": {}}).encode())
    assert (ranged.found, ranged.more, ranged.header.revision) == ((), False, 0)
    assert not read_txn_untrusted(json.dumps({"header": HEADER}).encode()).succeeded


def test_answers_are_read() -> None:
    body = {"header": HEADER, "kvs": [{"key": text(b"k"), "mod_revision": "2"}], "more": True, "count": "7"}
    ranged = read_range_untrusted(json.dumps(body).encode())
    (found,) = ranged.found
    assert (found.key, found.value, found.mod_revision, ranged.more) == (b"k", b"", 2, True)
    assert read_txn_untrusted(json.dumps({"header": HEADER, "succeeded": True}).encode()).succeeded
    assert read_token_untrusted(b'{"token": "abc.1"}') == "abc.1"


def test_leases_are_asked_for_and_read() -> None:
    assert request_lease(5) == {"TTL": "5"}
    assert request_for_lease(7) == {"ID": "7"}
    assert read_lease_untrusted(b'{"ID": "7", "TTL": "5"}') == (7, 5)
    assert read_lease_untrusted(b'{"result": {"ID": "7"}}') == (7, 0)
    (operation,) = request_txn(EtcdCompare(b"k", 0), [EtcdPut(b"k", b"v", 7)])["success"]
    assert operation["request_put"]["lease"] == "7"
    with pytest.raises(MalformedAnswer):
        read_lease_untrusted(b'{"result": []}')


def test_the_leader_and_the_members_are_read() -> None:
    assert read_leader_untrusted(b'{"leader": "7", "raftTerm": "2"}') == (7, 2)
    assert read_leader_untrusted(b"{}") == (0, 0)
    member = {"ID": "7", "name": "e0", "clientURLs": ["http://a:1", "http://b:1"]}
    assert read_members_untrusted(json.dumps({"members": [member, {"ID": "8"}]}).encode()) == {
        7: ("e0", "http://a:1"),
        8: ("", ""),
    }
    with pytest.raises(MalformedAnswer):
        read_members_untrusted(b'{"members": [1]}')


def test_messages_of_a_watch_are_read() -> None:
    put = {"kv": {"key": text(b"k"), "value": text(b"v"), "mod_revision": "2"}}
    delete = {"type": "DELETE", "kv": {"key": text(b"k"), "mod_revision": "3"}}
    line = json.dumps({"result": {"header": HEADER, "events": [put, delete], "fragment": True}}).encode()
    watched = read_watch_untrusted(line)
    assert [event.value for event in watched.events] == [b"v", None]
    assert watched.fragment
    cancelled = {"result": {"header": HEADER, "canceled": True, "compact_revision": "9", "cancel_reason": "so"}}
    watched = read_watch_untrusted(json.dumps(cancelled).encode())
    assert (watched.cancelled, watched.compacted, watched.reason) == (True, 9, "so")
    broken = read_watch_untrusted(b'{"error": {"grpc_code": 14, "message": "no leader"}}')
    assert (broken.cancelled, broken.reason) == (True, "no leader")


MALFORMED: tuple[Any, ...] = (
    [],
    {},
    {"header": []},
    {"header": {"revision": "-1"}},
    {"header": {"revision": "9" * 21}},
    {"header": {"revision": 1.5}},
    {"header": {}, "kvs": {}},
    {"header": {}, "kvs": [1]},
    {"header": {}, "kvs": [{"key": "no base64"}]},
    {"header": {}, "kvs": [{"key": 7}]},
    {"header": {}, "more": "yes"},
)


@pytest.mark.parametrize("body", MALFORMED, ids=str)
def test_other_answers_are_malformed(body: Any) -> None:
    with pytest.raises(MalformedAnswer):
        read_range_untrusted(json.dumps(body).encode())


@pytest.mark.parametrize(
    "line",
    [b"x", b"[" * 100_000, b'{"result": {"header": {}, "events": [{"type": "MOVE", "kv": {}}]}}', b'{"error": 1}'],
)
def test_other_messages_of_a_watch_are_malformed(line: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        read_watch_untrusted(line)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_malformed(body: bytes) -> None:
    read_failure_untrusted(500, body)
    for read in (read_range_untrusted, read_txn_untrusted, read_watch_untrusted, read_token_untrusted):
        with pytest.raises(MalformedAnswer):
            read(body)


def test_a_token_goes_into_a_header_and_must_be_fit_for_one() -> None:
    for token in ('"a\\nb"', "7", '"ü"'):
        with pytest.raises(MalformedAnswer):
            read_token_untrusted(b'{"token": ' + token.encode() + b"}")


def test_failures_carry_their_code_and_sentence() -> None:
    failure = read_failure_untrusted(400, b'{"error": "e", "message": "m", "code": 11}')
    assert (failure.code, failure.message) == (11, "m")
    assert read_failure_untrusted(502, b"<html>").code == 2
    assert read_failure_untrusted(502, b'{"error": "e", "code": "x"}').message == "e"
    assert read_failure_untrusted(502, b"{}").message == "no reason given"


@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda line: b"\n" not in line and line.strip())), st.data())
def test_lines_come_whole_however_they_were_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    decoder, received, at = Lines(), list[bytes](), 0
    while at < len(stream):
        size = data.draw(st.integers(1, 30))
        received += decoder.receive_untrusted(stream[at : at + size])
        at += size
    assert received == lines


def test_a_line_has_a_bound() -> None:
    decoder = Lines(max_bytes=10)
    decoder.receive_untrusted(b"12345\n123456")
    with pytest.raises(MalformedAnswer, match="longer than 10 bytes"):
        decoder.receive_untrusted(b"78901")


# --- the memory of answers ----------------------------------------------------------------------------------------


def perform(answers: Answers, operations: list[Operation], revision: int, rows: dict[bytes, bytes]) -> None:
    """Do what was planned, to the rows that stand for etcd and to the memory, as a watch would tell it."""
    foretold = {(client, first): value for client, first, value in answers.changed_by(operations)}
    touched: dict[bytes, bytes | None] = {}
    for operation in operations:
        match operation:
            case EtcdPut(key, written):
                touched[key] = written
            case Delete(key, end):
                touched |= {known: None for known in rows if key <= known < (end or key + b"\0")}
    assert {KEYS.read_answers(key): value for key, value in touched.items()} == foretold
    for key, value in touched.items():
        parsed = KEYS.read_answers(key)
        assert parsed is not None
        answers.take_untrusted(*parsed, value, revision)
        if value is None:
            del rows[key]
        else:
            rows[key] = value


def restored(rows: dict[bytes, bytes], revisions: dict[bytes, int] | None = None) -> Answers:
    """What another process reads from the same rows."""
    answers = Answers(KEYS)
    for key, value in sorted(rows.items()):
        parsed = KEYS.read_answers(key)
        assert parsed is not None
        answers.take_untrusted(*parsed, value, (revisions or {}).get(key, 1))
    answers.order_by_use()
    return answers


groups = st.lists(
    st.lists(st.tuples(st.sampled_from(["a", "b/1", "c"]), st.binary(max_size=40)), min_size=1, max_size=30),
    max_size=40,
)


@given(groups)
def test_every_process_remembers_the_same_answers(groups: list[list[tuple[str, bytes]]]) -> None:
    answers, rows, number = Answers(KEYS), dict[bytes, bytes](), 0
    given_answers: dict[tuple[str, int], bytes] = {}
    for revision, group in enumerate(groups, start=1):
        new = []
        for client, answer in group:
            number += 1
            new.append((client, number, answer))
            given_answers[client, number] = answer
        perform(answers, answers.plan(new), revision, rows)
    for (client, number), answer in given_answers.items():
        assert answers.remembered(client, number) == answer
        assert not answers.is_forgotten(client, number)
    assert restored(rows).to_data() == answers.to_data()


def test_small_chunks_are_written_again_so_that_keys_stay_few() -> None:
    answers, rows = Answers(KEYS), dict[bytes, bytes]()
    for number in range(10 * MAX_CHUNK_ANSWERS):
        perform(answers, answers.plan([("a", number, b"x")]), number, rows)
    assert len(rows) == 10


def test_of_a_client_the_lowest_numbers_are_forgotten_first_and_refused_ever_after() -> None:
    answers, rows = Answers(KEYS), dict[bytes, bytes]()
    for number in range(MAX_ANSWERS + 3 * MAX_CHUNK_ANSWERS):
        perform(answers, answers.plan([("a", number, b"x")]), number, rows)
    for memory in (answers, restored(rows)):
        assert memory.remembered("a", 0) is None
        assert memory.is_forgotten("a", 0)
        assert memory.remembered("a", MAX_ANSWERS) == b"x"
        assert not memory.is_forgotten("a", 10 * MAX_ANSWERS)
    assert len(rows) <= MAX_ANSWERS // MAX_CHUNK_ANSWERS + 1


def test_big_answers_are_remembered_for_fewer_commands() -> None:
    answers, rows = Answers(KEYS), dict[bytes, bytes]()
    for number in range(20):
        perform(answers, answers.plan([("a", number, b"x" * (MAX_CLIENT_BYTES // 8))]), number, rows)
    assert sum(map(len, rows.values())) <= MAX_CLIENT_BYTES * 5 // 4
    assert answers.remembered("a", 19) is not None


def test_of_the_clients_the_longest_unused_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.tree.etcd.answers.MAX_CLIENTS", 3)
    answers, rows = Answers(KEYS), dict[bytes, bytes]()
    for revision, client in enumerate(["a", "b", "c", "a", "d"], start=1):
        perform(answers, answers.plan([(client, revision, b"x")]), revision, rows)
    assert answers.remembered("b", 2) is None
    assert [answers.remembered(*command) for command in (("a", 4), ("c", 3), ("d", 5))] == [b"x"] * 3
    assert not any(key.startswith(KEYS.answers_of("b")) for key in rows)


def test_in_all_they_have_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.tree.etcd.answers.MAX_TOTAL_BYTES", 1000)
    answers, rows = Answers(KEYS), dict[bytes, bytes]()
    for number in range(50):
        perform(answers, answers.plan([(f"client {number}", 1, b"x" * 100)]), number, rows)
    assert sum(map(len, rows.values())) < 1500


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x82\x00\x81\x00", b"\x82\x60\x80"])
def test_other_values_are_no_answers(value: bytes) -> None:
    with pytest.raises(BadData):
        Answers(KEYS).take_untrusted("a", 1, value, 1)
