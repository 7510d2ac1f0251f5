"""A key that its receiver has agreed on before the message comes opens that message, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.authority.errors import MessageError
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import Sealer
from batonpass.authority.wire.transfer import AdmitRequest, Parcel
from batonpass.crypto import jwe
from batonpass.crypto.keys import Identity

NOW_S = 1_000_000.0
ADA, BOB, EVE = (Identity.generate() for _ in range(3))


class Pair:
    """Ada, who seals, and Bob, who agrees ahead; `agreed` is how often he computed a key."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ada, self.bob = (
            Sealer.without_log("alpha.s1", ADA, agrees_ahead=True),
            Sealer.without_log("alpha.s2", BOB, agrees_ahead=True),
        )
        self.agreed = 0
        cipher_of = jwe.JweHeader.cipher_of

        def counted(header: jwe.JweHeader, key: ec.EllipticCurvePrivateKey) -> Any:
            self.agreed += 1
            return cipher_of(header, key)

        monkeypatch.setattr(jwe.JweHeader, "cipher_of", counted)
        self.opens(self.seal("first"))
        self.agreed = 0

    def seal(self, name: str, *, by: Identity = ADA) -> Parcel:
        sealer = self.ada if by is ADA else Sealer.without_log("alpha.s1", by)
        message = AdmitRequest(transfer_id="transfer-1", entity="alpha.e", target="alpha.s2")
        return sealer.seal(message, Trace(name), to="alpha.s2", keys=BOB.public, now_ns=1, now_s=NOW_S)

    def opens(self, parcel: Parcel, *, sender: Identity = ADA) -> str:
        opened = self.bob.open_untrusted(parcel, sender=sender.public, now_ns=2, now_s=NOW_S)
        return opened.trace.transfer_id

    def told(self, sender: str = "alpha.s1") -> bytes:
        header = self.ada.get_ready(BOB.public)
        self.bob.told_untrusted(sender, header, NOW_S)
        return header


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    return Pair(monkeypatch)


def test_the_message_that_it_was_told_of_costs_no_agreement(pair: Pair) -> None:
    assert pair.told()
    assert pair.agreed == 1
    parcel = pair.seal("one")
    assert (pair.opens(parcel), pair.agreed) == ("one", 1)
    # Once: who opens it again, or the next, agrees as ever.
    assert (pair.opens(parcel), pair.opens(pair.seal("two")), pair.agreed) == ("one", "two", 3)


def test_a_key_is_told_of_once(pair: Pair) -> None:
    assert pair.ada.get_ready(BOB.public)
    assert pair.ada.get_ready(BOB.public) == b""


def test_another_message_than_it_was_told_of_is_opened_as_ever(pair: Pair) -> None:
    other = pair.seal("other")
    pair.told()
    assert (pair.opens(other), pair.agreed) == ("other", 2)


def test_nobody_seals_in_anothers_name_with_a_key_that_was_told_ahead(pair: Pair) -> None:
    pair.told()
    with pytest.raises(MessageError):
        pair.opens(pair.seal("one", by=EVE))
    # What cannot be opened uses nothing up.
    assert (pair.opens(pair.seal("two")), pair.agreed) == ("two", 1)


def test_what_was_changed_on_the_way_is_not_opened_by_it(pair: Pair) -> None:
    pair.told()
    parcel = pair.seal("one")
    changed = parcel.sealed[:-9] + ("A" if parcel.sealed[-9] != "A" else "B") + parcel.sealed[-8:]
    with pytest.raises(MessageError):
        pair.opens(replace(parcel, sealed=changed))


def test_strangers_are_not_listened_to(pair: Pair) -> None:
    pair.told("alpha.stranger")
    assert pair.agreed == 0


@pytest.mark.parametrize("header", [b"", b"e30", b"....", b"x" * 2000])
def test_a_header_that_no_message_can_have_is_refused(pair: Pair, header: bytes) -> None:
    with pytest.raises(MessageError):
        pair.bob.told_untrusted("alpha.s1", header, NOW_S)


def test_a_message_for_somebody_else_is_refused_ahead(pair: Pair) -> None:
    with pytest.raises(MessageError):
        pair.bob.told_untrusted("alpha.s1", pair.ada.get_ready(EVE.public), NOW_S)


def test_with_other_keys_nothing_is_agreed_on_any_more(pair: Pair) -> None:
    pair.told()
    pair.bob.change_identity(EVE)
    pair.bob.change_identity(BOB)
    assert (pair.opens(pair.seal("one")), pair.agreed) == ("one", 2)


def test_who_agrees_ahead_says_so_in_what_it_seals(pair: Pair) -> None:
    assert pair.bob.agrees_ahead("alpha.s1")
    assert not pair.bob.agrees_ahead("alpha.s3")
    pair.ada = Sealer.without_log("alpha.s1", ADA)
    pair.opens(pair.seal("one"))
    assert not pair.bob.agrees_ahead("alpha.s1")


def test_keys_of_so_many_are_kept(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair.bob._agreed_with, "max_entries", 2)
    for name in ("alpha.s3", "alpha.s4", "alpha.s1"):
        pair.bob._readers[name] = True
        pair.bob.told_untrusted(name, Sealer.without_log(name, ADA).get_ready(BOB.public), NOW_S)
    assert list(pair.bob._agreed_with) == ["alpha.s4", "alpha.s1"]
