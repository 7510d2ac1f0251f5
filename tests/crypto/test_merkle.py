"""Many statements under one signature: each can be shown by itself, and nothing else can be shown in its place."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.crypto import base64url, jose
from batonpass.crypto.errors import CryptoError, Malformed, Tampered, UnknownSender
from batonpass.crypto.keys import Identity
from batonpass.crypto.merkle import MAX_LEAVES, MAX_PROOF_BYTES, root_and_proofs, root_untrusted
from batonpass.crypto.verified import Verified

ALICE, MALLORY = Identity.generate(), Identity.generate()
texts = st.lists(st.binary(max_size=8), min_size=1, max_size=40)


@given(texts)
def test_every_text_has_its_way_to_the_root(leaves: list[bytes]) -> None:
    root, proofs = root_and_proofs(leaves)
    assert [root_untrusted(leaf, proof) for leaf, proof in zip(leaves, proofs, strict=True)] == [root] * len(leaves)


@given(texts, st.data())
def test_no_other_text_and_no_other_way_leads_there(leaves: list[bytes], data: st.DataObject) -> None:
    root, proofs = root_and_proofs(leaves)
    at = data.draw(st.integers(0, len(leaves) - 1))
    other = data.draw(st.binary(max_size=8).filter(lambda text: text != leaves[at]))
    assert root_untrusted(other, proofs[at]) != root
    bit = data.draw(st.integers(0, 8 * len(proofs[at]) - 1))
    changed = bytearray(proofs[at])
    changed[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(Malformed):
        assert root_untrusted(leaves[at], bytes(changed)) != root or leaves.count(leaves[at]) > 1


def test_an_inner_node_is_no_text_and_trees_are_not_mixed_up() -> None:
    root, proofs = root_and_proofs([b"a", b"b", b"c", b"d"])
    left = root_and_proofs([b"a", b"b"])[0]
    right = root_and_proofs([b"c", b"d"])[0]
    assert root_untrusted(left + right, proofs[0][:2]) != root
    assert root_and_proofs([b"a"])[0] != root_and_proofs([b"a", b"a"])[0]


@pytest.mark.parametrize(
    "proof", [b"", b"\0", bytes(33), bytes(2 + 31), b"\0\1", b"\0\2" + bytes(32), bytes(2 + 32 * 11)]
)
def test_what_is_no_proof_is_malformed(proof: bytes) -> None:
    with pytest.raises(Malformed):
        root_untrusted(b"a", proof)


def test_a_tree_has_leaves_but_not_too_many() -> None:
    for count in (0, MAX_LEAVES + 1):
        with pytest.raises(ValueError, match="leaves"):
            root_and_proofs([b""] * count)
    assert max(map(len, root_and_proofs([b""] * MAX_LEAVES)[1])) == MAX_PROOF_BYTES


STATEMENTS = [{"number": number} for number in range(5)]


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_statements_signed_together_are_what_they_would_be_alone(count: int) -> None:
    tokens = jose.sign_all(STATEMENTS[:count], sender=ALICE, sender_id="alpha.s1")
    assert [jose.verify_untrusted(token, sender=ALICE.public) for token in tokens] == STATEMENTS[:count]
    assert {jose.peek_sender_untrusted(token) for token in tokens} <= {"alpha.s1"}
    assert {jose.peek_key_untrusted(token) for token in tokens} <= {ALICE.public.signing_kid}
    for token in tokens:
        with pytest.raises(UnknownSender):
            jose.verify_untrusted(token, sender=MALLORY.public)


def test_their_signature_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    verified, tokens = Verified(), jose.sign_all(STATEMENTS, sender=ALICE, sender_id="alpha.s1")
    jose.verify_untrusted(tokens[0], sender=ALICE.public, verified=verified)
    monkeypatch.setattr(jose, "_fitting_untrusted", lambda *_: pytest.fail("it was verified"))
    assert [jose.verify_untrusted(token, sender=ALICE.public, verified=verified) for token in tokens] == STATEMENTS
    assert len(verified) == 1


def test_a_statement_that_was_not_among_them_is_refused_though_their_signature_is_known() -> None:
    verified, tokens = Verified(), jose.sign_all(STATEMENTS, sender=ALICE, sender_id="alpha.s1")
    jose.verify_untrusted(tokens[0], sender=ALICE.public, verified=verified)
    head, leaf, proof = tokens[0].split("~")
    forged = base64url.encode(b'{"number":7}').decode()
    alone = jose.sign(STATEMENTS[0], sender=ALICE, sender_id="alpha.s1")
    wrong: list[tuple[str, type[CryptoError]]] = [
        (f"{head}~{forged}~{proof}", Tampered),
        (f"{head}~{leaf}~{tokens[1].split('~')[2]}", Tampered),
        (f"{head}~{leaf}", Malformed),
        (f"{head}~~{proof}", Tampered),
        (f"{head}~{leaf}~{proof}~", Malformed),
        (f"{head}~{leaf}~{'A' * 2000}", Malformed),
        (f"{head}~{leaf}~é", Malformed),
        (head, Malformed),
        (f"{alone}~{leaf}~{proof}", Malformed),
    ]
    for token, error in wrong:
        with pytest.raises(error):
            jose.verify_untrusted(token, sender=ALICE.public, verified=verified)


@given(st.integers(2, 70), st.data())
def test_what_neighbours_have_in_common_proves_nothing_for_others(count: int, data: st.DataObject) -> None:
    """The upper part of a way up is known from neighbours: a lower part that is not theirs does not lead to it."""
    texts = [bytes([number]) for number in range(count)]
    root, proofs = root_and_proofs(texts)
    place = data.draw(st.integers(0, count - 1))
    assert root_untrusted(texts[place], proofs[place]) == root
    other = data.draw(st.integers(0, count - 1).filter(lambda other: other != place))
    assert root_untrusted(texts[place], proofs[other]) != root
    at = data.draw(st.integers(2, len(proofs[place]) - 1))
    changed = proofs[place][:at] + bytes([proofs[place][at] ^ 1]) + proofs[place][at + 1 :]
    assert root_untrusted(texts[place], changed) != root
