"""Messages sealed together arrive as if each had come alone: in order, from the same sender, with their own traces."""

import hashlib
from collections import deque
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.errors import MessageError
from batonpass.authority.limits import INLINE_STATE_BYTES
from batonpass.authority.wire.batch import MAX_BATCH, MAX_BATCH_BYTES, Batch, BatchItem, BatchQueue, Letter, take_batch
from batonpass.authority.wire.hops import MAX_HOPS, Trace
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import (
    ForwardInputs,
    Grant,
    InputItem,
    Manifest,
    Order,
    OwnerRequest,
    Parcel,
    StateTransfer,
    encode_message,
)
from batonpass.crypto.keys import Identity
from tests.authority.message_strategies import TRANSFER_MESSAGES

ADA, BOB, EVE = (Sealer.without_log(name, Identity.generate()) for name in ("alpha.s1", "alpha.h1", "alpha.s9"))
NOW_S = 1000.0


def opened(letters: list[Letter], at: Sealer = BOB, sender: Sealer = ADA) -> list[OpenedMessage]:
    parcel = ADA.seal_all(letters, to="alpha.h1", keys=BOB.identity.public, now_ns=10, now_s=NOW_S)
    return at.open_all_untrusted(parcel, sender=sender.identity.public, now_ns=20, now_s=NOW_S)


@given(st.lists(st.tuples(TRANSFER_MESSAGES.filter(lambda m: m.type != "batch"), st.booleans()), min_size=1))
def test_what_is_sealed_together_is_what_would_be_sealed_alone(messages: list[tuple[object, bool]]) -> None:
    letters = [
        Letter(message, Trace(f"transfer-{number}"), on_path)
        for number, (message, on_path) in enumerate(messages)
        if getattr(message, "manifest", None) is None
    ]
    together = opened(letters) if letters else []
    for letter, one in zip(letters, together, strict=True):
        (alone,) = opened([letter])
        assert (one.message, one.sender) == (alone.message, alone.sender)
        assert one.trace.transfer_id == letter.trace.transfer_id
        assert [(hop.src, hop.dst, hop.kind) for hop in one.trace.hops] == [
            (hop.src, hop.dst, hop.kind) for hop in alone.trace.hops
        ]
        assert len(one.trace.hops) == letter.on_path


TWO = [Letter(OwnerRequest(entity="alpha.e"), Trace("t-1")), Letter(Grant(certificate="c"), Trace("t-2"), True)]


def test_a_batch_is_for_its_receiver_and_from_its_sender_only() -> None:
    with pytest.raises(MessageError, match=r"WrongReceiver|Tampered"):
        opened(TWO, at=EVE)
    with pytest.raises(MessageError, match="UnknownSender"):
        opened(TWO, sender=EVE)


def sealed(items: list[BatchItem]) -> list[OpenedMessage]:
    return opened([Letter(Batch(messages=items), Trace("batch"))])


def item(message: object = None, *, trace: Trace | None = None, on_path: bool = False) -> BatchItem:
    body = encode_message(message or OwnerRequest(entity="alpha.e"))  # type: ignore[arg-type]  # any message
    return BatchItem(trace=(trace or Trace("t-1")).to_data(), on_path=on_path, body=body)


def test_a_batch_holds_no_batch() -> None:
    assert len(sealed([item()])) == 1
    with pytest.raises(MessageError, match="batch in a batch"):
        sealed([item(), item(Batch(messages=[item()]))])


def test_one_message_that_cannot_be_read_spoils_its_batch() -> None:
    with pytest.raises(MessageError):
        sealed([item(), BatchItem(trace=Trace("t-1").to_data(), on_path=False, body=b"junk")])
    with pytest.raises(MessageError):
        sealed([item(), BatchItem(trace={"hops": 3}, on_path=False, body=item().body)])


MANY = [Letter(Grant(certificate="c" * 99), Trace(f"t-{number}")) for number in range(MAX_BATCH)]


def over_link(letters: list[Letter] = MANY) -> Parcel:
    return ADA.seal_all(letters, to="alpha.h1", keys=BOB.identity.public, now_ns=10, now_s=NOW_S, over_link=True)


def read(parcel: Parcel) -> list[OpenedMessage]:
    return BOB.open_all_untrusted(parcel, sender=ADA.identity.public, now_ns=20, now_s=NOW_S)


def test_over_the_link_many_messages_go_beside_what_is_sealed_and_few_do_not() -> None:
    parcel = over_link()
    assert len(parcel.body) > INLINE_STATE_BYTES > len(parcel.sealed)
    assert read(parcel) == opened(MANY)
    assert not over_link(TWO).body


def test_what_is_beside_is_what_was_signed_and_a_batch() -> None:
    parcel = over_link()
    for body in (b"", parcel.body[:-1], parcel.body + b"\0", parcel.body[:-1] + b"\0", over_link(MANY[1:]).body):
        with pytest.raises(MessageError, match="beside"):
            read(replace(parcel, body=body))
    with pytest.raises(MessageError, match="says nothing"):
        read(replace(over_link(TWO), body=parcel.body))


def beside(body: bytes) -> Parcel:
    """Signed by a peer with good keys, whatever it is."""
    batch = Batch(manifest=Manifest(hash=hashlib.sha256(body).hexdigest(), length=len(body)))
    parcel = over_link([Letter(batch, Trace("batch"))])
    return replace(parcel, body=body)


def test_who_signs_what_is_no_batch_is_not_listened_to() -> None:
    assert len(read(beside(over_link().body))) == MAX_BATCH
    state = StateTransfer(
        transfer_id="transfer-1", entity="alpha.e", epoch=1, sub=0, kind="k", tick=1, state=bytes(INLINE_STATE_BYTES),
        state_hash="0" * 64,
    )  # fmt: skip
    for body in (b"junk" * INLINE_STATE_BYTES, encode_message(state)):
        with pytest.raises(MessageError):
            read(beside(body))


def test_a_batch_has_messages_or_says_what_is_beside_and_not_both() -> None:
    manifest = Manifest(hash="0" * 64, length=1 << 20)
    for batch in (Batch(), Batch(messages=[item()], manifest=manifest)):
        with pytest.raises(MessageError, match="a batch has"):
            opened([Letter(batch, Trace("batch"))])
    with pytest.raises(MessageError):
        sealed([item(), item(Batch(manifest=manifest))])


@pytest.mark.parametrize("on_path", [False, True])
def test_a_hop_in_a_batch_is_one_and_what_is_none_is_none(*, on_path: bool) -> None:
    under_way = Trace("t-1").leave("alpha.s1", "owner_request", 5)
    with pytest.raises(MessageError, match="differ on whether"):
        sealed([item(trace=Trace("t-1") if on_path else under_way, on_path=on_path)])


def test_a_state_that_travels_beside_its_message_cannot_be_in_a_batch() -> None:
    large = StateTransfer(
        transfer_id="transfer-1", entity="alpha.e", epoch=1, sub=0, kind="ball", tick=1, state=b"", state_hash="0" * 64,
        manifest=Manifest(hash="0" * 64, length=1 << 20),
    )  # fmt: skip
    with pytest.raises(MessageError, match="manifest"):
        sealed([item(), item(large)])


@given(st.lists(st.integers(0, MAX_BATCH_BYTES // 2), max_size=400))
def test_parcels_are_filled_in_order_and_none_is_too_full(sizes: list[int]) -> None:
    letters = [
        Letter(
            StateTransfer(
                transfer_id="transfer-1", entity="alpha.e", epoch=1, sub=0, kind="ball", tick=1, state=bytes(size),
                state_hash="0" * 64,
            ),
            Trace(f"t-{number}"),
        )
        for number, size in enumerate(sizes)
    ]  # fmt: skip
    waiting, taken = deque(letters), []
    while together := take_batch(waiting):
        assert len(together) <= MAX_BATCH
        assert len(together) == 1 or sum(letter.weight_bytes for letter in together) <= MAX_BATCH_BYTES
        taken += together
    assert taken == letters


def test_a_letter_weighs_more_than_it_will_be_long() -> None:
    inputs = [InputItem(source="alpha.ada", owner_rev=2**62, seq=2**62, data=bytes(4096))] * 9
    for message in (
        Order(transfer_id="transfer-1", entity="alpha.e", target="alpha.s2"),
        StateTransfer(
            transfer_id="transfer-1", entity="alpha.e", epoch=1, sub=0, kind="k", tick=1, state=bytes(999),
            state_hash="0" * 64,
        ),
    ):  # fmt: skip
        assert Letter(message, Trace("transfer-1")).weight_bytes >= len(encode_message(message))
    forward = ForwardInputs(transfer_id="transfer-1", entity="alpha.e", epoch=1, sub=0, inputs=inputs)
    assert Letter(forward, Trace("transfer-1")).weight_bytes >= len(encode_message(forward))


def test_only_who_puts_the_first_letter_has_to_see_to_it() -> None:
    box = BatchQueue()
    assert [box.put("there", letter) for letter in TWO] == [True, False]
    assert box.put("elsewhere", TWO[0])
    assert box.take("there") == TWO
    assert box.take("there") == []
    assert box.put("there", TWO[0])


@given(st.integers(2, 5), st.integers(1, 4), st.booleans())
def test_each_hop_in_a_batch_has_crossed_the_relays_that_the_batch_has(
    messages: int, relays: int, knows_columns: bool
) -> None:
    sender, receiver = (Sealer.without_log(name, Identity.generate()) for name in ("alpha.h1", "beta.h1"))
    now: dict[str, Any] = {"now_s": NOW_S}
    if knows_columns:
        hello = receiver.seal_all(TWO, to="alpha.h1", keys=sender.identity.public, now_ns=1, **now)
        sender.open_all_untrusted(hello, sender=receiver.identity.public, now_ns=2, **now)
    came = [Trace(f"t-{number}").leave("alpha.s1", "handoff", 1).arrive("alpha.h1", 2) for number in range(messages)]
    letters = [Letter(OwnerRequest(entity="alpha.e"), trace, on_path=place > 0) for place, trace in enumerate(came)]
    keys = receiver.identity.public
    parcel = sender.seal_all(letters, to="beta.h1", keys=keys, now_ns=3, relayed=True, **now)
    names = [f"relay.r{number}" for number in range(relays)]
    for number, name in enumerate(names):
        crossed = parcel.trace.arrive(name, 10 + number, 900).leave(name, parcel.kind, 20 + number)
        parcel = replace(parcel, trace=crossed)
    together = receiver.open_all_untrusted(parcel, sender=sender.identity.public, now_ns=99, **now)
    assert together[0].trace == came[0], "it is no hop"
    for one in together[1:]:
        assert [(hop.src, hop.dst) for hop in one.trace.hops[1:]] == list(
            zip(["alpha.h1", *names], [*names, "beta.h1"], strict=True)
        )
        assert {hop.kind for hop in one.trace.hops[1:]} == {"owner_request"}
        assert all(hop.sent_ns and hop.received_ns and hop.size_bytes for hop in one.trace.hops[1:])


def test_a_way_too_long_for_one_of_a_batch_spoils_it() -> None:
    long = Trace("t-1")
    for number in range(MAX_HOPS - 1):
        long = long.leave(f"alpha.s{number}", "handoff", 1).arrive("alpha.s1", 2)
    letters = [Letter(OwnerRequest(entity="alpha.e"), trace, on_path=True) for trace in (Trace("t-2"), long)]
    parcel = ADA.seal_all(letters, to="alpha.h1", keys=BOB.identity.public, now_ns=3, now_s=NOW_S, relayed=True)
    crossed = parcel.trace.arrive("relay.r1", 4).leave("relay.r1", parcel.kind, 5)
    with pytest.raises(MessageError, match="routing loop"):
        BOB.open_all_untrusted(replace(parcel, trace=crossed), sender=ADA.identity.public, now_ns=20, now_s=NOW_S)
