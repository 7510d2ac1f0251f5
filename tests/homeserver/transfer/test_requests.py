"""Requests that are lost, race, are taken back too late, or whose requester is gone: over REST, from end to end."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import httpx
import pytest
import trio

from batonpass.authority.placement.policy import Move, Resident, ServerLoad, View
from batonpass.authority.procedures import transfer_table as transfer_rows
from batonpass.authority.procedures.master_question import ASK_LIFETIME_S
from batonpass.homeserver.server.main import run as run_homeserver
from batonpass.scenarios.players.rest_client import ApiFailure, RestClient
from tests.homeserver.rest.test_rights import give_up, ownership
from tests.homeserver.rest.test_rules import BALL, Game
from tests.homeserver.rest.test_tree_cluster import joining, operator
from tests.homeserver.served import Api, Home, Player, new_ports, until

PATH: Final = f"/v1/entities/{BALL}"


@pytest.fixture
async def game(world: Home) -> Game:
    game = Game(world, await world.player("alpha.ada"), await world.player("alpha.bob"))
    await world.entity(BALL, game.ada, "alpha.s1")
    return game


class Lossy(httpx.AsyncBaseTransport):
    """A way to the server that loses a request, or its answer, as it is told; what is not foreseen arrives."""

    def __init__(self, *fates: str, otherwise: str = "arrives") -> None:
        self._fates = list(fates)
        self._otherwise = otherwise
        self._way = httpx.AsyncHTTPTransport(trust_env=False)
        self.sent = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent += 1
        fate = self._fates.pop(0) if self._fates else self._otherwise
        if fate == "request":
            raise httpx.ReadTimeout("the request was lost", request=request)
        answer = await self._way.handle_async_request(request)
        if fate == "answer":
            await answer.aread()
            raise httpx.ReadTimeout("the answer was lost", request=request)
        return answer

    async def aclose(self) -> None:
        await self._way.aclose()


@asynccontextmanager
async def client_by(way: Lossy, game: Game) -> AsyncIterator[RestClient]:
    """The client that scenarios use, behind this way."""
    tokens = {"alpha": (game.home.directory / "client").read_text()}
    client = RestClient({"alpha": [game.api.url]}, tokens)
    await client.aclose()
    client._http = httpx.AsyncClient(transport=way)
    try:
        yield client
    finally:
        with trio.CancelScope(shield=True):
            await client.aclose()


def counted(home: Home, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The procedures that the log is asked for from now on."""
    submitted, submit = list[str](), home.node.store.submit

    async def count(procedure: str, **args: Any) -> Any:
        submitted.append(procedure)
        return await submit(procedure, **args)

    monkeypatch.setattr(home.node.store, "submit", count)
    return submitted


async def test_failures_row_1_what_is_lost_is_asked_again_under_its_id_and_moves_it_once(
    game: Game, monkeypatch: pytest.MonkeyPatch
) -> None:
    await game.set(game.ada, rule="allow")
    before, submitted = await game.record(), counted(game.home, monkeypatch)
    way = Lossy("request", "request", "answer", "request")
    async with client_by(way, game) as client:
        await client.call("alpha", "POST", f"{PATH}/transfers", game.wish(game.bob, "transfer-1"))
    assert way.sent == 5
    assert submitted.count("transfer.propose") == 2, "what was lost on the way there the log has not heard of"
    assert (await game.home.finished("transfer-1"))["result"] == "done"
    record = await game.record()
    assert (record["authority"], record["owner"]) == ("alpha.s2", "alpha.bob")
    assert (record["epoch"], record["owner_rev"]) == (before["epoch"] + 1, before["owner_rev"] + 1), "once"
    assert [one["id"] for one in await game.api.get(f"{PATH}/transfers")] == ["transfer-1"]


async def test_failures_row_1_who_names_no_transfer_asks_for_one_however_often_its_client_repeats_that(
    game: Game,
) -> None:
    async with client_by(Lossy("answer", "request", "answer"), game) as client:
        moved = await client.call("alpha", "POST", f"{PATH}/transfers", {"to": "alpha.s2"})
    await game.home.finished(moved["id"])
    assert [one["id"] for one in await game.api.get(f"{PATH}/transfers")] == [moved["id"]]
    async with client_by(Lossy("answer", "request", "answer"), game) as client:
        moved = await client.call("alpha", "POST", "/v1/groups", {"entities": [BALL], "to": "alpha.s1"})
        assert (await client.call("alpha", "GET", f"/v1/groups/{moved['group']}"))["group"] == moved["group"]
    assert len(await game.api.get(f"{PATH}/transfers")) == 2


async def test_failures_row_1_a_request_that_never_arrives_is_given_up_at_its_deadline_and_changes_nothing(
    game: Game, monkeypatch: pytest.MonkeyPatch
) -> None:
    await game.set(game.ada, rule="allow")
    before, submitted = await game.in_the_log(), counted(game.home, monkeypatch)
    wish, way = game.wish(game.bob, "transfer-1"), Lossy(otherwise="request")
    async with client_by(way, game) as client:
        with pytest.raises(ApiFailure) as caught:
            await client.call("alpha", "POST", f"{PATH}/transfers", wish, patience_s=0.35)
    assert caught.value.code == "unreachable"
    assert way.sent > 1, "it was repeated until then"
    # One that has wandered about for longer than it was good for is not taken either: its proof has an end.
    game.home.clock.ahead_s = 3600.0
    await game.api.refused(403, "proof_expired", "POST", f"{PATH}/transfers", wish)
    assert "transfer.propose" not in submitted
    await game.api.refused(404, "not_found", "GET", "/v1/transfers/transfer-1")
    game.home.clock.ahead_s = 0.0
    assert await game.in_the_log() == before


# --- two at once --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def second_member(home: Home, nursery: trio.Nursery) -> AsyncIterator[Api]:
    """A second member of the log is let in; its API."""
    with new_ports() as ports:
        config = joining(home.directory, ports, home.node.config.members[0])
        await nursery.start(run_homeserver, config)
        body = {"name": "alpha.h2", "host": "127.0.0.1", "raft_port": config.members[0].raft_port}
        await home.api.do("POST", "/v1/cluster/members", body, headers=operator(home))
        token = (home.directory / "client").read_text()
        api = Api(config.rest.url, token, home.api.contract, ())
        try:
            yield api
        finally:
            with trio.CancelScope(shield=True):
                await api.http.aclose()
            nursery.cancel_scope.cancel()


async def at_once(*calls: Callable[[], Any]) -> list[httpx.Response]:
    """The answers of calls that begin together."""
    answers: dict[int, httpx.Response] = {}

    async def ask(number: int) -> None:
        answers[number] = await calls[number]()

    async with trio.open_nursery() as nursery:
        for number in range(len(calls)):
            nursery.start_soon(ask, number)
    return [answers[number] for number in range(len(calls))]


async def test_failures_row_3_of_two_who_ask_two_members_at_once_exactly_one_gets_it(
    game: Game, nursery: trio.Nursery
) -> None:
    """Each asks a member of its own; neither has heard of the other. The log puts one first, and the other is told."""
    await game.set(game.ada, rule="allow")
    eve = await game.home.player("alpha.eve")
    async with second_member(game.home, nursery) as second:
        for number in range(4):
            rev = (await game.record())["owner_rev"]
            rivals: list[tuple[Api, Player]] = [(game.api, game.bob), (second, eve)]
            if number % 2:
                rivals.reverse()
            bodies = [ownership(who, f"wish-of-{who.name[6:]}-{number}", "by_rule", rev) for _, who in rivals]
            calls = [
                partial(api.call, "POST", f"{PATH}/ownership", body)
                for (api, _), body in zip(rivals, bodies, strict=True)
            ]
            answers = await at_once(*calls)
            winners = [who for (_, who), answer in zip(rivals, answers, strict=True) if answer.is_success]
            (lost,) = [answer for answer in answers if not answer.is_success]
            (winner,) = winners
            assert (lost.status_code, lost.json()["code"], lost.json()["value"]) == (409, "owner_changed", winner.name)
            record = await game.record()
            assert (record["owner"], record["owner_rev"]) == (winner.name, rev + 1)
            # Back to its master, so that both are strangers again.
            await own_again(game, rev + 1)


async def own_again(game: Game, rev: int) -> None:
    body = ownership(game.ada, f"adas-wish-{rev}", "by_rule", rev)
    assert (await game.api.do("POST", f"{PATH}/ownership", body))["result"] == "done"


async def test_failures_row_3_of_two_moves_that_are_asked_of_two_members_at_once_one_is_committed_first(
    game: Game, nursery: trio.Nursery
) -> None:
    """Both may be let go by the rule; the commit of the second finds another owner than the one who let it go.

    On a busy machine the second may be given up before it comes to that: a target that is silent for too long has
    failed, whatever the log would have said of the commit. What is promised holds either way.
    """
    await game.set(game.ada, rule="allow")
    await game.home.simserver("alpha.s3")
    eve = await game.home.player("alpha.eve")
    async with second_member(game.home, nursery) as second:
        bobs, eves = game.wish(game.bob, "bobs-wish"), game.wish(eve, "eves-wish", "alpha.s3")
        await at_once(
            lambda: game.api.call("POST", f"{PATH}/transfers", bobs),
            lambda: second.call("POST", f"{PATH}/transfers", eves),
        )
        views = {name: await game.home.finished(f"{name}-wish") for name in ("bobs", "eves")}
        (winner,) = [name for name, view in views.items() if view["result"] == "done"]
        (loser,) = [name for name in views if name != winner]
        assert views[loser]["result"] == "refused"
        assert views[loser]["reason"] in ("owner_changed", "target_failed")
        record = await game.record()
        assert (record["owner"], record["authority"]) == (
            ("alpha.bob", "alpha.s2") if winner == "bobs" else ("alpha.eve", "alpha.s3")
        )
        assert record["owner_rev"] == 2


# --- who is gone, and who takes back ------------------------------------------------------------------------------


async def asks_and_hangs_up(game: Game, transfer_id: str) -> None:
    """Bob asks, and his connection breaks before he has read the answer; he is not heard of again."""
    body = json.dumps(game.wish(game.bob, transfer_id)).encode()
    token = (game.home.directory / "client").read_text()
    head = f"POST {PATH}/transfers HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    stream = await trio.open_tcp_stream("127.0.0.1", game.home.node.config.rest.port)
    await stream.send_all(head.encode() + body)
    await until(lambda: game.home.node.store.transfer(transfer_id) is not None)
    await stream.aclose()


async def test_failures_row_38_a_request_waits_for_its_answer_though_its_requester_is_gone(game: Game) -> None:
    for transfer_id in ("was-granted", "was-ignored"):
        await asks_and_hangs_up(game, transfer_id)
    assert await game.asks(game.ada) == ["was-granted", "was-ignored"]
    assert (await game.answer(game.ada, "was-granted", allow=True))["phase"] == "permitted"
    assert (await game.home.finished("was-granted"))["result"] == "done"
    record = await game.record()
    assert (record["owner"], record["authority"], record["epoch"]) == ("alpha.bob", "alpha.s2", 2)
    game.home.clock.ahead_s = ASK_LIFETIME_S + 30
    assert await game.asks(game.ada) == []
    view = await game.api.get("/v1/transfers/was-ignored")
    assert (view["result"], view["reason"]) == ("refused", "ask_expired")
    assert (await game.record())["epoch"] == 2, "what was committed stays so, and the other changed nothing"


def cancel(who: Player, transfer_id: str) -> dict[str, Any]:
    return {"by": who.name, "proof": who.proof(action="cancel", transfer_id=transfer_id)}


async def test_failures_row_39_after_the_commit_it_is_too_late_to_take_it_back_and_it_is_handed_back(
    game: Game,
) -> None:
    await game.set(game.ada, rule="allow")
    await game.request(game.bob, "was-moved")
    await game.home.finished("was-moved")
    record = await game.record()
    path = "/v1/transfers/was-moved"
    # The requester, and the master whom the rule lets take back others' requests.
    for who in (game.bob, game.ada):
        for _ in range(2):
            decided = await game.api.refused(409, "too_late", "POST", f"{path}/cancel", cancel(who, "was-moved"))
            assert decided in ("committed", "done")
    assert (await game.api.get(path))["result"] == "done"
    assert await game.record() == record
    # So with ownership, which is decided as soon as it is asked for, and what nobody is asked about any more.
    eve = await game.home.player("alpha.eve")
    await game.api.do("POST", f"{PATH}/ownership", ownership(eve, "was-owned"))
    decided = await game.api.refused(
        409, "too_late", "POST", "/v1/transfers/was-owned/cancel", cancel(eve, "was-owned")
    )
    assert decided == "done"
    assert (await give_up(game, eve, "hand-back"))["owner"] == "alpha.bob"


async def test_failures_row_39_of_a_yes_and_a_cancellation_at_once_the_first_in_the_log_counts(game: Game) -> None:
    outcomes = set()
    for number in range(4):
        eve, name = await game.home.player(f"alpha.eve-{number}"), f"eves-wish-{number}"
        await game.api.do("POST", f"{PATH}/ownership", ownership(eve, name))
        word, back = game.word(game.ada, name, allow=True), cancel(eve, name)
        calls = [
            partial(game.api.call, "POST", f"/v1/transfers/{name}/answer", word),
            partial(game.api.call, "POST", f"/v1/transfers/{name}/cancel", back),
        ]
        answers = await at_once(*(calls if number % 2 else calls[::-1]))
        yes, cancelled = answers if number % 2 else answers[::-1]
        assert {yes.status_code, cancelled.status_code} in ({200, 409}, {202, 409}), (yes.text, cancelled.text)
        lost = yes if cancelled.is_success else cancelled
        assert lost.json()["code"] == "too_late"
        assert ((await game.record())["owner"] == eve.name) is yes.is_success
        outcomes.add(yes.is_success)
    assert outcomes


async def test_an_owners_request_goes_through_while_the_balance_is_held(game: Game) -> None:
    """The system moved it a moment ago, and may not again for a while; its owner may, and that begins the hold anew."""
    placement_limits = game.home.node.balancer.placement_limits
    loads = tuple(ServerLoad(f"alpha.s{number}", 0.5, 1, 0.0, 0.0, draining=False) for number in (1, 2))

    def admits(source: str, target: str) -> bool:
        view = View(loads, (Resident(BALL, source, 1e6, 0.1, ""),))
        return bool(
            placement_limits.admit([Move(BALL, source, target)], view, game.home.node.clock.monotonic_ns() / 1e9)
        )

    await game.api.do("POST", f"{PATH}/transfers", {"to": "alpha.s2", "transfer_id": "by-system"})
    await game.home.finished("by-system")
    assert not admits("alpha.s2", "alpha.s1")
    assert placement_limits.counts["held"] == 1
    await game.request(game.ada, "by-owner", to="alpha.s1")
    assert (await game.home.finished("by-owner"))["result"] == "done"
    record = await game.record()
    assert (record["authority"], record["owner"], record["epoch"]) == ("alpha.s1", "alpha.ada", 3)
    assert await game.is_simulated("alpha.s1", 3)
    assert not admits("alpha.s1", "alpha.s2")
    assert placement_limits.counts["held"] == 2


async def test_failures_row_39_a_flood_of_other_transfers_has_nothing_forgotten_that_is_not_over(
    game: Game, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer_rows, "MAX_TRANSFERS", 5)
    await game.api.do("POST", f"{PATH}/ownership", ownership(game.bob, "question"))
    await game.home.entity("alpha.ball-2", game.ada, "alpha.s1", rule="allow")
    proof = game.bob.proof(action="transfer", entity="alpha.ball-2", to="alpha.s2", transfer_id="bobs-wish")
    wish = {"to": "alpha.s2", "transfer_id": "bobs-wish", "requester": "alpha.bob", "proof": proof, "notice_ms": 1000}
    await game.api.do("POST", "/v1/entities/alpha.ball-2/transfers", wish)
    body = {"by": "alpha.bob", "proof": game.bob.proof(action="cancel", transfer_id="bobs-wish")}
    await game.api.do("POST", "/v1/transfers/bobs-wish/cancel", body)
    unknown = [f"alpha.no-{number}" for number in range(100)]
    for number in range(3):
        group = {"group": f"flood-no-{number}", "entities": unknown, "to": "alpha.s2", "all_or_none": False}
        await game.api.do("POST", "/v1/groups", group)
    (ask,) = await game.api.get("/v1/players/alpha.ada/asks")
    assert ask["transfer_id"] == "question"
    assert (await game.answer(game.ada, "question", allow=True))["result"] == "done"
    await trio.sleep(1.5)
    assert (await game.api.get("/v1/transfers/bobs-wish"))["reason"] == "cancelled"
    record = await game.api.get("/v1/entities/alpha.ball-2")
    assert (record["authority"], record["owner"]) == ("alpha.s1", "alpha.ada")
    monkeypatch.setattr(transfer_rows, "MAX_KEPT", 0)
    again = game.wish(game.bob, "another-wish")
    answer = await game.api.call("POST", f"{PATH}/transfers", again)
    assert (answer.status_code, answer.json()["code"]) == (409, "full")
    assert answer.json()["retry_after_s"] > 0
