"""Whom a simulation server asks: also homeservers that have registered since it did."""

import json

import httpx
import pytest
import trio
import trio.testing

from actors.clock import Clock
from actors.http_client import HttpClient
from authority.enrolment import DIRECTORY, rows_proof
from authority.hops import Trace
from authority.lease_messages import digest_of_members
from authority.letters import Letter
from authority.log_messages import HeldInquiry
from authority.messages import OwnerRequest
from authority.records import DirectoryRow, Role
from authority.sealing import Sealer
from crypto.keys import Identity
from simserver.home import Home, HomeUnreachable

TOKEN = b"a join token of some length"


def member(name: str) -> DirectoryRow:
    keys = Identity.generate().public.to_jwks()
    return DirectoryRow(name=name, role=Role.HOMESERVER, keys=keys, rest_url=f"http://{name}")


class Instance:
    """Homeservers that have registered so far, and one that says so."""

    def __init__(self) -> None:
        self.rows = [member("alpha.h1"), member("alpha.h2")]
        self.is_there = True
        self.http = HttpClient(transport=httpx.MockTransport(self._answer))
        self.home = Home(Sealer("alpha.s1", Identity.generate()), "alpha", ("http://h",), TOKEN, self.http, Clock())

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if not self.is_there:
            raise httpx.ConnectError("away")
        if request.url.path == "/v1/cluster":
            return httpx.Response(200, json={"leader": "alpha.h1"})
        rows = json.loads(json.dumps([row.to_data() for row in self.rows]))
        proof = rows_proof(TOKEN, DIRECTORY, request.url.params["nonce"], rows)
        return httpx.Response(200, json={"rows": rows, "proof": proof})

    def asked(self) -> list[str]:
        return [row.name for row in self.home.members()]


async def test_who_is_named_is_asked_first_and_who_named_it_last() -> None:
    instance = Instance()
    await instance.home.refresh_members()
    assert instance.asked() == ["alpha.h1", "alpha.h2"]
    await instance.home.prefer("alpha.h2", to="alpha.h1")
    assert instance.asked() == ["alpha.h2", "alpha.h1"]
    await instance.http.aclose()


async def test_one_that_has_registered_since_is_found_when_it_is_named() -> None:
    """Or nobody would ever ask it, as long as the others answer that it is the one to ask."""
    instance = Instance()
    await instance.home.refresh_members()
    instance.rows.append(member("alpha.h3"))
    await instance.home.prefer("alpha.h3", to="alpha.h1")
    assert instance.asked() == ["alpha.h3", "alpha.h2", "alpha.h1"]
    await instance.http.aclose()


async def test_who_registered_later_or_moved_is_known_as_soon_as_there_is_word_of_it() -> None:
    """Not only when it leads: every homeserver has to hear how much is to be done here, or a drain it is asked for
    never ends.
    """
    instance = Instance()
    async with trio.open_nursery() as nursery:
        await nursery.start(instance.home.serve_members)
        await instance.home.refresh_members()
        assert instance.home.members_digest == digest_of_members(instance.rows)
        instance.rows.append(member("alpha.h3"))
        assert instance.home.members_digest != digest_of_members(instance.rows)
        instance.home.members_changed()
        await trio.testing.wait_all_tasks_blocked()
        assert instance.asked() == ["alpha.h1", "alpha.h2", "alpha.h3"]
        moved = instance.rows[1].model_copy(update={"link_port": 7})
        instance.rows[1] = moved
        assert instance.home.members_digest != digest_of_members(instance.rows)
        instance.is_there = False
        instance.home.members_changed()
        await trio.testing.wait_all_tasks_blocked()
        instance.is_there = True
        instance.home.members_changed()
        await trio.testing.wait_all_tasks_blocked()
        assert moved in instance.home.members()
        assert instance.home.members_digest == digest_of_members(reversed(instance.rows))
        nursery.cancel_scope.cancel()
    await instance.http.aclose()


async def test_one_that_is_not_believed_is_no_news_again_and_again() -> None:
    instance = Instance()
    instance.home.pins.accept(instance.rows[1].model_copy(update={"role": Role.SIMSERVER}), now_s=0.0)
    await instance.home.refresh_members()
    assert instance.asked() == ["alpha.h1"], "a name stays what it once was"
    assert instance.home.members_digest == digest_of_members(instance.rows)
    await instance.http.aclose()


async def test_while_nobody_says_who_there_is_the_known_ones_are_asked() -> None:
    instance = Instance()
    await instance.home.refresh_members()
    instance.is_there = False
    await instance.home.prefer("alpha.h3", to="alpha.h1")
    assert instance.asked() == ["alpha.h2", "alpha.h1"]
    await instance.http.aclose()


async def test_what_is_asked_alone_waits_for_nothing_that_is_asked_at_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance, parcels, held = Instance(), list[list[str]](), trio.Event()

    async def perform(letters: list[Letter]) -> list[Exception]:
        parcels.append([letter.message.type for letter in letters])
        if letters[0].message.type != "held_inquiry":
            await held.wait()
        return [HomeUnreachable("answered")] * len(letters)

    monkeypatch.setattr(instance.home, "_ask_some", perform)
    trace = Trace("t")

    async def ask(number: int) -> None:
        with pytest.raises(HomeUnreachable):
            await instance.home.ask(OwnerRequest(entity=f"alpha.e{number}"), trace, on_path=False)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(ask, number)
        with pytest.raises(HomeUnreachable):
            await instance.home.ask_alone(HeldInquiry(number=1, server="alpha.s1", items=[]), trace)
        held.set()
    assert sorted(parcels) == [["held_inquiry"], ["owner_request"] * 5]
    await instance.http.aclose()
