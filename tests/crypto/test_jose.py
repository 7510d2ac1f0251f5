"""Sealed envelopes: what gets through, and which error each way of being wrong has."""

import base64
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.crypto import jose, jws
from batonpass.crypto.errors import (
    CryptoError,
    Expired,
    Malformed,
    Replayed,
    Revoked,
    SeenFull,
    Tampered,
    UnknownSender,
    WrongReceiver,
)
from batonpass.crypto.jose import (
    MAX_STATEMENT_BYTES,
    Claims,
    Opened,
    open_untrusted,
    peek_sender_untrusted,
    seal,
    sign,
    verify_untrusted,
)
from batonpass.crypto.keys import Identity
from batonpass.crypto.seen import Seen

ALICE = Identity.generate()
BOB = Identity.generate()
MALLORY = Identity.generate()
NOW_S = 1_700_000_000.0
CLAIMS = Claims("alpha.s1", "beta.s1", "tr-1", 7, NOW_S + 10, "digest")


def seal_for_bob(payload: bytes = b"state", claims: Claims = CLAIMS) -> str:
    return seal(payload, claims, sender=ALICE, receiver=BOB.public)


def open_as_bob(sealed: str, *, now_s: float = NOW_S, max_bytes: int = 1_000_000) -> Opened:
    return open_untrusted(
        sealed, receiver=BOB, receiver_id="beta.s1", sender=ALICE.public, now_s=now_s, max_bytes=max_bytes
    )


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def header_of(token: str) -> dict[str, Any]:
    header = json.loads(unb64(token.split(".", maxsplit=1)[0]))
    assert isinstance(header, dict)
    return header


def sign_by_hand(header: dict[str, Any], payload: bytes, signer: Identity) -> str:
    """What a peer with a valid key but bad manners can send."""
    return jws.sign(header, payload, signer.signing)


@given(st.binary(max_size=2000), st.integers(0, 2**63 - 1), st.sampled_from(["", "abc"]))
def test_what_was_sealed_comes_out_with_its_claims(payload: bytes, sequence: int, trace_digest: str) -> None:
    claims = replace(CLAIMS, sequence=sequence, trace_digest=trace_digest)

    opened = open_as_bob(seal_for_bob(payload, claims))

    assert opened == Opened(payload, claims)


NAMES = st.text(alphabet=[chr(code) for code in range(33, 127) if chr(code) not in '"\\'], min_size=1, max_size=128)


@given(st.builds(Claims, NAMES, NAMES, NAMES, st.integers(0, 2**63 - 1), st.floats(0, 1e300), st.just("") | NAMES))
def test_the_header_of_a_message_is_json_as_the_json_module_writes_it(claims: Claims) -> None:
    """It is written by hand, which takes a quarter of the time; names are made so that nothing in them is escaped."""
    said = {
        "alg": "ES256",
        "typ": "batonpass-sealed",
        "cty": "JWE",
        "kid": ALICE.public.signing_kid,
        "iss": claims.sender,
        "aud": claims.receiver,
        "tid": claims.transfer_id,
        "seq": claims.sequence,
        "exp": claims.expires_at_s,
        "trace": claims.trace_digest,
    }
    assert seal_for_bob(claims=claims).split(".")[0] == jws.encode_header(said).decode()


ALMOST = st.lists(
    st.tuples(
        st.floats(0, 1), st.sampled_from(["", '"', "\\", "0", "-", "e1", ".", " ", ",", "}", "\n", '"seq":1,', "é"])
    ),
    max_size=2,
)


@given(
    st.builds(Claims, NAMES, NAMES, NAMES, st.integers(0, 2**63 - 1), st.floats(0, 1e300), st.just("") | NAMES),
    ALMOST,
)
def test_a_header_as_we_write_it_is_read_as_json_is(claims: Claims, changes: list[tuple[float, str]]) -> None:
    """It is read by a pattern, which takes half of the time; whatever the pattern takes is that JSON."""
    text = unb64(seal_for_bob(claims=claims).split(".")[0]).decode()
    for where, what in changes:
        at = int(where * len(text))
        text = text[:at] + what + text[at + 1 :]
    short = jws._sealed_header_untrusted(text.encode())
    if not changes and 1e-4 <= claims.expires_at_s < 1e9:
        assert (short is None) == (len(repr(claims.expires_at_s).partition(".")[2]) > 9)
    if short is not None:
        whole = jws.json_object_untrusted(text.encode())
        assert short == whole
        assert [type(value) for value in short.values()] == [type(value) for value in whole.values()]


def test_a_header_of_now_is_read_by_the_pattern() -> None:
    for expires_at_s in (1_800_000_000.0, 1_800_000_000.1234567, 60.0):
        text = unb64(seal_for_bob(claims=replace(CLAIMS, expires_at_s=expires_at_s)).split(".")[0])
        assert jws._sealed_header_untrusted(text) == json.loads(text)


def test_the_sender_can_be_read_before_its_keys_are_known() -> None:
    assert peek_sender_untrusted(seal_for_bob()) == "alpha.s1"
    assert jose.peek_untrusted(seal_for_bob()) == ("alpha.s1", ALICE.public.signing_kid)
    assert peek_sender_untrusted(sign({}, sender=ALICE, sender_id="alpha.h1")) == "alpha.h1"


def test_two_seals_of_one_payload_share_nothing() -> None:
    """A fresh ephemeral key each time: reading one message does not help to read the next."""
    first, second = (unb64(seal_for_bob().split(".")[1]).split(b".") for _ in range(2))
    assert first[0] != second[0]
    assert first[3] != second[3]


def test_a_key_that_was_agreed_on_before_encrypts_one_message() -> None:
    ready = jose.agree(sender=ALICE, receiver=BOB.public)
    sealed = jose.seal(b"payload", CLAIMS, sender=ALICE, receiver=BOB.public, ready=ready)
    assert open_as_bob(sealed).payload == b"payload"
    with pytest.raises(RuntimeError, match="has encrypted its message"):
        jose.seal(b"payload", CLAIMS, sender=ALICE, receiver=BOB.public, ready=ready)


@given(st.data())
def test_changing_any_character_is_noticed(data: st.DataObject) -> None:
    sealed = seal_for_bob()
    at = data.draw(st.integers(0, len(sealed) - 1))
    character = data.draw(st.characters(min_codepoint=33, max_codepoint=126).filter(lambda c: c != sealed[at]))
    with pytest.raises((Malformed, Tampered, UnknownSender, WrongReceiver, Expired)):
        open_as_bob(sealed[:at] + character + sealed[at + 1 :])


@given(st.data())
def test_cutting_it_off_is_noticed(data: st.DataObject) -> None:
    sealed = seal_for_bob()
    length = data.draw(st.integers(0, len(sealed) - 1))
    with pytest.raises((Malformed, Tampered)):
        open_as_bob(sealed[:length])


@given(st.one_of(st.text(max_size=300), st.binary(max_size=300).map(lambda b: b64(b) + "." + b64(b) + "." + "A" * 86)))
def test_noise_raises_a_crypto_error_and_nothing_else(noise: str) -> None:
    for read in (open_as_bob, peek_sender_untrusted, lambda text: verify_untrusted(text, sender=ALICE.public)):
        with pytest.raises(CryptoError):
            read(noise)


def test_a_signature_over_changed_contents_is_tampered() -> None:
    header, _, signature = seal_for_bob(b"one").split(".")
    other = seal_for_bob(b"two").split(".")[1]
    with pytest.raises(Tampered):
        open_as_bob(f"{header}.{other}.{signature}")


def test_after_its_time_it_is_expired() -> None:
    sealed = seal_for_bob()
    open_as_bob(sealed, now_s=CLAIMS.expires_at_s - 0.001)
    with pytest.raises(Expired):
        open_as_bob(sealed, now_s=CLAIMS.expires_at_s)


def test_passing_a_sealed_message_on_to_somebody_else_does_not_work() -> None:
    with pytest.raises(WrongReceiver, match=r"for beta\.s1, not for gamma\.s1"):
        open_untrusted(seal_for_bob(), receiver=BOB, receiver_id="gamma.s1", sender=ALICE.public, now_s=NOW_S)


def test_a_message_for_an_old_key_says_that_the_key_is_old() -> None:
    sealed = seal(b"", CLAIMS, sender=ALICE, receiver=MALLORY.public)
    with pytest.raises(WrongReceiver, match="fetch the new key"):
        open_as_bob(sealed)


def test_a_message_made_with_a_key_that_is_not_the_senders_is_unknown() -> None:
    with pytest.raises(UnknownSender, match=ALICE.public.signing_kid):
        open_as_bob(seal(b"", CLAIMS, sender=MALLORY, receiver=BOB.public))


def test_claiming_somebody_elses_key_id_does_not_help() -> None:
    forged = seal(b"", CLAIMS, sender=MALLORY, receiver=BOB.public)
    header = header_of(forged) | {"kid": ALICE.public.signing_kid}
    with pytest.raises(Tampered):
        open_as_bob(sign_by_hand(header, unb64(forged.split(".")[1]), MALLORY))


def test_signing_what_somebody_else_has_sealed_is_found_out() -> None:
    """Mallory cannot read Alice's message, and cannot pass it off as her own either."""
    sealed = seal_for_bob()
    header = header_of(sealed) | {"iss": "mallory", "kid": MALLORY.public.signing_kid}
    stolen = sign_by_hand(header, unb64(sealed.split(".")[1]), MALLORY)
    with pytest.raises(Tampered, match="sealed"):
        open_untrusted(stolen, receiver=BOB, receiver_id="beta.s1", sender=MALLORY.public, now_s=NOW_S)


@pytest.mark.parametrize(
    "change",
    [
        {"alg": "none"},
        {"alg": "HS256"},
        {"typ": "batonpass-statement"},
        {"crit": ["x"]},
        {"b64": False},
        {"seq": "1"},
        {"seq": True},
        {"seq": -1},
        {"exp": "soon"},
        {"exp": None},
        {"iss": "a b"},
        {"aud": 1},
        {"tid": "x" * 129},
        {"trace": [1]},
    ],
)
def test_a_header_of_another_form_is_malformed(change: dict[str, Any]) -> None:
    header, payload, signature = seal_for_bob().split(".")
    changed = json.dumps(json.loads(unb64(header)) | change)
    with pytest.raises(Malformed):
        open_as_bob(f"{b64(changed.encode())}.{payload}.{signature}")


@pytest.mark.parametrize("text", ["[" * 1000, "1", "null", '"x"', '{"exp": NaN}', '{"a": ' + "9" * 900 + "}"])
def test_hostile_json_in_the_header_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        open_as_bob(f"{b64(text.encode())}.AA.{'A' * 86}")


@pytest.mark.parametrize(
    "change", [{"zip": "DEF"}, {"alg": "dir"}, {"enc": "A256GCM"}, {"epk": {}}, {"apv": "AAAA"}, {"p2c": 10**9}]
)
def test_an_encryption_of_another_form_is_refused_even_when_it_is_signed(change: dict[str, Any]) -> None:
    sealed = seal_for_bob()
    protected, *rest = unb64(sealed.split(".")[1]).decode().split(".")
    inner = ".".join([b64(json.dumps(json.loads(unb64(protected)) | change).encode()), *rest])
    with pytest.raises((Malformed, WrongReceiver)):
        open_as_bob(sign_by_hand(header_of(sealed), inner.encode(), ALICE))


def test_a_payload_larger_than_the_receiver_wants_is_malformed() -> None:
    assert len(open_as_bob(seal_for_bob(bytes(10_000)), max_bytes=10_000).payload) == 10_000
    for size in (10_001, 10_500, 11_000, 20_000):
        with pytest.raises(Malformed):
            open_as_bob(seal_for_bob(bytes(size)), max_bytes=10_000)


def test_a_header_without_a_sender_names_nobody() -> None:
    with pytest.raises(Malformed, match="iss"):
        peek_sender_untrusted(b64(b'{"alg":"ES256"}') + ".AA." + "A" * 86)


@pytest.mark.parametrize("inner", [b"", b"!", b"{}", b64(b"[]").encode(), b"a.b.c.d.e", "é".encode()])
def test_a_signature_over_something_that_is_not_sealed_is_malformed(inner: bytes) -> None:
    with pytest.raises(Malformed):
        open_as_bob(sign_by_hand(header_of(seal_for_bob()), inner, ALICE))


@pytest.mark.parametrize("part", [2, 3, 4])
def test_a_broken_seal_under_a_good_signature_is_tampered(part: int) -> None:
    """The sender itself is broken: it signed something that does not open."""
    sealed = seal_for_bob(b"contents")
    parts = unb64(sealed.split(".")[1]).decode().split(".")
    parts[part] = b64(bytes(len(unb64(parts[part]))))
    with pytest.raises(Tampered, match="seal"):
        open_as_bob(sign_by_hand(header_of(sealed), ".".join(parts).encode(), ALICE))


def test_a_megabyte_passes() -> None:
    payload = bytes(range(256)) * 3906
    assert open_as_bob(seal_for_bob(payload)).payload == payload


def test_our_own_mistakes_are_value_errors_and_not_crypto_errors() -> None:
    for make in (
        lambda: replace(CLAIMS, sender=""),
        lambda: replace(CLAIMS, receiver='a"b'),
        lambda: replace(CLAIMS, sequence=-1),
        lambda: replace(CLAIMS, expires_at_s=float("nan")),
        lambda: sign({"x": float("inf")}, sender=ALICE, sender_id="a"),
        lambda: sign({"x": "y" * MAX_STATEMENT_BYTES}, sender=ALICE, sender_id="a"),
    ):
        with pytest.raises(ValueError, match=r".+"):
            make()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5))
def test_a_signed_statement_comes_out_as_it_went_in(statement: dict[str, Any]) -> None:
    assert verify_untrusted(sign(statement, sender=ALICE, sender_id="alpha.h1"), sender=ALICE.public) == statement


def test_a_statement_by_another_key_or_with_another_signature_is_refused() -> None:
    token = sign({"epoch": 3}, sender=MALLORY, sender_id="alpha.h1")
    with pytest.raises(UnknownSender):
        verify_untrusted(token, sender=ALICE.public)
    good = sign({"epoch": 3}, sender=ALICE, sender_id="alpha.h1")
    other = sign({"epoch": 4}, sender=ALICE, sender_id="alpha.h1")
    with pytest.raises(Tampered):
        verify_untrusted(".".join([*good.split(".")[:2], other.split(".")[2]]), sender=ALICE.public)


@pytest.mark.parametrize("levels", [65, 900, 986, 100_000])
def test_a_statement_that_is_nested_too_deep_is_neither_written_nor_read(levels: int) -> None:
    text = ('{"a":' * levels + "1" + "}" * levels).encode()
    fields: dict[str, Any] = {}
    for _ in range(levels):
        fields = {"a": fields}
    with pytest.raises(ValueError, match="nested"):
        sign(fields, sender=ALICE, sender_id="alpha.h1")
    header = {"alg": "ES256", "typ": "batonpass-statement", "kid": ALICE.public.signing_kid, "iss": "alpha.h1"}
    with pytest.raises(Malformed):
        verify_untrusted(jws.sign(header, text, ALICE.signing), sender=ALICE.public)
    with pytest.raises(Malformed, match="nested"):
        jws.json_object_untrusted(text)


def test_a_statement_of_as_many_levels_as_are_read_comes_through() -> None:
    statement: dict[str, Any] = {}
    for _ in range(jws.MAX_JSON_LEVELS - 1):
        statement = {"a": statement}
    assert verify_untrusted(sign(statement, sender=ALICE, sender_id="alpha.h1"), sender=ALICE.public) == statement


def test_a_sealed_message_is_not_a_statement_and_a_statement_is_not_sealed() -> None:
    with pytest.raises(Malformed):
        verify_untrusted(seal_for_bob(), sender=ALICE.public)
    with pytest.raises(Malformed):
        open_as_bob(sign({}, sender=ALICE, sender_id="alpha.s1"))


def test_a_signed_thing_that_is_not_an_object_is_malformed() -> None:
    header = header_of(sign({}, sender=ALICE, sender_id="alpha.s1"))
    with pytest.raises(Malformed):
        verify_untrusted(sign_by_hand(header, b"[1]", ALICE), sender=ALICE.public)


def test_a_recorded_message_is_let_in_once() -> None:
    seen = Seen()

    def open_it(sealed: str, now_s: float = NOW_S) -> Opened:
        return open_untrusted(sealed, receiver=BOB, receiver_id="beta.s1", sender=ALICE.public, now_s=now_s, seen=seen)

    first, again = seal_for_bob(), seal_for_bob()
    open_it(first)
    with pytest.raises(Replayed):
        open_it(first)
    assert open_it(again).claims == CLAIMS  # sealed anew by its sender, it is another message
    with pytest.raises(Expired):
        open_it(first, CLAIMS.expires_at_s)


@given(st.lists(st.floats(-100, 700), min_size=1, max_size=8))
def test_a_recorded_message_is_let_in_once_however_often_the_clock_is_set_back_and_forth(ahead_s: list[float]) -> None:
    """What has expired by one time that was shown stays so: it was forgotten then."""
    seen, opened = Seen(), Counter[str]()
    messages = {name: seal_for_bob(claims=replace(CLAIMS, transfer_id=name)) for name in ("transfer-1", "transfer-2")}
    for later_s in ahead_s:
        for name, sealed in messages.items():
            try:
                open_untrusted(
                    sealed, receiver=BOB, receiver_id="beta.s1", sender=ALICE.public, now_s=NOW_S + later_s, seen=seen
                )
            except (Expired, Replayed, Malformed):
                continue
            opened[name] += 1
    assert all(times <= 1 for times in opened.values())


def test_the_error_of_a_message_that_is_late_names_the_clock() -> None:
    seen = Seen()
    with pytest.raises(Expired, match="by the clock here: it was kept back, or the two clocks differ"):
        open_untrusted(
            seal_for_bob(), receiver=BOB, receiver_id="beta.s1", sender=ALICE.public, now_s=CLAIMS.expires_at_s
        )
    seen.admit(b"another", sender="alpha.s1", expires_at_s=CLAIMS.expires_at_s + 100, now_s=CLAIMS.expires_at_s + 70)
    with pytest.raises(Expired, match=r"the clock here, which was set back by 100\.0 s since"):
        seen.admit(b"x", sender="alpha.s1", expires_at_s=CLAIMS.expires_at_s, now_s=CLAIMS.expires_at_s - 30)


def test_changing_the_signature_into_another_that_fits_does_not_make_it_new() -> None:
    """(r, n - s) verifies wherever (r, s) does, FIPS 186-5."""
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    seen, sealed = Seen(), seal_for_bob()
    signed, _, signature = sealed.rpartition(".")
    raw = unb64(signature)
    other = raw[:32] + (order - int.from_bytes(raw[32:], "big")).to_bytes(32, "big")
    for text, outcome in ((sealed, None), (f"{signed}.{b64(other)}", Replayed)):
        if outcome is None:
            open_untrusted(text, receiver=BOB, receiver_id="beta.s1", sender=ALICE.public, now_s=NOW_S, seen=seen)
        else:
            with pytest.raises(outcome):
                open_untrusted(text, receiver=BOB, receiver_id="beta.s1", sender=ALICE.public, now_s=NOW_S, seen=seen)


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from("abc"), st.integers(1, 12), st.floats(0, 3)), max_size=60))
def test_seen_remembers_exactly_what_is_still_valid(messages: list[tuple[int, str, int, float]]) -> None:
    seen, now_s, model = Seen(capacity=6, longest_life_s=10.0), 0.0, dict[int, tuple[float, str]]()
    for number, sender, lifetime_s, wait_s in messages:
        now_s += wait_s
        model = {known: held for known, held in model.items() if held[0] > now_s}
        shares = [holder for _, holder in model.values()]
        try:
            seen.admit(bytes([number]), sender=sender, expires_at_s=now_s + lifetime_s, now_s=now_s)
        except Malformed:
            assert (now_s + lifetime_s) - now_s > 10
            model = {known: held for known, held in model.items() if held[0] > now_s}
            continue
        except Replayed:
            assert number in model
        except SeenFull:
            assert number not in model
            assert shares.count(sender) >= 6 - len(model)
        else:
            assert number not in model
            model[number] = (now_s + lifetime_s, sender)
        assert len(seen) == len(model) <= 6


def test_one_sender_leaves_half_of_what_is_remembered_to_others() -> None:
    seen = Seen(capacity=100)

    def fill(sender: str) -> int:
        for number in range(101):
            try:
                seen.admit(f"{sender} {number}".encode(), sender=sender, expires_at_s=60, now_s=0)
            except SeenFull:
                return number
        raise AssertionError("it has no bound")

    assert [fill(sender) for sender in ("greedy", "likewise", "honest")] == [50, 25, 13]
    seen.admit(b"later", sender="greedy", expires_at_s=120, now_s=60)
    assert len(seen) == 1


@pytest.mark.parametrize("expires_at_s", [NOW_S + 601, 1e300])
def test_what_is_valid_for_longer_than_anybody_remembers_is_refused(expires_at_s: float) -> None:
    claims = replace(CLAIMS, expires_at_s=expires_at_s)
    sealed = seal(b"state", claims, sender=ALICE, receiver=BOB.public)
    seen = Seen()
    with pytest.raises(Malformed, match="valid for"):
        open_untrusted(sealed, receiver=BOB, receiver_id="beta.s1", sender=ALICE.public, now_s=NOW_S, seen=seen)
    assert not len(seen)
    with pytest.raises(Malformed, match="valid for"):
        open_untrusted(sealed, receiver=BOB, receiver_id="beta.s1", sender=ALICE.public, now_s=NOW_S)


# Keys that were replaced


def test_what_was_signed_with_or_sealed_for_keys_that_are_retiring_is_opened() -> None:
    alice, bob = rotated(ALICE, NOW_S + 10), rotated(BOB, NOW_S + 10)
    for sender in (ALICE, alice):
        for receiver in (BOB, bob):
            sealed = seal(b"state", CLAIMS, sender=sender, receiver=receiver.public)
            opened = open_untrusted(sealed, receiver=bob, receiver_id="beta.s1", sender=alice.public, now_s=NOW_S)
            assert opened.payload == b"state"


@pytest.mark.parametrize("is_sender", [True, False])
def test_after_the_overlap_they_have_expired_and_after_revocation_they_are_revoked(is_sender: bool) -> None:
    sealed = seal(b"", CLAIMS, sender=ALICE, receiver=BOB.public)

    def opens(of_alice: Identity, of_bob: Identity) -> None:
        open_untrusted(sealed, receiver=of_bob, receiver_id="beta.s1", sender=of_alice.public, now_s=NOW_S)

    whose = ALICE if is_sender else BOB
    late = rotated(whose, NOW_S)
    revoked = rotated(whose, NOW_S + 10).without(whose.public.signing_kid, now_s=NOW_S)
    for changed, expected in ((late, Expired), (revoked, Revoked)):
        with pytest.raises(expected, match=r"alpha\.s1"):
            opens(*((changed, BOB) if is_sender else (ALICE, changed)))


def test_one_generation_does_not_lend_its_signature_to_another() -> None:
    """`apu` is the very key that signed: who has an old signing key cannot wrap what was sealed by the new one."""
    both = rotated(ALICE, NOW_S + 10)
    sealed = seal(b"", CLAIMS, sender=both, receiver=BOB.public)
    inner = jws.read_untrusted(sealed, max_header_chars=2000, max_chars=5000).verify_untrusted(both.public.signing)
    header = header_of(sealed) | {"kid": ALICE.public.signing_kid}
    with pytest.raises(Tampered, match="signed what another had sealed"):
        open_untrusted(
            sign_by_hand(header, inner, ALICE),
            receiver=BOB,
            receiver_id="beta.s1",
            sender=both.public,
            now_s=NOW_S,
        )


def test_statements_are_checked_in_the_same_way() -> None:
    token = sign({"a": 1}, sender=ALICE, sender_id="alpha.s1")
    both = rotated(ALICE, NOW_S + 10)
    assert verify_untrusted(token, sender=both.public, now_s=NOW_S) == {"a": 1}
    assert verify_untrusted(token, sender=both.public) == {"a": 1}
    with pytest.raises(Expired, match=r"alpha\.s1"):
        verify_untrusted(token, sender=both.public, now_s=NOW_S + 10)
    with pytest.raises(Revoked):
        verify_untrusted(token, sender=both.without(ALICE.public.signing_kid, now_s=NOW_S).public)


def rotated(identity: Identity, end_s: float) -> Identity:
    return identity.rotated(Identity.generate(), now_s=NOW_S, overlap_s=end_s - NOW_S)
