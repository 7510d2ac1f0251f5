"""A server replaces its keys: what was signed with, and sealed for, the old ones is good until the overlap ends."""

import json
import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from batonpass.crypto.errors import CryptoError, Expired, KeyFileError, Malformed, Revoked, UnknownSender, WrongReceiver
from batonpass.crypto.key_store import RING_FILE, KeyStore
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.crypto.public_keys import MAX_RETIRING
from tests.budget import examples

NOW_S = 1_700_000_000
OLD, NEW, NEWEST = Identity.generate(), Identity.generate(), Identity.generate()
ROTATED = OLD.rotated(NEW, now_s=NOW_S, overlap_s=3600.0)


def jwks_of(public: PublicIdentity) -> object:
    return json.loads(json.dumps(public.to_jwks()))


def test_the_newest_keys_are_the_current_ones() -> None:
    assert (ROTATED.signing, ROTATED.agreement) == (NEW.signing, NEW.agreement)
    assert ROTATED.public.signing_kid == NEW.public.signing_kid
    assert [one.public for one in ROTATED.generations] == [NEW.public, OLD.public]


@pytest.mark.parametrize("now_s", [NOW_S, NOW_S + 3599.9])
def test_the_old_keys_are_good_until_the_overlap_ends(now_s: float) -> None:
    assert ROTATED.public.signing_key(OLD.public.signing_kid, now_s) == OLD.public.signing
    assert ROTATED.agreement_key(OLD.public.agreement_kid, now_s) is OLD.agreement
    assert ROTATED.valid_at(now_s) is ROTATED


@pytest.mark.parametrize("now_s", [NOW_S + 3600, NOW_S + 1e9])
def test_then_they_are_expired(now_s: float) -> None:
    with pytest.raises(Expired, match=NEW.public.signing_kid):
        ROTATED.public.signing_key(OLD.public.signing_kid, now_s)
    with pytest.raises(Expired, match=NEW.public.agreement_kid):
        ROTATED.agreement_key(OLD.public.agreement_kid, now_s)
    assert [one.public for one in ROTATED.valid_at(now_s).generations] == [NEW.public]
    assert ROTATED.public.valid_at(now_s) == NEW.public
    assert ROTATED.public.signing_key(NEW.public.signing_kid, now_s) == NEW.public.signing


def test_a_key_that_was_never_there_is_unknown() -> None:
    with pytest.raises(UnknownSender, match=NEW.public.signing_kid):
        ROTATED.public.signing_key(NEWEST.public.signing_kid, NOW_S)
    with pytest.raises(WrongReceiver, match=NEW.public.agreement_kid):
        ROTATED.agreement_key(NEWEST.public.agreement_kid, NOW_S)
    with pytest.raises(UnknownSender):
        ROTATED.public.signing_key(OLD.public.agreement_kid, NOW_S)  # it never signs


def test_a_revoked_key_is_refused_at_once_with_its_sibling() -> None:
    revoked = ROTATED.without(OLD.public.signing_kid, now_s=NOW_S)
    with pytest.raises(Revoked, match=NEW.public.signing_kid):
        revoked.public.signing_key(OLD.public.signing_kid, NOW_S)
    with pytest.raises(Revoked):
        revoked.agreement_key(OLD.public.agreement_kid, NOW_S)
    assert revoked.public.signing_key(NEW.public.signing_kid, NOW_S) == NEW.public.signing
    assert revoked.generations[0].public == NEW.public


def test_revoking_the_current_keys_puts_fresh_ones_in_their_place() -> None:
    with pytest.raises(ValueError, match="new ones in their place"):
        ROTATED.without(NEW.public.agreement_kid, now_s=NOW_S)
    revoked = ROTATED.without(NEW.public.agreement_kid, now_s=NOW_S, fresh=NEWEST)
    assert revoked.signing is NEWEST.signing
    with pytest.raises(Revoked):
        revoked.public.signing_key(NEW.public.signing_kid, NOW_S)
    assert revoked.public.signing_key(OLD.public.signing_kid, NOW_S) == OLD.public.signing


def test_a_revocation_cannot_be_undone() -> None:
    revoked = ROTATED.without(OLD.public.signing_kid, now_s=NOW_S)
    for later in (revoked.rotated(NEWEST, now_s=NOW_S, overlap_s=1), revoked.valid_at(NOW_S + 1e9)):
        assert later.public.revoked.keys() >= {OLD.public.signing_kid, OLD.public.agreement_kid}
    with pytest.raises(ValueError, match="has been revoked"):
        revoked.rotated(OLD, now_s=NOW_S, overlap_s=1)
    with pytest.raises(KeyError):
        revoked.without(OLD.public.signing_kid, now_s=NOW_S)
    with pytest.raises(AttributeError):
        revoked.public.revoked.clear()  # type: ignore[attr-defined]  # it is no dictionary, on purpose


def test_too_many_rotations_in_one_overlap_are_refused_with_the_remedy() -> None:
    identity = OLD
    for _ in range(MAX_RETIRING):
        identity = identity.rotated(Identity.generate(), now_s=NOW_S, overlap_s=60)
    with pytest.raises(ValueError, match="rotate again in 60 s"):
        identity.rotated(Identity.generate(), now_s=NOW_S, overlap_s=60)
    assert identity.rotated(Identity.generate(), now_s=NOW_S + 60, overlap_s=60).retiring


def test_new_keys_can_open_before_they_sign() -> None:
    waiting = ROTATED.led_by(OLD.public.signing_kid, expires_at_s=NOW_S + 60)
    assert waiting.signing is OLD.signing
    assert waiting.agreement_key(NEW.public.agreement_kid, NOW_S) is NEW.agreement
    with pytest.raises(KeyError):
        ROTATED.led_by(NEWEST.public.signing_kid, expires_at_s=NOW_S)


def test_what_is_published_survives_json() -> None:
    revoked = ROTATED.rotated(NEWEST, now_s=NOW_S, overlap_s=60).without(OLD.public.signing_kid, now_s=NOW_S)
    for identity in (OLD, ROTATED, revoked):
        read = PublicIdentity.from_jwks_untrusted(jwks_of(identity.public))
        assert read == identity.public
        assert read.digest == identity.public.digest
    assert ROTATED.public != NEW.public


@pytest.mark.parametrize(
    "change",
    [
        {"keys": ROTATED.public.to_jwks()["keys"][:3]},
        {"keys": ROTATED.public.to_jwks()["keys"] * 2},
        {"keys": NEW.public.to_jwks()["keys"] * 2},
        {"keys": NEW.public.to_jwks()["keys"] + [key | {"exp": 1} for key in NEW.public.to_jwks()["keys"]]},
        {"keys": [key | {"exp": NOW_S} for key in OLD.public.to_jwks()["keys"]]},
        {"keys": [key | {"exp": 1.5} if "exp" in key else key for key in ROTATED.public.to_jwks()["keys"]]},
        {"keys": [key | {"exp": at} for at, key in enumerate(ROTATED.public.to_jwks()["keys"])]},
        {"revoked": []},
        {"revoked": {}},
        {"revoked": [{"kid": "me", "revoked_at": 1}]},
        {"revoked": [{"kid": NEWEST.public.signing_kid, "revoked_at": -1}]},
        {"revoked": [{"kid": NEWEST.public.signing_kid}]},
        {"revoked": [{"kid": NEW.public.signing_kid, "revoked_at": NOW_S}]},
        {"revoked": [{"kid": NEWEST.public.signing_kid, "revoked_at": NOW_S}] * 65},
    ],
)
def test_other_sets_are_malformed(change: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        PublicIdentity.from_jwks_untrusted(ROTATED.public.to_jwks() | change)


# Files


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    store = KeyStore(tmp_path / "keys")
    store.load_or_create()
    return store


def test_a_rotation_is_kept_with_the_versions_of_the_keys(store: KeyStore) -> None:
    first = store.load_ring()
    second = store.rotate("alpha.s1", now_s=NOW_S, overlap_s=60)
    loaded = store.load_ring()
    assert (first.version, second.version, loaded.version) == (1, 2, 2)
    assert loaded.identity.public == second.identity.public
    assert loaded.statements == second.statements
    assert loaded.identity.retiring[0].keys.public == first.identity.public
    for path in store.directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert store.load_or_create().public == second.identity.public


def test_private_keys_that_nothing_needs_any_more_are_removed(store: KeyStore) -> None:
    first = store.load_ring().identity
    store.rotate("alpha.s1", now_s=NOW_S, overlap_s=60)
    assert len(list(store.directory.glob("*.pem"))) == 4
    store.revoke("alpha.s1", first.public.agreement_kid, now_s=NOW_S)
    assert {path.name for path in store.directory.iterdir()} == {RING_FILE, "signing-2.pem", "agreement-2.pem"}
    store.rotate("alpha.s1", now_s=NOW_S, overlap_s=60)
    store.rotate("alpha.s1", now_s=NOW_S + 60, overlap_s=60)
    assert len(list(store.directory.glob("*.pem"))) == 4
    with pytest.raises(KeyError):
        store.revoke("alpha.s1", first.public.signing_kid, now_s=NOW_S)


@pytest.mark.parametrize("has_ring", [False, True])
def test_a_crash_at_any_write_leaves_the_old_keys_or_the_new(
    store: KeyStore, has_ring: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.load_or_create().public
    if has_ring:
        before = store.rotate("alpha.s1", now_s=NOW_S, overlap_s=60).identity.public
    real = os.fsync
    for survives in range(12):
        left = survives

        def failing(descriptor: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError("the power is gone")
            real(descriptor)

        with monkeypatch.context() as crash:
            crash.setattr(os, "fsync", failing)
            try:
                store.revoke("alpha.s1", before.signing_kid, now_s=NOW_S)
            except (OSError, KeyFileError):
                interrupted = True
            else:
                interrupted = False
        found = store.load_ring().identity.public
        assert found == before or before.signing_kid in found.revoked
        if found != before:
            assert interrupted or survives > 3
            break
    else:
        raise AssertionError("it never got through")


def test_without_its_ring_a_rotated_store_is_refused(store: KeyStore) -> None:
    store.rotate("alpha.s1", now_s=NOW_S, overlap_s=60)
    ring = store.directory / RING_FILE
    text = ring.read_text()
    ring.unlink()
    with pytest.raises(KeyFileError, match=r"ring\.json is missing"):
        store.load_or_create()
    for damaged in ("", "{}", "[]", "[" * 5000, text[:-20], text.replace("signing-2", "signing-9")):
        ring.write_text(damaged)
        ring.chmod(0o600)
        with pytest.raises(KeyFileError, match="restore it"):
            store.load_or_create()
    ring.write_text(text)
    ring.chmod(0o644)
    with pytest.raises(KeyFileError, match="chmod 600"):
        store.load_or_create()


def test_a_directory_without_keys_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="baton keys new"):
        KeyStore(tmp_path).load_ring()


class LifeOfKeys(RuleBasedStateMachine):
    """Against a dumb twin: for each key ever made, when it ends, and whether it was revoked."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = float(NOW_S)
        self.identity = Identity.generate()
        self.ends = {self.identity.public.signing_kid: float("inf")}
        self.agreements = {self.identity.public.signing_kid: self.identity.public.agreement_kid}
        self.revoked: set[str] = set()

    def _arrived(self, identity: Identity) -> None:
        self.identity = identity
        self.ends[identity.public.signing_kid] = float("inf")
        self.agreements[identity.public.signing_kid] = identity.public.agreement_kid

    @rule(overlap_s=st.integers(0, 100))
    def rotate(self, overlap_s: int) -> None:
        old = self.identity.public.signing_kid
        try:
            rotated = self.identity.rotated(Identity.generate(), now_s=self.now_s, overlap_s=overlap_s)
        except ValueError:
            assert len(self.identity.valid_at(self.now_s).retiring) == MAX_RETIRING
            return
        self.ends[old] = self.now_s + overlap_s
        self._arrived(rotated)

    @rule(data=st.data())
    @precondition(lambda self: len(self.revoked) < 20)
    def revoke(self, data: st.DataObject) -> None:
        kid = data.draw(st.sampled_from([one.public.signing_kid for one in self.identity.generations]))
        self._arrived(self.identity.without(kid, now_s=self.now_s, fresh=Identity.generate()))
        self.revoked.add(kid)

    @rule(seconds=st.integers(0, 60))
    def wait(self, seconds: int) -> None:
        self.now_s += seconds

    @rule()
    def publish(self) -> None:
        assert PublicIdentity.from_jwks_untrusted(jwks_of(self.identity.public)) == self.identity.public

    @invariant()
    def keys_are_good_for_as_long_as_they_should_be(self) -> None:
        for kid, end_s in self.ends.items():
            expected = kid not in self.revoked and self.now_s < end_s
            assert self._is_taken(kid) is expected
            if kid in self.revoked:
                with pytest.raises(Revoked):
                    self.identity.public.signing_key(kid, self.now_s)

    def _is_taken(self, kid: str) -> bool:
        try:
            self.identity.public.signing_key(kid, self.now_s)
        except CryptoError:
            with pytest.raises(CryptoError):
                self.identity.agreement_key(self.agreements[kid], self.now_s)
            return False
        assert isinstance(self.identity.agreement_key(self.agreements[kid], self.now_s), ec.EllipticCurvePrivateKey)
        return True


LifeOfKeys.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=20, deadline=None)
TestLifeOfKeys = LifeOfKeys.TestCase


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9), st.lists, max_leaves=9))
def test_any_json_is_a_key_set_or_malformed(value: object) -> None:
    for candidate in (value, {"keys": value}, ROTATED.public.to_jwks() | {"revoked": [value]}):
        with pytest.raises(Malformed):
            PublicIdentity.from_jwks_untrusted(candidate)
