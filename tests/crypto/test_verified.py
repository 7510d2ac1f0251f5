"""A signature is verified once; that its key is good, and that it is this very string, is asked every time."""

import pytest

from batonpass.crypto.errors import Revoked, Tampered, UnknownSender
from batonpass.crypto.jose import sign, verify_untrusted
from batonpass.crypto.keys import Identity
from batonpass.crypto.verified import Verified

ALICE, MALLORY = Identity.generate(), Identity.generate()
NOW_S = 1_700_000_000.0
STATEMENT = {"entity": "alpha.ball"}


def signed() -> str:
    return sign(STATEMENT, sender=ALICE, sender_id="alpha.h1")


class Counting:
    """A key that counts how often a signature is verified with it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from batonpass.crypto import jws

        self.times = 0
        real = jws.CompactJws.verify_untrusted

        def counted(compact: jws.CompactJws, key: object) -> bytes:
            self.times += 1
            return real(compact, key)  # type: ignore[arg-type]

        monkeypatch.setattr(jws.CompactJws, "verify_untrusted", counted)


def test_what_was_verified_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counting, verified, token = Counting(monkeypatch), Verified(), signed()
    for _ in range(3):
        assert verify_untrusted(token, sender=ALICE.public, verified=verified) == STATEMENT
    assert (counting.times, len(verified)) == (1, 1)
    verify_untrusted(signed(), sender=ALICE.public, verified=verified)
    assert counting.times == 2, "another signature of the same statement is another string"


def test_what_does_not_fit_is_not_remembered() -> None:
    verified, token = Verified(), signed()
    head, payload, _ = token.split(".")
    another = sign({"entity": "alpha.box"}, sender=ALICE, sender_id="alpha.h1")
    forged = ".".join((head, payload, another.split(".")[2]))
    for _ in range(2):
        with pytest.raises(Tampered, match=r"in the name of alpha\.h1"):
            verify_untrusted(forged, sender=ALICE.public, verified=verified)
    assert len(verified) == 0


def test_a_key_that_is_not_good_any_more_is_refused_however_often_it_was_verified() -> None:
    verified, token = Verified(), signed()
    verify_untrusted(token, sender=ALICE.public, verified=verified)
    revoked = ALICE.without(ALICE.public.signing_kid, now_s=NOW_S, fresh=Identity.generate())
    with pytest.raises(Revoked):
        verify_untrusted(token, sender=revoked.public, verified=verified)
    with pytest.raises(UnknownSender):
        verify_untrusted(token, sender=MALLORY.public, verified=verified)


def test_beyond_its_capacity_it_forgets_what_was_not_used_for_longest() -> None:
    verified = Verified(2)
    verified.note("a", "k")
    verified.note("b", "k")
    assert verified.knows("a", "k")
    verified.note("c", "k")
    assert [verified.knows(token, "k") for token in "abc"] == [True, False, True]
    assert not verified.knows("a", "another key")
    assert len(verified) == 2
