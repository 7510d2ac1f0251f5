"""Whom a simulation server asks: also homeservers that have registered since it did."""

import json

import httpx
import pytest
import trio
import trio.testing

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.client import HttpClient
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.trust.key_pinning import DIRECTORY, rows_proof
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.envelope import WAIT_HEADER
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import digest_of_members
from batonpass.authority.wire.queries import HeldInquiry
from batonpass.authority.wire.sealing import Sealer
from batonpass.authority.wire.transfer import AdmitRequest, Message, OwnerRequest
from batonpass.crypto.keys import Identity
from batonpass.simserver.net.home_answers import HomeUnreachable
from batonpass.simserver.net.home_client import AT_ONCE, MAX_LOOKUPS, REQUEST_TIMEOUT_S, HomeClient
from tests.simserver.ports import clock_of, never

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
        self.home = HomeClient(
            Sealer.without_log("alpha.s1", Identity.generate()),
            "alpha",
            ("http://h",),
            TOKEN,
            self.http,
            clock_of(Clock()),
            never,
        )
        self.why_not_asked = ""
        self.home.bind(lambda: self.why_not_asked)

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
        moved = instance.rows[1].model_copy(update={"link_host": "127.0.0.1", "link_port": 7007})
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


class Asking:
    """A server that asks a home which answers nothing before it is told to; what left, parcel by parcel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.instance = Instance()
        self.parcels: list[list[Message]] = []
        self.held = trio.Event()
        monkeypatch.setattr(self.instance.home, "_ask_some", self._perform)

    async def _perform(self, letters: list[Letter]) -> list[Exception]:
        self.parcels.append([letter.message for letter in letters])
        await self.held.wait()
        return [HomeUnreachable("answered")] * len(letters)

    async def ask(self, message: Message, *wanted: bool) -> None:
        with pytest.raises(HomeUnreachable):
            await self.instance.home.ask(message, Trace("t"), on_path=False, is_wanted=lambda: all(wanted))


def owner(number: int) -> OwnerRequest:
    return OwnerRequest(entity=f"alpha.e{number}")


async def test_few_parcels_are_under_way_and_what_is_asked_meanwhile_leaves_together(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    asking = Asking(monkeypatch)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(asking.ask, owner(number))
            await trio.sleep(0.01)
        assert [len(one) for one in asking.parcels] == [1] * AT_ONCE
        asking.held.set()
    assert [len(one) for one in asking.parcels] == [1] * AT_ONCE + [20 - AT_ONCE]
    await asking.instance.http.aclose()


async def test_what_nobody_waits_for_any_more_when_it_is_its_turn_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """A hand-over may be over by then: home has told so by another way."""
    asking = Asking(monkeypatch)
    async with trio.open_nursery() as nursery:
        for number in range(AT_ONCE):
            nursery.start_soon(asking.ask, owner(number))
            await trio.sleep(0.01)
        for number in range(10, 14):
            nursery.start_soon(asking.ask, owner(number), number % 2 == 0)
            await trio.sleep(0.01)
        asking.held.set()
    assert asking.parcels[AT_ONCE:] == [[owner(10), owner(12)]]
    await asking.instance.http.aclose()


async def test_what_has_to_do_with_a_silent_instance_keeps_nothing_else_waiting(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    asking = Asking(monkeypatch)
    async with trio.open_nursery() as nursery:
        for number in range(3 * AT_ONCE):
            far = AdmitRequest(transfer_id=f"transfer-{number}", entity="alpha.e", target="beta.s1")
            nursery.start_soon(asking.ask, far)
            await trio.sleep(0.01)
        nursery.start_soon(asking.ask, owner(1))
        await trio.sleep(0.01)
        assert asking.parcels[AT_ONCE:] == [[owner(1)]]
        asking.held.set()
    await asking.instance.http.aclose()


async def test_what_the_lease_waits_for_leaves_while_all_that_may_be_is_under_way(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """Parcels in every place, and look-ups of keys in every place, too."""
    instance, answering = Instance(), trio.Event()
    await instance.home.refresh_members()
    seen: list[tuple[str, str]] = []

    async def answer(method: str, url: str, **how: object) -> None:
        headers = how["headers"]
        assert isinstance(headers, dict)
        seen.append((method, headers.get(WAIT_HEADER, "")))
        await answering.wait()

    monkeypatch.setattr(instance.http, "request", answer)
    instance.home.pins.accept(instance.rows[0], now_s=0.0)
    async with trio.open_nursery() as nursery:
        for number in range(3 * MAX_LOOKUPS):
            nursery.start_soon(instance.home.keys_of, f"beta.s{number}")
        await trio.sleep(0.01)
        assert len(seen) == MAX_LOOKUPS
        with trio.move_on_after(0.01):
            await instance.home.ask_alone(HeldInquiry(number=1, server="alpha.s1", items=[]), Trace("t"))
        assert len(seen) > MAX_LOOKUPS, "the keys of a homeserver are looked up beside all others"
        nursery.cancel_scope.cancel()
    await instance.http.aclose()


async def test_a_parcel_says_for_how_long_its_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = Instance()
    await instance.home.refresh_members()
    waits: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/handoffs":
            waits.append(request.headers.get(WAIT_HEADER))
            return httpx.Response(204)
        return instance._answer(request)

    instance.home._client = HttpClient(transport=httpx.MockTransport(answer))
    assert await instance.home.ask(owner(1), Trace("t"), on_path=False) is None
    assert waits == [str(round(REQUEST_TIMEOUT_S * 1000))]
    await instance.home._client.aclose()
    await instance.http.aclose()


async def test_without_a_lease_nothing_is_asked_but_for_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Asking(monkeypatch)
    asking.held.set()
    home = asking.instance.home
    asking.instance.why_not_asked = "no lease"
    await asking.ask(owner(1))
    assert [str(one) for one in await home.ask_each([Letter(owner(2), Trace("t"))])] == ["no lease"]
    inquiry = HeldInquiry(number=1, server="alpha.s1", items=[])
    with pytest.raises(HomeUnreachable, match="answered"):
        await home.ask_alone(inquiry, Trace("t"))
    assert asking.parcels == [[inquiry]]
    await asking.instance.http.aclose()
