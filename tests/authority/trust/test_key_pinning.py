"""What a server believes of the keys of others, when rows come through people who lie."""

from functools import cache
from pathlib import Path

import pytest

from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.trust import key_pinning as pins_module
from batonpass.authority.trust.key_pinning import Pins, published
from batonpass.crypto.continuity import Published, first_pin, sign_reset, sign_successor
from batonpass.crypto.errors import KeyConflict, KeyFileError
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.crypto.pin_file import PinFile
from tests.crypto.test_pin_file import room_for

NOW_S = 1_700_000_000
ALICE, RENEWED, THIEF, HOME = (Identity.generate() for _ in range(4))
ROTATED = ALICE.rotated(RENEWED, now_s=NOW_S, overlap_s=60)


def row_of(name: str, shown: Published, role: Role = Role.SIMSERVER) -> DirectoryRow:
    return DirectoryRow(
        name=name,
        role=role,
        keys=shown.keys.to_jwks(),
        version=shown.version,
        statements=shown.statements,
    )


def first(name: str = "alpha.s1", identity: Identity = ALICE, role: Role = Role.SIMSERVER) -> DirectoryRow:
    return row_of(name, Published(1, identity.public), role)


@cache
def second(signer: Identity = ALICE, keys: PublicIdentity = ROTATED.public, name: str = "alpha.s1") -> DirectoryRow:
    old = Published(1, ALICE.public)
    return row_of(name, Published(2, keys, (sign_successor(name, old, keys, signer=signer, now_s=NOW_S),)))


@cache
def reset(by: str = "alpha.h1", signer: Identity = HOME, name: str = "alpha.s1") -> DirectoryRow:
    token = sign_reset(
        name, Published(1, ALICE.public), RENEWED.public, signer=signer, signer_id=by, now_s=NOW_S, reason="lost"
    )
    return row_of(name, Published(2, RENEWED.public, (token,)))


def test_keys_are_pinned_on_first_use_and_followed() -> None:
    pins = Pins()
    assert pins.believed(first(), now_s=NOW_S) == first()
    assert pins.believed(second(), now_s=NOW_S) == second()
    assert pins.counts == {"keys_pinned": 1, "keys_followed": 1}
    assert not pins.conflicts


@pytest.mark.parametrize(
    "lie",
    [
        first(identity=THIEF),
        second(THIEF, THIEF.public),
        row_of("alpha.s1", Published(9, THIEF.public, second().statements)),
        second().changed(keys=THIEF.public.to_jwks()),
        second().changed(statements=()),
        second(name="alpha.s2").changed(name="alpha.s1"),
        first().changed(keys={"keys": []}),
    ],
)
def test_a_relay_that_swaps_a_key_changes_nothing(lie: DirectoryRow) -> None:
    pins = Pins()
    pins.believed(first(), now_s=NOW_S)
    for _ in range(2):
        used = pins.believed(lie, now_s=NOW_S)
        assert PublicIdentity.from_jwks_untrusted(used.keys) == ALICE.public
    assert pins.counts["keys_refused"] == 2
    assert "alpha.s1" in pins.conflicts
    assert pins.believed(second(), now_s=NOW_S) == second()
    assert not pins.conflicts


def test_a_relay_that_rolls_back_changes_nothing() -> None:
    pins = Pins()
    pins.believed(second(), now_s=NOW_S)
    assert pins.believed(first(), now_s=NOW_S) == second()  # with its statements: for those who have seen less
    assert pins.counts["keys_refused"] == 1


def test_of_two_views_the_one_seen_first_stays() -> None:
    forked = second(keys=THIEF.public)
    for seen, later in ((second(), forked), (forked, second())):
        pins = Pins()
        pins.believed(first(), now_s=NOW_S)
        pins.believed(seen, now_s=NOW_S)
        assert pins.believed(later, now_s=NOW_S).keys == seen.keys
        assert "two different versions 2" in pins.conflicts["alpha.s1"]


def test_a_name_keeps_its_role() -> None:
    pins = Pins()
    pins.believed(first(), now_s=NOW_S)
    for role in (Role.HOMESERVER, Role.PLAYER):
        with pytest.raises(KeyConflict, match=f"a simserver, and now shown as a {role}"):
            pins.believed(first(role=role), now_s=NOW_S)


def test_a_first_row_without_sound_keys_cannot_be_used() -> None:
    for bad in (first().changed(keys={}), first().changed(name="nonsense"), second().changed(version=3)):
        with pytest.raises(KeyConflict):
            Pins().believed(bad, now_s=NOW_S)


def test_a_reset_counts_when_a_homeserver_of_its_instance_that_is_pinned_has_signed_it() -> None:
    pins = Pins()
    pins.believed(first(), now_s=NOW_S)
    assert pins.resetter_of(reset()) is None
    assert pins.believed(reset(), now_s=NOW_S, current=("alpha.h1",)).keys == ALICE.public.to_jwks()
    pins.believed(first("alpha.h1", HOME, Role.HOMESERVER), now_s=NOW_S)
    assert pins.resetter_of(reset()) == "alpha.h1"
    assert pins.believed(reset(), now_s=NOW_S, current=("alpha.h1",)) == reset()
    assert pins.counts["keys_reset"] == 1
    assert pins.resetter_of(reset()) is None
    assert pins.resetter_of(reset(name="alpha.s2")) is None


def test_a_reset_does_not_count_before_its_homeservers_own_keys_were_followed() -> None:
    """The pin of the homeserver may be old; then a key that it gave up long ago looks like its current one."""
    pins = Pins()
    pins.believed(first(), now_s=NOW_S)
    pins.believed(first("alpha.h1", HOME, Role.HOMESERVER), now_s=NOW_S)
    assert pins.believed(reset(), now_s=NOW_S).keys == ALICE.public.to_jwks()
    assert "what keys alpha.h1 itself has today is not known" in pins.conflicts["alpha.s1"]
    rotated = HOME.rotated(RENEWED, now_s=NOW_S, overlap_s=60)
    statement = sign_successor("alpha.h1", Published(1, HOME.public), rotated.public, signer=HOME, now_s=NOW_S)
    today = row_of("alpha.h1", Published(2, rotated.public, (statement,)), Role.HOMESERVER)
    assert pins.believed(today, now_s=NOW_S) == today
    assert pins.believed(reset(), now_s=NOW_S + 60, current=("alpha.h1",)).keys == ALICE.public.to_jwks()
    assert "ended 0 s ago" in pins.conflicts["alpha.s1"]
    assert pins.believed(reset(), now_s=NOW_S + 59, current=("alpha.h1",)) == reset()


@pytest.mark.parametrize(
    ("by", "role"), [("beta.h1", Role.HOMESERVER), ("alpha.s2", Role.SIMSERVER), ("alpha.ada", Role.PLAYER)]
)
def test_nobody_else_can_reset_keys(by: str, role: Role) -> None:
    pins = Pins()
    pins.believed(first(), now_s=NOW_S)
    pins.believed(first(by, HOME, role), now_s=NOW_S)
    assert pins.believed(reset(by), now_s=NOW_S, current=(by,)).keys == ALICE.public.to_jwks()


def test_a_homeserver_does_not_reset_itself() -> None:
    pins = Pins()
    pins.believed(first("alpha.h1", ALICE, Role.HOMESERVER), now_s=NOW_S)
    itself = reset("alpha.h1", ALICE, "alpha.h1").changed(role=Role.HOMESERVER)
    assert pins.believed(itself, now_s=NOW_S, current=("alpha.h1",)).keys == ALICE.public.to_jwks()


def test_pins_outlive_the_server(tmp_path: Path) -> None:
    pins = Pins(PinFile(tmp_path / "pins"))
    pins.believed(second(), now_s=NOW_S)
    pins.believed(first("alpha.ada", HOME, Role.PLAYER), now_s=NOW_S)
    again = Pins(PinFile(tmp_path / "pins"))
    assert len(again) == 2
    assert again.believed(first(), now_s=NOW_S) == second()
    assert again.forget("alpha.s1")
    assert not again.forget("alpha.s1")
    assert Pins(PinFile(tmp_path / "pins")).believed(first(identity=THIEF), now_s=NOW_S) == first(identity=THIEF)


def test_an_instance_can_only_push_out_pins_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_module, "MAX_PINNED_SERVERS", 3)
    monkeypatch.setattr(pins_module, "MAX_PINNED_PLAYERS", 2)
    monkeypatch.setattr(pins_module, "MAX_INSTANCES", 2)
    pins = Pins()
    pins.believed(first("beta.s1"), now_s=NOW_S)
    for number in range(10):
        pins.believed(first(f"alpha.s{number}"), now_s=NOW_S)
        pins.believed(first(f"alpha.p{number}", role=Role.PLAYER), now_s=NOW_S)
    assert len(pins) == 6
    assert pins.pin_of("beta.s1") is not None
    assert pins.pin_of("alpha.s0") is None
    with pytest.raises(KeyConflict, match="one more instance"):
        pins.believed(first("gamma.s1"), now_s=NOW_S)


def test_what_people_are_told_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_module, "MAX_CONFLICTS", 3)
    pins = Pins()
    for number in range(9):
        pins.believed(first(f"alpha.s{number}"), now_s=NOW_S)
        pins.believed(first(f"alpha.s{number}", THIEF), now_s=NOW_S)
    assert list(pins.conflicts) == ["alpha.s6", "alpha.s7", "alpha.s8"]


def test_a_full_disk_costs_nothing_but_what_a_restart_forgets(tmp_path: Path) -> None:
    path = tmp_path / "pins"
    pins = Pins(PinFile(path))
    pins.believed(first(), now_s=NOW_S)
    with room_for(path, 40):
        assert pins.believed(second(), now_s=NOW_S) == second()
        pins.believed(first("alpha.s2"), now_s=NOW_S)
        assert pins.counts["pins_not_written"] == 2
        with pytest.raises(KeyFileError):
            pins.forget("alpha.s1")
        assert pins.believed(first(identity=THIEF), now_s=NOW_S) == second()
        assert Pins(PinFile(path)).pin_of("alpha.s1") == first_pin("alpha.s1", published(first()))
    pins.believed(first("alpha.s3"), now_s=NOW_S)
    again = Pins(PinFile(path))
    assert len(again) == 3
    assert again.believed(first(), now_s=NOW_S) == second()
