"""Messages of scenes as bytes: those of `@dcl/ecs` 7.28.0 (vectors/codec.json), and bytes that anybody may send."""

import json
import struct
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batonpass.simserver.sync.scene.codec import (
    DATA_KINDS,
    MessageKind,
    MessageRow,
    SceneRun,
    read_chunk_untrusted,
    write_message,
    write_run,
)

VECTORS: Final[dict[str, list[dict[str, Any]]]] = json.loads(
    (Path(__file__).parent / "vectors" / "codec.json").read_text(encoding="utf-8")
)
# Where 7.28.0 does not come back, or reads on where no message begins.
UPSTREAM_FAULTS: Final = {"unknown type length 0 (DoS)", "length larger than body"}
OPERATIONS: Final = {
    "PUT_COMPONENT": MessageKind.PUT,
    "DELETE_COMPONENT": MessageKind.DELETE,
    "DELETE_ENTITY": MessageKind.DELETE_ENTITY,
    "APPEND_VALUE": MessageKind.APPEND,
    "PUT_COMPONENT_NETWORK": MessageKind.PUT_NETWORK,
    "DELETE_COMPONENT_NETWORK": MessageKind.DELETE_NETWORK,
    "DELETE_ENTITY_NETWORK": MessageKind.DELETE_ENTITY_NETWORK,
}
NUMBERS: Final = {
    MessageKind.PUT: 3,
    MessageKind.DELETE: 3,
    MessageKind.DELETE_ENTITY: 1,
    MessageKind.APPEND: 3,
    MessageKind.PUT_NETWORK: 4,
    MessageKind.DELETE_NETWORK: 4,
    MessageKind.DELETE_ENTITY_NETWORK: 2,
    MessageKind.AUTHORITATIVE_PUT: 3,
}

U32 = st.integers(0, 2**32 - 1)


@st.composite
def messages(draw: st.DrawFn) -> tuple[MessageKind, MessageRow]:
    kind = draw(st.sampled_from(MessageKind))
    numbers = draw(st.tuples(*[U32] * NUMBERS[kind]))
    return kind, (*numbers, draw(st.binary(max_size=9))) if kind in DATA_KINDS else numbers


def row_of(message: dict[str, Any]) -> MessageRow:
    names = ("entityId", "componentId", "timestamp", "networkId")
    numbers = tuple(message[name] for name in names if name in message)
    return (*numbers, bytes.fromhex(message["data"])) if "data" in message else numbers


def flat(runs: list[SceneRun]) -> list[tuple[int, MessageRow]]:
    return [(run.kind, row) for run in runs for row in run.rows]


def test_every_message_is_written_as_there() -> None:
    for vector in VECTORS["encode"]:
        assert write_message(OPERATIONS[vector["op"]], row_of(vector)).hex() == vector["hex"], vector


def test_every_message_is_read_as_there() -> None:
    for vector in VECTORS["encode"]:
        read = read_chunk_untrusted(bytes.fromhex(vector["hex"]))
        assert flat(read.runs) == [(OPERATIONS[vector["op"]], row_of(vector))], vector


@pytest.mark.parametrize("vector", VECTORS["parse"], ids=lambda vector: vector["name"])
def test_a_chunk_is_read_as_there_or_refused_where_there_is_a_fault(vector: dict[str, Any]) -> None:
    chunk = bytes.fromhex(vector["hex"])
    read = read_chunk_untrusted(chunk)
    if vector["name"] in UPSTREAM_FAULTS:
        assert (read.runs, read.used_bytes) == ([], 0)
        assert read.refusal
    else:
        known = [(message["type"], row_of(message)) for message in vector["messages"] if "type" in message]
        assert flat(read.runs) == known
        assert read.skipped == len(vector["messages"]) - len(known)
        assert (read.used_bytes, len(chunk) - read.used_bytes) == (vector["readOffset"], vector["remaining"])
        assert not read.refusal


def test_an_authoritative_put_is_a_put_with_another_number() -> None:
    row = (512, 1, 7, b"ab")
    assert write_message(MessageKind.AUTHORITATIVE_PUT, row).hex() == (
        "1a000000" + "08000000" + "00020000" + "01000000" + "07000000" + "02000000" + "6162"
    )


@given(st.lists(messages()))
def test_what_is_written_is_read_in_its_order_and_in_runs_of_one_kind(
    sent: list[tuple[MessageKind, MessageRow]],
) -> None:
    read = read_chunk_untrusted(b"".join(write_message(kind, row) for kind, row in sent))
    assert flat(read.runs) == sent
    assert all(one.kind != other.kind for one, other in zip(read.runs, read.runs[1:], strict=False))
    assert b"".join(write_run(*run) for run in read.runs) == b"".join(write_message(*message) for message in sent)


@given(st.lists(messages(), max_size=4), st.binary(max_size=40))
@example([], struct.pack("<2I", 0, 1))
@example([], struct.pack("<6I", 2**32 - 1, 1, 512, 1, 1, 2**32 - 25))
def test_whatever_follows_good_messages_they_are_read(sent: list[tuple[MessageKind, MessageRow]], rest: bytes) -> None:
    good = b"".join(write_message(kind, row) for kind, row in sent)
    read = read_chunk_untrusted(good + rest)
    assert flat(read.runs)[: len(sent)] == sent
    assert len(good) <= read.used_bytes <= len(good) + len(rest)


@given(st.lists(messages(), min_size=1, max_size=4), st.data())
def test_a_length_that_is_not_the_messages_own_is_refused_there(
    sent: list[tuple[MessageKind, MessageRow]], data: st.DataObject
) -> None:
    parts = [write_message(kind, row) for kind, row in sent]
    bad = data.draw(st.integers(0, len(parts) - 1))
    at = sum(map(len, parts[:bad]))
    wrong = data.draw(st.integers(0, sum(map(len, parts)) - at).filter(lambda length: length != len(parts[bad])))
    chunk = bytearray(b"".join(parts))
    struct.pack_into("<I", chunk, at, wrong)
    read = read_chunk_untrusted(bytes(chunk))
    assert flat(read.runs) == sent[:bad]
    assert read.used_bytes == at
    assert read.refusal


@given(messages(), st.data())
def test_a_chunk_that_ends_within_a_message_is_read_up_to_there(
    sent: tuple[MessageKind, MessageRow], data: st.DataObject
) -> None:
    whole = write_message(*sent)
    cut = data.draw(st.integers(0, len(whole) - 1))
    read = read_chunk_untrusted(whole + whole[:cut])
    assert flat(read.runs) == [sent]
    assert (read.used_bytes, read.refusal) == (len(whole), "")


@pytest.mark.parametrize("kind", [MessageKind.PUT, 99])
def test_a_message_that_says_that_it_is_too_long_is_refused_and_not_waited_for(kind: int) -> None:
    head = struct.pack("<6I", 1025, kind, 512, 1, 1, 1001)
    assert read_chunk_untrusted(head, 1024).refusal
    assert read_chunk_untrusted(head + bytes(1001), 1024).refusal
    assert not read_chunk_untrusted(head, 1025).refusal


@settings(max_examples=30)
@given(st.sampled_from([0, 44, 1_000, 1_001]), st.integers(2, 200), st.randoms(use_true_random=False))
def test_messages_that_are_alike_are_read_as_each_alone_would_be_wherever_one_differs(
    data_bytes: int, count: int, dice: Random
) -> None:
    kinds = [MessageKind.PUT, MessageKind.APPEND]
    sent = [(dice.choice(kinds[: 1 + (at > count // 2)]), (at, 7, at, bytes(data_bytes))) for at in range(count)]
    chunk = bytearray(b"".join(write_message(*one) for one in sent))
    at = dice.randrange(len(chunk))
    chunk[at] ^= 1 << dice.randrange(8)
    read, alone, at, refusal = read_chunk_untrusted(bytes(chunk)), [], 0, ""
    while len(chunk) - at >= 8 and not refusal:
        (length,) = struct.unpack_from("<I", chunk, at)
        if length > len(chunk) - at:
            break
        each = read_chunk_untrusted(bytes(chunk[at : at + max(length, 8)]))
        alone += flat(each.runs)
        refusal = each.refusal
        at += 0 if refusal else length
    assert (flat(read.runs), read.used_bytes, read.refusal) == (alone, at, refusal)
