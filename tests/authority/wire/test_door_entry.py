"""Who may come in at a door: a session is the word of a homeserver of the player's home, for a while, about a key."""

from typing import Any

import hypothesis.strategies as st
import pytest
import trio
from hypothesis import given, settings

from batonpass.actors.base.refusals import DoorRefused
from batonpass.authority.model.records import Role
from batonpass.authority.wire.door import DOOR_VERSION, DoorChallenge, DoorHello
from batonpass.authority.wire.door_entry import (
    MAX_PROVED_S,
    SESSION_S,
    DoorEntry,
    Entered,
    Known,
    sign_session,
)
from batonpass.crypto import jose
from batonpass.crypto.keys import Identity
from tests.budget import examples

ADA, BOB = "alpha.ada", "alpha.bob"
ROLES = {
    "alpha.h1": Role.HOMESERVER,
    "beta.h1": Role.HOMESERVER,
    "alpha.s1": Role.SIMSERVER,
    ADA: Role.PLAYER,
    BOB: Role.PLAYER,
}
KEYS = {name: Identity.generate() for name in ROLES}
NOW_S = 1_000_000.0
CHALLENGE = DoorChallenge(server="alpha.s1", challenge=bytes(32), versions=[DOOR_VERSION], tick_hz=20.0)


async def known(name: str) -> Known:
    role = ROLES.get(name)
    return (None, None) if role is None else (role, KEYS[name].public)


def session(player: str = ADA, by: str = "alpha.h1", given_s: float = NOW_S, proved_s: float | None = None) -> bytes:
    entered = Entered(player, KEYS[player].public.signing_kid, given_s if proved_s is None else proved_s)
    return sign_session(entered, signer=KEYS[by], signer_id=by, now_s=given_s)


def enter(token: bytes, player: str = ADA, now_s: float = NOW_S) -> Entered:
    entry = DoorEntry(known, lambda: now_s, observers=True)
    hello = DoorHello(version=DOOR_VERSION, player=player, token=token)
    return trio.run(entry.enter, hello, CHALLENGE)


def refused(token: bytes, player: str = ADA, now_s: float = NOW_S) -> None:
    with pytest.raises(DoorRefused) as why:
        enter(token, player, now_s)
    assert why.value.code == "bad_token"


def test_it_is_good_for_its_player_while_it_lasts_and_says_when_the_key_was_proved() -> None:
    token = session(proved_s=NOW_S - 1000)
    assert enter(token, now_s=NOW_S + SESSION_S - 1) == Entered(ADA, KEYS[ADA].public.signing_kid, NOW_S - 1000)
    refused(token, now_s=NOW_S + SESSION_S)
    refused(token, BOB)


@pytest.mark.parametrize("said", [{"proof": "a.b.c"}, {"token": b"t"}, {"player": ADA, "proof": "a", "token": b"t"}])
def test_half_a_hello_is_that_of_nobody(said: dict[str, Any]) -> None:
    entry = DoorEntry(known, lambda: NOW_S, observers=True)
    with pytest.raises(DoorRefused) as why:
        trio.run(entry.enter, DoorHello(version=DOOR_VERSION, **said), CHALLENGE)
    assert why.value.code == "bad_message"


@pytest.mark.parametrize("by", ["beta.h1", "alpha.s1", ADA, BOB])
def test_it_is_given_by_a_homeserver_of_the_players_home_and_by_nobody_else(by: str) -> None:
    refused(session(by=by))


def test_it_names_a_key_that_is_good_now() -> None:
    entered = Entered(ADA, Identity.generate().public.signing_kid, NOW_S)
    refused(sign_session(entered, signer=KEYS["alpha.h1"], signer_id="alpha.h1", now_s=NOW_S))


def test_half_a_day_after_the_proof_none_is_given_and_none_is_good() -> None:
    assert session(proved_s=NOW_S - MAX_PROVED_S) == b""
    assert session(proved_s=NOW_S + 1) == b""
    assert sign_session(Entered(), signer=KEYS["alpha.h1"], signer_id="alpha.h1", now_s=NOW_S) == b""
    token = session(proved_s=NOW_S - MAX_PROVED_S + 10)
    enter(token)
    refused(token, now_s=NOW_S + 11)


@pytest.mark.parametrize(
    "changed",
    [
        {"action": "enter"},
        {"player": BOB},
        {"kid": 7},
        {"proved_at_s": True},
        {"proved_at_s": NOW_S + 1000},
        {"expires_at_s": "soon"},
        {"expires_at_s": NOW_S + 3 * SESSION_S},
        {"expires_at_s": NOW_S - 1},
    ],
    ids=str,
)
def test_no_other_statement_of_a_homeserver_is_one(changed: dict[str, object]) -> None:
    statement = jose.peek_statement_untrusted(session().decode()) | changed
    refused(jose.sign(statement, sender=KEYS["alpha.h1"], sender_id="alpha.h1").encode())


@given(st.integers(0, 10_000), st.integers(1, 255))
@settings(max_examples=examples(100))
def test_no_bit_of_it_may_be_another_one(place: int, bits: int) -> None:
    token = bytearray(session())
    token[place % len(token)] ^= bits
    try:
        entered = enter(bytes(token))
    except DoorRefused:
        return
    # The last character of base64url has bits that mean nothing.
    assert entered.player == ADA
    assert place % len(token) == len(token) - 1
