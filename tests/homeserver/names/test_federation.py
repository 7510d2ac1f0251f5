"""Finding the homeservers of another instance, wherever they are by now."""

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from batonpass.actors.http.client import HttpClient
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.trust.key_pinning import federation_clock_purpose, federation_purpose, rows_proof
from batonpass.authority.wire.batch import MAX_BATCH, Letter
from batonpass.authority.wire.envelope import WAIT_HEADER
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import Sealer
from batonpass.authority.wire.transfer import AdmitReply, AdmitRequest, Message, NoAnswer, Parcel
from batonpass.crypto.keys import Identity
from batonpass.homeserver.config import PeerConfig
from batonpass.homeserver.names.federation import AT_ONCE, LOOK_AROUND_S, MAX_WAITING, Federation, InstanceUnreachable
from tests.simserver.ports import TrioClock

SECRET = b"s" * 32
REQUEST = AdmitRequest(transfer_id="transfer-1", entity="alpha.ball", target="beta.s1")
YES = AdmitReply(transfer_id="transfer-1", accepted=True, incarnation=1)


class Beta:
    """An instance of three homeservers, which move, die and hang."""

    def __init__(self) -> None:
        self.clock = TrioClock()
        self.sealers = {
            name: Sealer.without_log(name, Identity.generate()) for name in ("beta.h1", "beta.h2", "beta.h3")
        }
        self.urls = {name: f"http://{name}.old" for name in self.sealers}
        self.hanging: set[str] = set()
        self.liars: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.waits: list[int] = []
        self.parcels: list[list[Message]] = []
        self.answers: dict[int, Message] = {}
        self.alpha = Sealer.without_log("alpha.h1", Identity.generate())
        self.ahead_s = 0.0
        self.lost: set[str] = set()

    def federation(self, *urls: str, hops: int = 1) -> Federation:
        """Alpha's way there, by these addresses of its configuration."""
        client = HttpClient(transport=httpx.MockTransport(self._answer))
        peer = PeerConfig(instance="beta", urls=urls or tuple(self.urls.values()), hops=hops)
        return Federation(self.alpha, (peer,), SECRET, client, self.clock, is_lost=lambda name: name in self.lost)

    def move(self, name: str, to: str) -> None:
        self.urls[name] = f"http://{name}.{to}"

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        where = f"{request.url.scheme}://{request.url.host}"
        self.asked.append(where)
        name = next((name for name, url in self.urls.items() if url == where), "")
        body = json.loads(request.content)
        self.waits.append(int(request.headers[WAIT_HEADER]))
        if where in self.liars:
            return httpx.Response(200, json=self._rows(body["query"], self.liars[where]))
        if not name:
            raise httpx.ConnectError("nobody listens there", request=request)
        if name in self.hanging:
            await trio.sleep_forever()
        if "query" in body:
            return httpx.Response(200, json=self._rows(body["query"], SECRET))
        return httpx.Response(200, json={"parcel": self._decided(self.sealers[body["to"]], body["parcel"])})

    def _rows(self, query: dict[str, Any], secret: bytes) -> dict[str, Any]:
        rows = [
            DirectoryRow(
                name=name,
                role=Role.HOMESERVER,
                keys=self.sealers[name].identity.public.to_jwks(),
                rest_url=url,
                link_host="127.0.0.1",
                link_port=9,
            ).to_data()
            for name, url in self.urls.items()
            if query.get("name") in (None, name)
        ]
        now_ms = round((self.clock.unix_s() + self.ahead_s) * 1e3)
        return {
            "rows": rows,
            "proof": rows_proof(secret, federation_purpose("beta"), query["nonce"], rows),
            "now_ms": now_ms,
            "clock_proof": rows_proof(secret, federation_clock_purpose("beta"), query["nonce"], now_ms),
        }

    def _decided(self, sealer: Sealer, parcel: dict[str, Any]) -> dict[str, Any]:
        now: dict[str, Any] = {"now_ns": self.clock.monotonic_ns(), "now_s": self.clock.unix_s()}
        keys = self.alpha.identity.public
        opened = sealer.open_all_untrusted(Parcel.from_data_untrusted(parcel), sender=keys, **now)
        self.parcels.append([one.message for one in opened])
        letters = [Letter(self.answers.get(place, YES), one.trace, on_path=True) for place, one in enumerate(opened)]
        return sealer.seal_all(letters, to="alpha.h1", keys=keys, **now).to_data()


@pytest.fixture
def beta() -> Beta:
    return Beta()


async def addresses(federation: Federation) -> list[str]:
    return [row.rest_url for row in await federation.members("beta", refresh=True)]


async def ask(federation: Federation, within_s: float = 10.0) -> Any:
    answer, _ = await federation.exchange("beta", REQUEST, Trace("transfer-1"), on_path=True, within_s=within_s)
    return answer


async def with_a_question(federation: Federation) -> None:
    """Somebody in alpha has something to say to beta between two moves."""
    assert await ask(federation) == YES
    await trio.sleep(1.5)


async def while_it_looks_around(federation: Federation) -> None:
    """Nobody has."""
    async with trio.open_nursery() as nursery:
        await nursery.start(federation.serve)
        await trio.sleep(LOOK_AROUND_S * 1.5)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("between", [with_a_question, while_it_looks_around])
async def test_members_that_move_one_after_the_other_are_found_where_none_is_that_was_configured(
    beta: Beta, between: Callable[[Federation], Any], autojump_clock: MockClock
) -> None:
    federation = beta.federation()
    await between(federation)
    for name in beta.urls:
        beta.move(name, "new")
        await between(federation)
    assert await ask(federation) == YES
    await trio.sleep(1000.0)
    assert await ask(federation) == YES, "however long ago that was"
    assert sorted(await addresses(federation)) == sorted(beta.urls.values())


async def test_what_is_configured_is_asked_when_nobody_is_where_he_was_last(
    beta: Beta, autojump_clock: MockClock
) -> None:
    federation = beta.federation("http://beta.h1.spare", "http://beta.h1.old")
    assert await ask(federation) == YES
    for name in beta.urls:
        beta.move(name, "new")
    with pytest.raises(InstanceUnreachable):
        await ask(federation)
    beta.move("beta.h1", "spare")
    assert await ask(federation) == YES


async def test_who_cannot_prove_to_be_of_the_instance_keeps_nobody_from_who_can(
    beta: Beta, autojump_clock: MockClock
) -> None:
    """A stranger may listen now where a homeserver was."""
    federation = beta.federation()
    assert await ask(federation) == YES
    beta.move("beta.h1", "new")
    beta.liars["http://beta.h1.old"] = b"x" * 32
    await trio.sleep(60.0)
    assert "http://beta.h1.new" in await addresses(federation)


async def test_a_relay_is_asked_at_its_own_address_alone(beta: Beta, autojump_clock: MockClock) -> None:
    federation = beta.federation("http://beta.h2.old", hops=2)
    await federation.look_around()
    assert beta.asked == [], "where the members are beyond a relay is nothing to us"
    await ask(federation)
    assert set(beta.asked) == {"http://beta.h2.old"}


async def test_a_member_that_hangs_is_asked_last_from_then_on(beta: Beta, autojump_clock: MockClock) -> None:
    federation = beta.federation()
    assert await ask(federation) == YES
    beta.hanging.update(("beta.h1", "beta.h2"))
    with pytest.raises(InstanceUnreachable):
        await ask(federation, within_s=1.5)
    began_s = trio.current_time()
    assert await ask(federation, within_s=1.5) == YES
    assert trio.current_time() == began_s


@pytest.mark.parametrize("hanging", ["beta.h1", "beta.h2", "beta.h3"])
async def test_one_that_hangs_for_good_keeps_nobody_from_the_others_however_often_they_are_looked_for(
    beta: Beta, hanging: str, autojump_clock: MockClock
) -> None:
    federation = beta.federation()
    beta.hanging.add(hanging)
    async with trio.open_nursery() as nursery:
        await nursery.start(federation.serve)
        await trio.sleep(LOOK_AROUND_S)
        for number in range(40):
            began_s = trio.current_time()
            assert await ask(federation, within_s=1.5) == YES
            assert trio.current_time() - began_s < 1.0, number
            await trio.sleep(3.7)
        nursery.cancel_scope.cancel()
    beta.hanging.clear()
    assert await ask(federation, within_s=1.5) == YES


async def test_an_address_that_is_none_is_one_where_nobody_answers(beta: Beta, autojump_clock: MockClock) -> None:
    federation = beta.federation()
    await federation.look_around()
    beta.urls["beta.h1"] = "http://[::1"
    await federation.look_around()
    await federation.look_around()
    assert await ask(federation) == YES


async def test_of_many_questions_a_few_are_under_way_at_once_and_all_are_answered(
    beta: Beta, autojump_clock: MockClock
) -> None:
    federation, answer, under_way = beta.federation(), beta._answer, Counter[str]()

    async def busy(request: httpx.Request) -> httpx.Response:
        under_way["now"] += 1
        under_way["most"] = max(under_way["most"], under_way["now"])
        await trio.sleep(0.01 * under_way["now"])
        under_way["now"] -= 1
        return await answer(request)

    federation._client = HttpClient(transport=httpx.MockTransport(busy))
    await addresses(federation)
    answers: list[Any] = []

    async def asking() -> None:
        answers.append(await ask(federation, within_s=1.5))

    async with trio.open_nursery() as nursery:
        for _ in range(5 * AT_ONCE):
            nursery.start_soon(asking)
    assert (answers, under_way["most"]) == ([YES] * 5 * AT_ONCE, AT_ONCE)


async def test_nobody_is_waited_for_longer_than_wanted(beta: Beta, autojump_clock: MockClock) -> None:
    beta.hanging.update(beta.urls)
    began_s = trio.current_time()
    with pytest.raises(InstanceUnreachable, match=r"beta did not answer within 1\.5 s"):
        await ask(beta.federation(), within_s=1.5)
    assert trio.current_time() == pytest.approx(began_s + 1.5)


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("hangs", [False, True], ids=["dead", "hangs"])
async def test_who_is_silent_is_known_until_somebody_there_answers_again(
    beta: Beta, hops: int, hangs: bool, autojump_clock: MockClock
) -> None:
    federation = beta.federation(hops=hops)
    assert await ask(federation) == YES
    assert not federation.is_silent("beta")
    urls = dict(beta.urls)
    if hangs:
        beta.hanging.update(urls)
    else:
        beta.urls = dict.fromkeys(urls, "http://nowhere")
    with pytest.raises(InstanceUnreachable):
        await ask(federation, within_s=1.5)
    assert federation.is_silent("beta")
    await federation.look_around()
    assert federation.is_silent("beta")
    beta.hanging.clear()
    beta.urls = urls
    await federation.look_around()
    assert not federation.is_silent("beta"), "though nobody had anything to say to it"


async def test_a_neighbour_that_goes_is_known_to_be_silent_though_nobody_wanted_anything(
    beta: Beta, autojump_clock: MockClock
) -> None:
    federation = beta.federation()
    await while_it_looks_around(federation)
    assert not federation.is_silent("beta")
    beta.urls = dict.fromkeys(beta.urls, "http://nowhere")
    await while_it_looks_around(federation)
    assert federation.is_silent("beta")


async def test_a_home_that_answers_all_that_it_is_asked_in_time_is_not_silent(
    beta: Any, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some had no turn in the time that they had. The balancer would leave all of its entities where they are."""
    federation, answer = beta.federation(), beta._answer

    async def busy(request: httpx.Request) -> httpx.Response:
        await trio.sleep(0.4)
        response: httpx.Response = await answer(request)
        return response

    client = HttpClient(transport=httpx.MockTransport(busy))
    monkeypatch.setattr(federation, "_client", client)
    await addresses(federation)
    answers: list[bool] = []

    async def asking() -> None:
        try:
            await ask(federation, within_s=1.5)
            answers.append(True)
        except InstanceUnreachable:
            answers.append(False)

    async with trio.open_nursery() as nursery:
        for _ in range(10 * AT_ONCE):
            nursery.start_soon(asking)
    assert answers.count(True) >= 2 * AT_ONCE
    assert False in answers
    assert not federation.is_silent("beta")


@pytest.mark.parametrize("ahead_s", [-90.0, 90.0])
async def test_that_two_instances_have_another_time_is_said_until_they_have_not(
    beta: Beta, ahead_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    federation = beta.federation()
    await federation.members("beta", refresh=True)
    assert not federation.why_off
    beta.ahead_s = ahead_s
    for _ in range(2):
        await federation.members("beta", refresh=True)
    where = "behind" if ahead_s > 0 else "ahead of"
    assert re.search(rf"the time of this instance is (89|9[01])\.\d s {where} that of beta", federation.why_off)
    assert sum("the time of this instance" in record.message for record in caplog.records) == 1
    beta.ahead_s = 0.0
    await federation.members("beta", refresh=True)
    assert not federation.why_off


async def test_a_server_that_is_silent_is_asked_for_again_soon_for_it_may_be_elsewhere(
    beta: Beta, autojump_clock: MockClock
) -> None:
    federation = beta.federation()
    first = await federation.row("beta.h1")
    beta.move("beta.h1", "new")
    await trio.sleep(3)
    assert await federation.row("beta.h1") == first, "it was heard, so it is there"
    beta.lost.add("beta.h1")
    moved = await federation.row("beta.h1")
    assert moved is not None
    assert moved.rest_url == "http://beta.h1.new"
    asked = len(beta.asked)
    await federation.row("beta.h1")
    assert len(beta.asked) == asked, "and not with every message to it"


async def test_what_is_asked_together_travels_together_and_each_has_its_own_answer(
    beta: Beta, autojump_clock: MockClock
) -> None:
    federation = beta.federation()
    beta.answers = {1: NoAnswer(why="undecided"), 2: NoAnswer(why="refused", reason="no")}
    letters = [Letter(REQUEST, Trace(f"transfer-{number}"), on_path=True) for number in range(MAX_BATCH + 2)]
    answers = await federation.exchange_all("beta", letters, within_s=1.5)
    assert [len(parcel) for parcel in beta.parcels] == [MAX_BATCH, 2]
    problems = {place: str(one) for place, one in enumerate(answers) if isinstance(one, InstanceUnreachable)}
    assert set(problems) == {1, 2, MAX_BATCH + 1}
    assert problems[2].endswith("gave no answer: no")
    traces = [one[1] for one in answers if not isinstance(one, InstanceUnreachable)]
    assert {trace.count for trace in traces} == {2}


async def test_who_is_asked_hears_for_how_long_it_is_waited_for(beta: Beta, autojump_clock: MockClock) -> None:
    federation = beta.federation()
    await ask(federation)
    beta.waits.clear()
    await ask(federation, within_s=1.5)
    assert beta.waits == [750], "that one which hangs leaves time for the next"


async def test_whoever_has_no_time_left_asks_nothing_and_says_nothing_of_the_other(
    beta: Beta, autojump_clock: MockClock
) -> None:
    federation = beta.federation()
    await ask(federation)
    beta.asked.clear()
    with pytest.raises(InstanceUnreachable):
        await ask(federation, within_s=0.0)
    assert beta.asked == []
    assert not federation.is_silent("beta")


async def test_no_more_wait_for_their_turn_than_may_be(beta: Beta, autojump_clock: MockClock) -> None:
    federation, at_once = beta.federation(), list[float]()
    await ask(federation)
    beta.hanging.update(beta.urls)

    async def asking() -> None:
        began_s = trio.current_time()
        with pytest.raises(InstanceUnreachable):
            await ask(federation, within_s=1.5)
        at_once.append(trio.current_time() - began_s)

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE + MAX_WAITING + 10):
            nursery.start_soon(asking)
    assert sum(s < 1.0 for s in at_once) == 10
