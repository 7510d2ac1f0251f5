"""The handshake: both sides prove their names, and nothing of one handshake is any good in another."""

import hashlib
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from batonpass.crypto.errors import CryptoError, Malformed, Tampered
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.crypto.public_keys import MAX_RETIRING
from batonpass.crypto.session import (
    HELLO_BYTES,
    Established,
    Hello,
    Initiator,
    Responder,
    _hello_mac,
    _sign,
    _transcript,
    echo_cookie,
    prove_cookie,
    read_hello_untrusted,
)
from batonpass.crypto.static_secrets import MAC_BYTES, StaticSecrets, mac

ALICE, BOB, MALLORY = Identity.generate(), Identity.generate(), Identity.generate()
A_EPHEMERAL, B_EPHEMERAL, OTHER_EPHEMERAL = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))


def alice_opens(
    *,
    name: str = "alpha.s1",
    identity: Identity = ALICE,
    peer: str = "beta.s1",
    peer_keys: PublicIdentity = BOB.public,
    ephemeral: ec.EllipticCurvePrivateKey = A_EPHEMERAL,
) -> Initiator:
    return Initiator(
        name=name,
        identity=identity,
        peer=peer,
        peer_keys=peer_keys,
        session_id=11,
        incarnation=2**64 - 1,
        generation=3,
        ephemeral=ephemeral,
    )


def read_as_bob(body: bytes) -> Hello:
    return read_hello_untrusted(body, responder="beta.s1", responder_keys=BOB.public)


def bob_answers(
    hello: bytes,
    *,
    identity: Identity = BOB,
    peer_keys: PublicIdentity = ALICE.public,
    ephemeral: ec.EllipticCurvePrivateKey = B_EPHEMERAL,
) -> Responder:
    return Responder(
        read_as_bob(hello), identity=identity, peer_keys=peer_keys, session_id=22, incarnation=5, ephemeral=ephemeral
    )


def shake() -> tuple[Established, Established]:
    initiator = alice_opens()
    responder = bob_answers(initiator.hello)
    at_alice, confirm = initiator.finish_untrusted(responder.accept)
    return at_alice, responder.finish_untrusted(confirm)


def test_both_sides_learn_each_others_session_and_incarnation() -> None:
    at_alice, at_bob = shake()
    assert (at_alice.peer_session_id, at_alice.peer_incarnation) == (22, 5)
    assert (at_bob.peer_session_id, at_bob.peer_incarnation) == (11, 2**64 - 1)


@given(st.binary(max_size=100), st.binary(max_size=30), st.integers(0, 2**64 - 1))
def test_what_one_side_seals_the_other_opens(plaintext: bytes, header: bytes, counter: int) -> None:
    at_alice, at_bob = shake()
    for sender, receiver in ((at_alice, at_bob), (at_bob, at_alice)):
        sealed = sender.session.seal(counter, header, plaintext)
        assert receiver.session.open_untrusted(counter, header, sealed) == plaintext


def test_a_datagram_is_bound_to_its_direction_counter_header_and_contents() -> None:
    at_alice, at_bob = shake()
    sealed = at_alice.session.seal(1, b"header", b"contents")
    for session, counter, header, data in (
        (at_alice.session, 1, b"header", sealed),
        (at_bob.session, 2, b"header", sealed),
        (at_bob.session, 1, b"headeR", sealed),
        (at_bob.session, 1, b"header", sealed[:-1]),
        (at_bob.session, 1, b"header", bytes([sealed[0] ^ 1]) + sealed[1:]),
        (at_bob.session, 1, b"header", b""),
    ):
        with pytest.raises(Tampered):
            session.open_untrusted(counter, header, data)


def test_the_answer_is_smaller_than_the_question() -> None:
    initiator = alice_opens(name="a" * 128)
    assert len(initiator.hello) == HELLO_BYTES
    assert len(bob_answers(alice_opens().hello).accept) < HELLO_BYTES


@given(st.integers(0, HELLO_BYTES - 1), st.integers(1, 255))
def test_a_changed_hello_is_dropped_by_its_mac(at: int, change: int) -> None:
    hello = bytearray(alice_opens().hello)
    hello[at] ^= change
    with pytest.raises(Malformed):
        read_as_bob(bytes(hello))


def test_a_hello_for_other_keys_or_another_name_is_dropped() -> None:
    with pytest.raises(Malformed, match="keys"):
        read_as_bob(alice_opens(peer_keys=MALLORY.public).hello)
    with pytest.raises(Malformed, match="another server"):
        read_as_bob(alice_opens(peer="beta.s2").hello)


@given(st.binary(max_size=1300))
def test_noise_raises_a_crypto_error_and_nothing_else(noise: bytes) -> None:
    initiator = alice_opens()
    for read in (read_as_bob, initiator.finish_untrusted, bob_answers(initiator.hello).finish_untrusted):
        with pytest.raises(CryptoError):
            read(noise)
        with pytest.raises(CryptoError):
            read(b"\x01" + noise)


@given(st.data())
def test_a_changed_accept_or_confirm_is_noticed(data: st.DataObject) -> None:
    initiator = alice_opens()
    responder = bob_answers(initiator.hello)
    _, confirm = initiator.finish_untrusted(responder.accept)
    for message, read in ((responder.accept, initiator.finish_untrusted), (confirm, responder.finish_untrusted)):
        changed = bytearray(message)
        changed[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
        with pytest.raises((Tampered, Malformed)):
            read(bytes(changed))


def test_mallory_cannot_answer_in_bobs_name() -> None:
    initiator = alice_opens()
    with pytest.raises(Tampered):
        initiator.finish_untrusted(bob_answers(initiator.hello, identity=MALLORY).accept)


def secrets_of(initiator: Initiator) -> list[bytes]:
    return initiator._secrets.as_initiator()


def test_mallory_cannot_open_in_alices_name() -> None:
    """Bob looks up Alice's keys because the HELLO says alpha.s1; what Mallory can make does not fit them."""
    mallory = alice_opens(identity=MALLORY)
    known, wrong = StaticSecrets(BOB, ALICE.public), StaticSecrets(BOB, MALLORY.public)
    assert not read_as_bob(mallory.hello).proves(known)
    assert read_as_bob(mallory.hello).proves(wrong)
    assert read_as_bob(alice_opens().hello).proves(known)
    responder = bob_answers(mallory.hello)
    with pytest.raises(Tampered):
        mallory.finish_untrusted(responder.accept)  # the static secrets differ already
    confirm = mallory.finish_untrusted(bob_answers(mallory.hello, peer_keys=MALLORY.public).accept)[1]
    with pytest.raises(Tampered):
        responder.finish_untrusted(confirm)


def test_with_a_stolen_agreement_key_mallory_gets_an_accept_and_no_session() -> None:
    """Alice's stolen key makes her MACs. Sessions hang on signatures."""
    thief = Identity(MALLORY.signing, ALICE.agreement)
    mallory = alice_opens(identity=thief)
    key = secrets_of(alice_opens())[0]
    mallory._secrets._keys = {(thief.public.signing_kid, True): key}
    mallory.take_cookie(0)
    assert read_as_bob(mallory.hello).proves(StaticSecrets(BOB, ALICE.public))
    responder = bob_answers(mallory.hello)
    forged = _sign(MALLORY, b"\x00batonpass link confirm 1\x00" + responder._confirmed)
    with pytest.raises(Tampered, match="signed"):
        responder.finish_untrusted(b"\x01" + forged + mac(key, b"\x03", responder._confirmed, forged))


def test_with_a_stolen_agreement_key_mallory_cannot_answer_in_bobs_name() -> None:
    alice = alice_opens()
    answer = bob_answers(alice.hello).accept
    core = answer[:78]
    transcript = _transcript(alice._core, core, ALICE.public, BOB.public)
    forged = _sign(MALLORY, b"\x00batonpass link accept 1\x00" + transcript)
    with pytest.raises(Tampered, match="signed"):
        alice.finish_untrusted(core + forged + mac(secrets_of(alice)[0], b"\x02", transcript, forged))


def opposite(keys: PublicIdentity, *, signing: bool) -> PublicIdentity:
    """`keys` with one of the two taken from Mallory."""
    other = MALLORY.public
    return PublicIdentity(other.signing, keys.agreement) if signing else PublicIdentity(keys.signing, other.agreement)


@pytest.mark.parametrize("signing", [True, False], ids=["signing", "agreement"])
@pytest.mark.parametrize("side", ["initiator", "responder"])
def test_the_transcript_names_all_four_static_keys(side: str, signing: bool) -> None:
    """So that a signature over it cannot be said to be made for somebody else (unknown key share)."""
    hello, core = alice_opens()._core, bob_answers(alice_opens().hello).accept[:-80]
    parties = {"initiator": ALICE.public, "responder": BOB.public}
    true = _transcript(hello, core, **parties)
    parties[side] = opposite(parties[side], signing=signing)
    assert _transcript(hello, core, **parties) != true


@pytest.mark.parametrize("at", [0, 7, 20, 60, -1])
def test_the_transcript_covers_what_both_sides_said(at: int) -> None:
    hello, core = alice_opens()._core, bob_answers(alice_opens().hello).accept[:-80]
    true = _transcript(hello, core, ALICE.public, BOB.public)
    for part in (hello, core):
        changed = bytearray(part)
        changed[at] ^= 1
        parts = (bytes(changed), core) if part is hello else (hello, bytes(changed))
        assert _transcript(*parts, ALICE.public, BOB.public) != true


def test_the_keys_of_a_session_are_those_of_its_transcript() -> None:
    """As docs/reference/protocol-link.md says, computed again from what was on the wire and one ephemeral key."""
    initiator = alice_opens()
    responder = bob_answers(initiator.hello)
    at_alice, confirm = initiator.finish_untrusted(responder.accept)
    at_bob = responder.finish_untrusted(confirm)
    kids = "".join(keys.signing_kid + keys.agreement_kid for keys in (ALICE.public, BOB.public))
    said = (
        initiator.hello[: HELLO_BYTES - (1 + MAX_RETIRING) * MAC_BYTES - MAC_BYTES]
        + responder.accept[: -64 - MAC_BYTES]
    )
    transcript = hashlib.sha256(said + kids.encode("ascii")).digest()
    secret = A_EPHEMERAL.exchange(ec.ECDH(), B_EPHEMERAL.public_key())
    keys = HKDF(hashes.SHA256(), length=40, salt=transcript, info=b"batonpass link keys 1").derive(secret)
    for session, key, salt in (
        (at_alice.session, keys[:16], keys[32:36]),
        (at_bob.session, keys[16:32], keys[36:]),
    ):
        expected = AESGCM(key).encrypt(salt + (5).to_bytes(8, "little"), b"contents", b"header")
        assert session.seal(5, b"header", b"contents") == expected


def test_the_same_ephemeral_keys_make_other_session_keys_in_another_handshake() -> None:
    """Only the session id of the responder differs: what is sealed in one cannot be opened in the other."""
    hello = alice_opens().hello
    sealed = []
    for session_id in (22, 23):
        responder = Responder(
            read_as_bob(hello),
            identity=BOB,
            peer_keys=ALICE.public,
            session_id=session_id,
            incarnation=5,
            ephemeral=B_EPHEMERAL,
        )
        sealed.append(responder._established.session.seal(1, b"", b"contents"))
    assert sealed[0] != sealed[1]


def test_a_proof_is_of_its_direction_cookie_and_fields() -> None:
    initiator = alice_opens()
    secrets = StaticSecrets(BOB, ALICE.public)
    hello = read_as_bob(initiator.hello)
    assert hello.proves(secrets)
    assert not replace(hello, cookie=1).proves(secrets)
    assert not replace(hello, core=hello.core[:-1] + b"x").proves(secrets)
    assert not replace(hello, proofs=hello.proofs[::-1]).proves(secrets)
    assert not replace(hello, proofs=b"").proves(secrets)
    assert secrets.as_initiator()[0] != secrets.as_responder(BOB.public.signing_kid) == secrets_of(initiator)[0]
    initiator.take_cookie(7)
    again = read_hello_untrusted(initiator.hello, cookie=7, responder="beta.s1", responder_keys=BOB.public)
    assert again.core == hello.core
    assert again.proves(secrets)


def test_whoever_knows_an_earlier_generation_of_keys_is_convinced_too() -> None:
    old = ALICE
    for _ in range(3):
        old = old.rotated(Identity.generate(), now_s=1_700_000_000, overlap_s=60)
    hello = read_as_bob(alice_opens(identity=old).hello)
    assert all(hello.proves(StaticSecrets(BOB, one)) for one in old.public.generations)
    assert not hello.proves(StaticSecrets(BOB, MALLORY.public))


def test_a_cookie_is_of_the_peer_or_of_somebody_who_saw_the_hello() -> None:
    initiator = alice_opens()
    hello, header = read_as_bob(initiator.hello), b"\x05" + bytes(15)
    proved, echoed = prove_cookie(StaticSecrets(BOB, ALICE.public), hello, header), echo_cookie(header, hello.mac)
    assert initiator.read_cookie_untrusted(header, proved)
    assert not initiator.read_cookie_untrusted(header, echoed)
    for body in (proved, echoed):
        with pytest.raises(Tampered):
            initiator.read_cookie_untrusted(b"\x05" + bytes(14) + b"x", body)
        with pytest.raises(Malformed):
            initiator.read_cookie_untrusted(header, body[:-1])
    initiator.take_cookie(3)  # the HELLO is another one now, and it is the same handshake
    assert initiator.read_cookie_untrusted(header, proved)
    for other, body in ((initiator, echoed), (alice_opens(ephemeral=OTHER_EPHEMERAL), proved)):
        with pytest.raises(Tampered):
            other.read_cookie_untrusted(header, body)


def test_a_recorded_confirm_does_not_fit_a_new_handshake() -> None:
    """The responder's ephemeral key is new each time, and it is signed."""
    initiator = alice_opens()
    _, recorded = initiator.finish_untrusted(bob_answers(initiator.hello).accept)
    again = bob_answers(initiator.hello, ephemeral=OTHER_EPHEMERAL)
    with pytest.raises(Tampered):
        again.finish_untrusted(recorded)


def test_a_recorded_accept_does_not_fit_a_new_handshake() -> None:
    recorded = bob_answers(alice_opens().hello).accept
    with pytest.raises(Tampered):
        alice_opens(ephemeral=OTHER_EPHEMERAL).finish_untrusted(recorded)


def test_the_same_static_keys_make_different_sessions() -> None:
    first = alice_opens()
    second = alice_opens(ephemeral=OTHER_EPHEMERAL)
    one, _ = first.finish_untrusted(bob_answers(first.hello).accept)
    two, _ = second.finish_untrusted(bob_answers(second.hello).accept)
    assert one.session.seal(0, b"", b"x" * 16) != two.session.seal(0, b"", b"x" * 16)
    assert one.session.seal(0, b"", b"x" * 16) == one.session.seal(0, b"", b"x" * 16)


def test_an_ephemeral_key_off_the_curve_is_malformed() -> None:
    hello = read_as_bob(alice_opens().hello)
    bent = Hello(hello.initiator, hello.responder, 1, 2, 3, b"\x04" + b"\x01" * 64, hello.core)
    with pytest.raises(Malformed):
        Responder(bent, identity=BOB, peer_keys=ALICE.public, session_id=1, incarnation=1, ephemeral=B_EPHEMERAL)


def with_valid_mac(body: bytearray) -> bytes:
    """Whoever knows Bob's public keys can make this."""
    return bytes(body[:-16]) + _hello_mac(BOB.public, bytes(body[:-16]))


@pytest.mark.parametrize(("at", "value"), [(82, 0), (82, 255), (83, 0), (83, 0xE9), (92, 0), (92, 250), (600, 1)])
def test_a_hello_with_nonsense_inside_is_malformed(at: int, value: int) -> None:
    """82 is the length of the first name, 83 its first byte, then the length of the second name, and padding."""
    body = bytearray(alice_opens(name="alpha.s1").hello)
    at = {92: 83 + len("alpha.s1")}.get(at, at)
    body[at] = value
    with pytest.raises(Malformed):
        read_as_bob(with_valid_mac(body))


def test_the_messages_have_the_sizes_of_the_protocol_document() -> None:
    initiator = alice_opens()
    responder = bob_answers(initiator.hello)
    _, confirm = initiator.finish_untrusted(responder.accept)
    assert (len(initiator.hello), len(responder.accept), len(confirm)) == (1184, 158, 81)
