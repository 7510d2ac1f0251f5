"""A simulation server asks its home instance for keys, which may lie, or be away."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import trio

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.client import HttpClient
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.trust.key_pinning import DIRECTORY, Pins, rows_proof
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import Sealer
from batonpass.authority.wire.transfer import Decline
from batonpass.crypto.continuity import Published, sign_successor
from batonpass.crypto.keys import Identity
from batonpass.crypto.pin_file import PinFile
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.home_client import FRESH_NS, KEYS_TTL_NS, SILENT_ROW_TTL_NS, UNKNOWN_KEY_NS, HomeClient
from tests.simserver.ports import clock_of, never

NOW_S = 1_700_000_000
TOKEN = b"a join token of some length"
OLD, NEW, THIEF = Identity.generate(), Identity.generate(), Identity.generate()
ROTATED = OLD.rotated(NEW, now_s=NOW_S, overlap_s=3600)
FIRST = DirectoryRow(name="alpha.s2", role=Role.SIMSERVER, keys=OLD.public.to_jwks())


def successor(name: str) -> str:
    """The statement with which the server of this name goes on from its first keys."""
    return sign_successor(name, Published(1, OLD.public), ROTATED.public, signer=OLD, now_s=NOW_S)


SECOND = FIRST.changed(keys=ROTATED.public.to_jwks(), version=2, statements=(successor("alpha.s2"),))
MEMBER = DirectoryRow(
    name="alpha.h1", role=Role.HOMESERVER, keys=OLD.public.to_jwks(), rest_url="http://h1", revision=1
)


class Hands(Clock):
    def __init__(self) -> None:
        self.now_ns = 0
        self.began_s = trio.current_time()

    def monotonic_ns(self) -> int:
        return self.now_ns + round((trio.current_time() - self.began_s) * 1e9)

    def unix_s(self) -> float:
        return NOW_S + self.monotonic_ns() / 1e9


class Place:
    """A home instance that shows whatever it is told to, with the right proof."""

    def __init__(self, pins: Pins | None = None) -> None:
        self.row: DirectoryRow | None = FIRST
        self.questions = 0
        self.clock = Hands()
        self.http = HttpClient(transport=httpx.MockTransport(self.answer))
        self.home = HomeClient(
            Sealer.without_log("alpha.s1", Identity.generate()),
            "alpha",
            ("http://h1",),
            TOKEN,
            self.http,
            clock_of(self.clock),
            lambda name: name in self.silent,
            pins,
        )
        self.silent: set[str] = set()
        self.home.bind(lambda: "")

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.questions += 1
        if self.row is None:
            raise httpx.ConnectError("away")
        if request.url.path == "/v1/cluster":
            return httpx.Response(200, json={"leader": "alpha.h1"})
        rows = [json.loads(json.dumps(self.row.to_data()))]
        proof = rows_proof(TOKEN, DIRECTORY, request.url.params["nonce"], rows)
        return httpx.Response(200, json={"rows": rows, "proof": proof})

    def later(self, ns: int) -> None:
        self.clock.now_ns += ns

    async def keys(self, kid: str = "") -> str:
        keys = await self.home.keys_of("alpha.s2", kid)
        assert keys is not None
        return keys.signing_kid


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    place = Place()
    yield place
    await place.http.aclose()


OLD_KID, NEW_KID = OLD.public.signing_kid, NEW.public.signing_kid


async def test_keys_are_asked_for_once_in_a_while(place: Place) -> None:
    for _ in range(5):
        assert await place.keys() == OLD_KID
    assert place.questions == 1
    place.row = SECOND
    assert await place.keys() == OLD_KID
    place.later(KEYS_TTL_NS)
    assert await place.keys() == NEW_KID


async def test_the_keys_of_a_server_that_does_not_answer_are_asked_for_sooner(place: Place) -> None:
    """It may have lost them, and been given others: it cannot read what is sealed with those."""
    assert await place.keys() == OLD_KID
    place.row = SECOND
    place.silent.add("alpha.s2")
    place.later(SILENT_ROW_TTL_NS // 10)
    assert await place.keys() == OLD_KID
    assert place.home.keys_at_hand("alpha.s2") is not None
    place.later(SILENT_ROW_TTL_NS)
    assert place.home.keys_at_hand("alpha.s2") is None
    assert await place.keys() == NEW_KID


async def test_a_key_that_is_not_known_makes_it_ask_at_once(place: Place) -> None:
    assert await place.keys(OLD_KID) == OLD_KID
    place.row = SECOND
    assert await place.keys(NEW_KID) == NEW_KID
    assert place.questions == 2
    place.later(UNKNOWN_KEY_NS)
    for _ in range(3):
        assert await place.keys(OLD_KID) == NEW_KID
    assert place.questions == 2


async def test_strangers_keys_cannot_make_it_ask_without_end(place: Place) -> None:
    before = trio.current_time()
    for _ in range(50):
        assert await place.keys("made up") == OLD_KID
    assert place.questions <= (trio.current_time() - before) / (UNKNOWN_KEY_NS / 1e9) + 2


async def test_a_handshake_asks_unless_that_was_a_moment_ago(place: Place) -> None:
    assert await place.home.handshakes.keys_of("alpha.s2") == OLD.public
    place.row = SECOND
    assert await place.home.handshakes.keys_of("alpha.s2") == OLD.public
    place.later(FRESH_NS)
    assert await place.home.handshakes.keys_of("alpha.s2") == ROTATED.public


async def test_while_nobody_can_say_the_known_keys_are_good(place: Place) -> None:
    assert await place.keys() == OLD_KID
    place.row = None
    for _ in range(5):
        place.later(KEYS_TTL_NS // 10)
        assert await place.keys() == OLD_KID
    assert place.questions == 1
    place.later(KEYS_TTL_NS)
    for _ in range(5):
        assert await place.keys() == OLD_KID
    assert place.questions == 2


async def test_the_end_of_an_overlap_needs_no_news(place: Place) -> None:
    place.row = SECOND
    keys = await place.home.keys_of("alpha.s2")
    assert keys is not None
    assert keys.retiring
    place.row = None
    place.later(3601 * 10**9)
    keys = await place.home.keys_of("alpha.s2")
    assert keys is not None
    assert not keys.retiring


@pytest.mark.parametrize("who", ["we", "the member", "nobody"])
async def test_what_was_under_way_when_a_key_was_revoked_is_not_refused_for_good(place: Place, who: str) -> None:
    sealer = Sealer.without_log("alpha.s1", OLD)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return place.answer(request)
        if who == "we":
            sealer.change_identity(NEW)
        elif who == "the member":
            place.row = MEMBER.changed(keys=SECOND.keys, version=2, statements=(successor("alpha.h1"),))
        place.later(FRESH_NS)
        return httpx.Response(400, json={"code": "bad_message", "message": "it does not open", "value": None})

    async with HttpClient(transport=httpx.MockTransport(answer)) as http:
        home = HomeClient(sealer, "alpha", ("http://h1",), TOKEN, http, clock_of(place.clock), never)
        home.bind(lambda: "")
        place.row = MEMBER
        await home.refresh_members()
        message = Decline(
            transfer_id="transfer-1", entity="alpha.ball", source="alpha.s1", target="alpha.s2", reason="draining"
        )
        (outcome,) = await home.ask_each([Letter(message, Trace("transfer-1"))])
    assert isinstance(outcome, HomeRefused if who == "nobody" else HomeUnreachable), outcome


@pytest.mark.parametrize("seen", [FIRST, SECOND])
async def test_a_home_that_lies_is_not_believed_also_after_a_restart(
    seen: DirectoryRow, tmp_path: Path, autojump_clock: object
) -> None:
    place = Place(Pins(PinFile(tmp_path / "pins")))
    place.row = seen
    expected = await place.keys()
    lies = [FIRST.changed(keys=THIEF.public.to_jwks()), SECOND.changed(keys=THIEF.public.to_jwks())]
    lies += [FIRST] if seen is SECOND else []
    for lie in lies:
        for pins in (None, Pins(PinFile(tmp_path / "pins"))):
            if pins is not None:
                place = Place(pins)
            place.row = lie
            place.later(KEYS_TTL_NS)
            assert await place.keys() == expected
            assert place.home.pins.counts["keys_refused"] > 0
            row = await place.home.row("alpha.s2")
            assert row is not None
            assert row.keys == seen.keys


async def test_the_role_of_a_name_is_known_while_home_is_away_also_after_a_restart(
    tmp_path: Path, autojump_clock: object
) -> None:
    """What is handed over directly needs nobody's leave then."""
    place = Place(Pins(PinFile(tmp_path / "pins")))
    assert await place.home.role_of("alpha.s2") is Role.SIMSERVER
    place.later(KEYS_TTL_NS)
    place.row = None
    assert await place.home.role_of("alpha.s2") is Role.SIMSERVER
    place = Place(Pins(PinFile(tmp_path / "pins")))
    place.row = None
    assert await place.home.role_of("alpha.s2") is Role.SIMSERVER
    with pytest.raises(HomeUnreachable):
        await place.home.role_of("alpha.s3")
