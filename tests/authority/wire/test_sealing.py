"""Sealing around transfer messages, with real keys: who may open what, and what nobody may change on the way."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from batonpass.authority.errors import MessageError
from batonpass.authority.limits import INLINE_STATE_BYTES, MAX_STATE_BYTES
from batonpass.authority.wire import sealing
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import MAX_HOPS, Hop, Trace
from batonpass.authority.wire.sealing import LIFETIME_S, OpenedMessage, Sealer, no_log, unheard
from batonpass.authority.wire.transfer import AdmitRequest, Grant, Message, Parcel, Renew, RenewReply, StateTransfer
from batonpass.crypto import jose
from batonpass.crypto.base64url import decode_untrusted
from batonpass.crypto.jwe import ContentKey
from batonpass.crypto.keys import Identity, PublicIdentity

NOW_S = 1_000_000.0
MESSAGE = AdmitRequest(transfer_id="transfer-1", entity="alpha.e", target="beta.s1")
IDENTITIES = {name: Identity.generate() for name in ("alpha.h1", "beta.h1", "alpha.mallory")}
TRACE = Trace("transfer-1").leave("alpha.s1", "handoff", 10).arrive("alpha.h1", 20, 500)


def sealer(name: str) -> Sealer:
    return Sealer.without_log(name, IDENTITIES[name])


def seal(trace: Trace = TRACE, *, on_path: bool = True, message: Message = MESSAGE, by: str = "alpha.h1") -> Parcel:
    keys = IDENTITIES["beta.h1"].public
    return sealer(by).seal(message, trace, to="beta.h1", keys=keys, now_ns=30, now_s=NOW_S, on_path=on_path)


def open_it(parcel: Parcel, *, by: str = "beta.h1", sender: str = "alpha.h1", now_s: float = NOW_S) -> OpenedMessage:
    # Through its data, as it comes from the wire.
    received = Parcel.from_data_untrusted(parcel.to_data())
    return sealer(by).open_untrusted(received, sender=IDENTITIES[sender].public, now_ns=90, now_s=now_s)


def relayed(parcel: Parcel, *relays: str) -> Parcel:
    trace = parcel.trace
    for relay in relays:
        trace = trace.arrive(relay, 50, len(parcel.sealed)).leave(relay, parcel.kind, 60)
    return replace(parcel, trace=trace)


def test_a_message_on_the_path_is_one_hop_and_is_opened_by_its_receiver() -> None:
    parcel = seal()
    opened = open_it(parcel)
    assert (opened.message, opened.sender) == (MESSAGE, "alpha.h1")
    assert opened.trace.hops[:1] == TRACE.hops
    assert opened.trace.hops[1:] == (Hop(2, "admit", "alpha.h1", "beta.h1", 30, 90, len(parcel.sealed)),)


def test_a_message_beside_the_path_carries_the_trace_as_it_is() -> None:
    assert open_it(seal(on_path=False)).trace == TRACE


@pytest.mark.parametrize("relays", [("relay.r1",), ("relay.r1", "relay.r2")])
def test_relays_may_extend_the_trace(relays: tuple[str, ...]) -> None:
    opened = open_it(relayed(seal(), *relays))
    assert [hop.src for hop in opened.trace.hops] == ["alpha.s1", "alpha.h1", *relays]
    assert [hop.dst for hop in opened.trace.hops] == ["alpha.h1", *relays, "beta.h1"]


def _other_start(trace: Trace) -> Trace:
    return _with_hops(trace, replace(trace.hops[0], src="alpha.s9"), *trace.hops[1:])


def _other_kind(trace: Trace) -> Trace:
    return _with_hops(trace, replace(trace.hops[0], kind="grant"), *trace.hops[1:])


def _other_middle(trace: Trace) -> Trace:
    return _with_hops(trace, replace(trace.hops[0], dst="alpha.h9"), *trace.hops[1:])


def _one_less(trace: Trace) -> Trace:
    return _with_hops(trace, replace(trace.hops[1], number=1))


def _other_transfer(trace: Trace) -> Trace:
    return Trace("transfer-2", trace.hops, trace.marks)


def _with_hops(trace: Trace, *hops: Hop) -> Trace:
    return Trace(trace.transfer_id, hops, trace.marks)


@pytest.mark.parametrize("forge", [_other_start, _other_kind, _other_middle, _one_less, _other_transfer])
def test_nobody_can_change_the_trace_that_was_signed(forge: Callable[[Trace], Trace]) -> None:
    parcel = seal()
    for way in ((), ("relay.r1",)):
        forged = relayed(parcel, *way)
        forged = replace(forged, trace=forge(forged.trace))
        with pytest.raises(MessageError, match=r"hop trace .* was changed on the way"):
            open_it(forged)


def test_the_parcel_and_its_trace_agree_on_whether_this_is_a_hop() -> None:
    """Else a peer could make this server complete a hop that is not there, or answer on one that never arrived."""
    for parcel in (seal(), seal(on_path=False)):
        lying = replace(parcel, on_path=not parcel.on_path)
        with pytest.raises(MessageError, match="differ on whether this is a hop"):
            open_it(lying)


def test_a_trace_without_room_is_refused_by_the_one_who_would_send_on() -> None:
    trace = TRACE
    while len(trace.hops) < MAX_HOPS:
        trace = trace.leave("relay.r1", "admit", 1).arrive("relay.r2", 2)
    with pytest.raises(MessageError, match="routing loop"):
        seal(trace)


# --- whom it is from, and for -----------------------------------------------------------------------------------------


def test_only_the_receiver_can_open_it() -> None:
    with pytest.raises(MessageError, match="WrongReceiver"):
        open_it(seal(), by="alpha.mallory")


def test_a_name_alone_does_not_open_it() -> None:
    impostor = Sealer.without_log("beta.h1", IDENTITIES["alpha.mallory"])
    with pytest.raises(MessageError, match=r"WrongReceiver|Tampered"):
        impostor.open_untrusted(seal(), sender=IDENTITIES["alpha.h1"].public, now_ns=90, now_s=NOW_S)


def test_nobody_can_seal_in_anothers_name() -> None:
    forger = Sealer.without_log("alpha.h1", IDENTITIES["alpha.mallory"])
    keys = IDENTITIES["beta.h1"].public
    parcel = forger.seal(MESSAGE, TRACE, to="beta.h1", keys=keys, now_ns=30, now_s=NOW_S, on_path=True)
    with pytest.raises(MessageError, match="UnknownSender"):
        open_it(parcel)


def test_it_expires() -> None:
    assert open_it(seal(), now_s=NOW_S + LIFETIME_S - 0.001).message == MESSAGE
    with pytest.raises(MessageError, match="Expired"):
        open_it(seal(), now_s=NOW_S + LIFETIME_S)


RENEW = Renew(server="alpha.h1", incarnation=1, nonce="0" * 32, renewal=1, challenge="")
RENEWED = RenewReply(server="alpha.h1", incarnation=1, renewal=1, verdict="granted")


@pytest.mark.parametrize("message", [RENEW, RENEWED])
@pytest.mark.parametrize("later_s", [-1e9, -601.0, 0.0, LIFETIME_S, 1e9])
def test_failures_row_25_a_renewal_and_its_answer_are_opened_whatever_the_two_clocks_show(
    message: Message, later_s: float
) -> None:
    opened = open_it(seal(on_path=False, message=message), now_s=NOW_S + later_s)
    assert opened.message == message
    assert opened.is_late == (later_s >= LIFETIME_S), "what has no other means to tell can go by that"


def test_failures_row_25_nothing_else_is_that_calls_itself_one_or_travels_with_one() -> None:
    with pytest.raises(MessageError, match="a parcel marked renew holds admit"):
        open_it(replace(seal(on_path=False), kind="renew"), now_s=NOW_S + LIFETIME_S)
    letters = [Letter(RENEW, Trace("renew-1"), on_path=False), Letter(MESSAGE, Trace("admit-1"), on_path=False)]
    keys = IDENTITIES["beta.h1"].public
    together = sealer("alpha.h1").seal_all(letters, to="beta.h1", keys=keys, now_ns=30, now_s=NOW_S)
    for kind in ("batch", "renew"):
        with pytest.raises(MessageError):
            open_it(replace(together, kind=kind), now_s=NOW_S + LIFETIME_S)


def test_failures_row_25_where_the_log_stands_is_heard_of_none_that_may_be_a_recording() -> None:
    heard: list[str] = []
    by = Sealer("alpha.h1", IDENTITIES["alpha.h1"])
    by.bind(log_for=lambda _: "here", heard_log=unheard)
    for later_s, expected in ((0.0, ["here"]), (LIFETIME_S, [])):
        parcel = by.seal(RENEWED, Trace("t"), to="beta.h1", keys=IDENTITIES["beta.h1"].public, now_ns=1, now_s=NOW_S)
        receiver = Sealer("beta.h1", IDENTITIES["beta.h1"])
        receiver.bind(log_for=no_log, heard_log=lambda _, log: heard.append(log))
        receiver.open_untrusted(parcel, sender=by.identity.public, now_ns=2, now_s=NOW_S + later_s)
        assert heard == expected
        heard.clear()


def test_a_sealer_that_does_not_know_what_to_say_of_its_log_seals_nothing_and_opens_nothing_that_says_so() -> None:
    unbound, by = (Sealer(name, IDENTITIES[name]) for name in ("beta.h1", "alpha.h1"))
    by.bind(log_for=lambda _: "here", heard_log=unheard)
    mine, theirs = by.identity.public, unbound.identity.public
    parcel = by.seal(RENEWED, Trace("t"), to="beta.h1", keys=theirs, now_ns=1, now_s=NOW_S)
    with pytest.raises(RuntimeError, match=r"beta\.h1 .* bind it first"):
        unbound.open_untrusted(parcel, sender=mine, now_ns=2, now_s=NOW_S)
    with pytest.raises(RuntimeError, match=r"beta\.h1 .* bind it first"):
        unbound.seal(RENEWED, Trace("t"), to="alpha.h1", keys=mine, now_ns=1, now_s=NOW_S)
    with pytest.raises(RuntimeError, match=r"beta\.h1 .* bind it first"):
        unbound.log_for("alpha.h1")
    with pytest.raises(RuntimeError, match="knows already"):
        by.bind(log_for=no_log, heard_log=unheard)


@pytest.mark.parametrize("place", [0.3, 0.5, 0.7, 0.999])
def test_a_changed_character_anywhere_is_found(place: float) -> None:
    parcel = seal()
    at = int(len(parcel.sealed) * place)
    other = "A" if parcel.sealed[at] != "A" else "B"
    with pytest.raises(MessageError):
        open_it(replace(parcel, sealed=parcel.sealed[:at] + other + parcel.sealed[at + 1 :]))


def test_the_mark_on_the_outside_says_what_is_inside() -> None:
    with pytest.raises(MessageError, match="a parcel marked grant holds admit"):
        open_it(replace(seal(on_path=False), kind="grant"))


def test_one_parcel_cannot_be_put_into_the_trace_of_another() -> None:
    first, second = seal(), seal(message=Grant(certificate="x"))
    mixed = replace(first, trace=second.trace)
    with pytest.raises(MessageError, match="was changed on the way"):
        open_it(mixed)


def test_what_is_sealed_must_still_be_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def nonsense(_message: Any) -> bytes:
        return b"\xff"

    monkeypatch.setattr("batonpass.authority.wire.sealing.encode_message", nonsense)
    with pytest.raises(MessageError, match="not CBOR"):
        open_it(seal())


# --- large states -----------------------------------------------------------------------------------------------------


def state_of(size: int) -> StateTransfer:
    state = hashlib.sha256(b"seed").digest() * (size // 32 + 1)
    return StateTransfer(
        transfer_id="transfer-1",
        entity="alpha.e",
        epoch=1,
        sub=0,
        kind="ball",
        tick=3,
        state=state[:size],
        state_hash=hashlib.sha256(state[:size]).hexdigest(),
    )


@pytest.mark.parametrize("size", [0, INLINE_STATE_BYTES, INLINE_STATE_BYTES + 1, 1_000_000, MAX_STATE_BYTES])
def test_a_state_arrives_whatever_its_size(size: int) -> None:
    message = state_of(size)
    parcel = seal(message=message)
    assert open_it(parcel).message == message
    assert (len(parcel.body) == size) is (size > INLINE_STATE_BYTES or size == 0)
    assert len(parcel.sealed) < 2 * INLINE_STATE_BYTES + 3000


def test_the_body_counts_in_the_hop() -> None:
    parcel = seal(message=state_of(100_000))
    assert open_it(parcel).trace.hops[-1].size_bytes == len(parcel.sealed) + 100_000


def test_a_state_that_is_too_large_is_refused_by_its_sender() -> None:
    with pytest.raises(ValueError, match="has at most"):
        seal(message=state_of(MAX_STATE_BYTES + 1))


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body[:-1],
        lambda body: body + b"x",
        lambda body: b"",
        lambda body: bytes([body[0] ^ 1]) + body[1:],
        lambda body: body[:-1] + bytes([body[-1] ^ 128]),
    ],
    ids=["cut", "longer", "missing", "first byte", "last byte"],
)
def test_another_body_than_the_one_in_the_manifest_is_refused(change: Callable[[bytes], bytes]) -> None:
    parcel = seal(message=state_of(100_000))
    with pytest.raises(MessageError, match="not what its manifest says"):
        open_it(replace(parcel, body=change(parcel.body)))


def test_a_body_that_nothing_speaks_of_is_refused() -> None:
    with pytest.raises(MessageError, match="says nothing"):
        open_it(replace(seal(), body=b"stray"))


@pytest.mark.parametrize("body", ["text", None, bytes(MAX_STATE_BYTES + 1)], ids=["text", "none", "too long"])
def test_a_body_of_another_form_is_refused(body: object) -> None:
    with pytest.raises(MessageError, match="body"):
        Parcel.from_data_untrusted(seal().to_data() | {"body": body})


def test_a_key_that_was_got_ready_seals_one_message_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[PublicIdentity] = []
    agree = jose.agree

    def counted(*, sender: Identity, receiver: PublicIdentity, content_type: str) -> ContentKey:
        made.append(receiver)
        return agree(sender=sender, receiver=receiver, content_type=content_type)

    monkeypatch.setattr(jose, "agree", counted)
    here, keys = sealer("alpha.h1"), IDENTITIES["beta.h1"].public

    def sent() -> Parcel:
        return here.seal(MESSAGE, TRACE, to="beta.h1", keys=keys, now_ns=30, now_s=NOW_S, on_path=True)

    here.get_ready(keys)
    here.get_ready(keys)
    assert len(made) == 1
    first, second = sent(), sent()
    assert len(made) == 2
    assert [open_it(parcel).message for parcel in (first, second)] == [MESSAGE, MESSAGE]
    encrypted = [decode_untrusted(parcel.sealed.split(".")[1].encode()).split(b".") for parcel in (first, second)]
    assert all(len({parts[place] for parts in encrypted}) == 2 for place in (0, 2, 3))


def test_a_key_that_was_got_ready_is_gone_with_the_identity_it_was_made_for() -> None:
    here, keys, later = sealer("alpha.h1"), IDENTITIES["beta.h1"].public, Identity.generate()
    here.get_ready(keys)
    here.change_identity(later)
    parcel = here.seal(MESSAGE, TRACE, to="beta.h1", keys=keys, now_ns=30, now_s=NOW_S, on_path=True)
    opened = sealer("beta.h1").open_untrusted(parcel, sender=later.public, now_ns=90, now_s=NOW_S)
    assert opened.message == MESSAGE


def test_keys_are_ready_for_a_bounded_number_of_receivers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "MAX_READY", 2)
    here = sealer("alpha.h1")
    for identity in IDENTITIES.values():
        here.get_ready(identity.public)
    assert [kid for _, kid in here._ready] == [one.public.agreement_kid for one in [*IDENTITIES.values()][1:]]


@pytest.mark.parametrize("size", [10, INLINE_STATE_BYTES + 1])
def test_the_hash_of_a_state_is_told_if_the_state_was_held_against_it(size: int) -> None:
    opened = open_it(seal(message=state_of(size)))
    assert opened.state_hash == (state_of(size).state_hash if size > INLINE_STATE_BYTES else "")


def test_a_state_that_has_not_the_hash_in_its_message_is_found_out_on_its_way() -> None:
    parcel = seal(message=state_of(INLINE_STATE_BYTES + 1).model_copy(update={"state_hash": "a" * 64}))
    with pytest.raises(MessageError, match="not what its manifest says"):
        open_it(parcel)
