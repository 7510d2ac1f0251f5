"""The status API of a simulation server: what it holds, as documented, and nothing for strangers to break."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest

from batonpass.actors.http.door import DoorTraffic
from batonpass.simserver.server.dispatch import SimserverNode
from batonpass.simserver.server.http_status import make_status_app
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.shows.status import EngineStatus, ShowDrop, ShowNodeStatus, ShowRefused, ShowStatus
from tests.homeserver.openapi import Contract
from tests.homeserver.served import SECRET_NAMES, Api, Home, homeserver_config, new_ports, served, until
from tests.tokens import gate

BALL = "alpha.ball-1"


@pytest.fixture
async def home(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Home]:
    """An instance whose leases are as long as the test that asks for it says, else very long."""
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
        config = config.model_copy(update={"lease_term_s": getattr(request, "param", config.lease_term_s)})
        async with served(config) as home:
            await home.simserver("alpha.s1")
            await home.simserver("alpha.s2")
            yield home


@pytest.fixture
async def status(home: Home) -> AsyncIterator[Api]:
    """A client of the status API of alpha.s1."""
    row = await home.api.get("/v1/servers/alpha.s1")
    api = api_of(row["rest_url"], home.simservers["alpha.s1"], home.directory)
    yield api
    await api.http.aclose()


def api_of(url: str, node: SimserverNode, directory: Path) -> Api:
    held = [(directory / name).read_text() for name in SECRET_NAMES]
    return Api(
        url, "no-token-is-needed", Contract(make_status_app(node, cast(Any, None), gate()).openapi()), tuple(held)
    )


async def test_it_is_ready_when_it_is_registered(home: Home, status: Api) -> None:
    node = home.simservers["alpha.s1"]
    await until(lambda: node.lease.may_act(node.clock.monotonic_ns()))
    assert await status.get("/healthz") == {"status": "ok", "name": "alpha.s1", "role": "simserver", "clock": ""}
    node.registered = False
    await status.refused(503, "not_ready", "GET", "/healthz")
    node.registered = True


async def test_it_is_not_ready_while_its_home_is_of_another_release(home: Home, status: Api) -> None:
    node = home.simservers["alpha.s1"]
    await until(lambda: node.lease.is_alive)
    node.lease.other_release = "alpha.s1 speaks protocol version 1, and alpha.h1 version 2"
    await status.refused(503, "other_release", "GET", "/healthz")


@pytest.mark.parametrize("home", [1.0], indirect=True)
async def test_one_that_was_removed_and_runs_on_says_so_and_its_home_warns_once(
    home: Home, status: Api, caplog: pytest.LogCaptureFixture
) -> None:
    operator = {"authorization": f"Bearer {(home.directory / 'operator').read_text()}"}
    removed = home.simservers["alpha.s1"]
    # It has a link over which it tells of its load.
    await until(lambda: home.node.balancer.report("alpha.s1") is not None)
    await home.api.do("POST", "/v1/servers/alpha.s1/drain", headers=operator)
    await home.api.drained("alpha.s1")
    await home.api.do("DELETE", "/v1/servers/alpha.s1", headers=operator)
    await until(lambda: not removed.lease.may_act(removed.clock.monotonic_ns()))
    # What was under way when it was removed is answered in other words.
    await until(lambda: "is not registered" in removed.lease.why_not)
    answer = await status.call("GET", "/healthz")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert "alpha.s1 is not registered" in answer.json()["message"]
    # It still tells of its load.
    await until(lambda: home.node.drops.counts.get("unknown_sender", 0) >= 2)
    warnings = [one for one in caplog.records if one.levelname == "WARNING" and "is not registered" in one.message]
    assert len([one for one in warnings if one.name == "batonpass.homeserver"]) == 1


async def test_what_it_holds_is_told_entity_by_entity(home: Home, status: Api) -> None:
    assert await status.get("/v1/local/entities") == []
    ada = await home.player("alpha.ada")
    await home.entity(BALL, ada, "alpha.s1")
    assert await status.get("/v1/local/entities") == [BALL]
    rounds = home.simservers["alpha.s1"].environment.rounds
    before, count = await status.get(f"/v1/local/entities/{BALL}"), rounds.count
    await until(lambda: rounds.count >= count + 2)
    after = await status.get(f"/v1/local/entities/{BALL}")
    assert (after["epoch"], after["sub"], after["frozen"]) == (1, 0, False)
    assert after["tick"] > before["tick"]


async def test_what_has_moved_on_is_not_here(home: Home, status: Api) -> None:
    ada = await home.player("alpha.ada")
    await home.entity(BALL, ada, "alpha.s1")
    view = await home.api.do("POST", f"/v1/entities/{BALL}/transfers", {"to": "alpha.s2"})
    await home.finished(view["transfer_id"])
    assert await status.refused(404, "not_here", "GET", f"/v1/local/entities/{BALL}") == BALL
    assert await status.get("/v1/local/entities") == []
    custody = await status.get("/v1/local/custody")
    assert custody["server"] == "alpha.s1"
    (stint,) = custody["stints"]
    assert stint["entity"] == BALL
    assert (await status.get("/v1/local/custody?after=1"))["stints"] == []
    assert (await status.get(f"/v1/local/custody?after={10**30}"))["stints"] == []


async def test_an_entity_that_leaves_while_it_is_asked_about_is_not_here(home: Home, status: Api) -> None:
    ada = await home.player("alpha.ada")
    await home.entity(BALL, ada, "alpha.s1")
    holding = home.simservers["alpha.s1"].holdings.get(BALL)
    assert holding is not None
    holding.life.end()
    assert await status.refused(404, "not_here", "GET", f"/v1/local/entities/{BALL}") == BALL


async def test_counters_are_told(home: Home, status: Api) -> None:
    stats = await status.get("/v1/local/stats")
    assert (stats["name"], stats["entities"], stats["leaving"], stats["asleep"]) == ("alpha.s1", 0, 0, 0)
    assert stats["ticks"] >= 0


async def test_nothing_can_be_changed_and_nothing_strange_is_answered_strangely(status: Api) -> None:
    for path in ("/healthz", "/v1/local/stats", "/v1/local/entities", "/v1/local/custody"):
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            answer = await status.call(method, path, {})
            assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
            assert answer.headers["allow"] == "GET"
        assert (await status.call("HEAD", path)).content == b""
    await status.refused(404, "unknown_route", "GET", "/v1/entities")
    for name in ("alpha", "alpha.%00", "..%2f..", "alpha.\u00fc", "a" * 300):
        answer = await status.call("GET", f"/v1/local/entities/{name}")
        assert answer.status_code in (404, 422)
    for after in ("-1", "x", "", "1.5", "9" * 5000):
        assert (await status.call("GET", f"/v1/local/custody?after={after}")).status_code in (422,)
    too_long: dict[str, Any] = {"content": b" " * 70_000}
    assert (await status.call("GET", "/healthz", **too_long)).status_code == 413


async def test_the_document_is_served(status: Api) -> None:
    assert (await status.http.get("/openapi.json")).json() == status.contract.document


async def test_the_actors_of_the_server_are_seen_and_only_its_own_operator_holds_them_still(
    home: Home, status: Api
) -> None:
    ada = await home.player("alpha.ada")
    await home.entity(BALL, ada, "alpha.s1")
    view = await status.get("/v1/actors")
    assert view["node"] == "alpha.s1"
    pid = next(row["pid"] for row in view["actors"] if row["module"] == "batonpass.simserver.entity.actor.Entity")
    path = f"/v1/actors/{pid}/suspend"
    await status.refused(401, "no_token", "POST", path, token=False)
    await status.refused(403, "wrong_token", "POST", path)
    headers = {"authorization": f"Bearer {(home.directory / 'simserver-operator').read_text()}"}
    assert (await status.do("POST", path, headers=headers))["condition"] == "suspended"
    # Not the server's ticks: without a lease, as on a busy machine, those are nobody's.
    rounds = home.simservers["alpha.s1"].environment.rounds
    before = rounds.count
    await until(lambda: rounds.count >= before + 2)
    inside = await status.get(f"/v1/actors/{pid}", headers=headers)
    assert inside["condition"] == "suspended"
    assert inside["waiting"] >= 2, "ticks are kept like every message"
    await status.do("POST", f"/v1/actors/{pid}/resume", headers=headers)
    assert (await status.get(f"/v1/local/entities/{BALL}"))["frozen"] is False


async def test_failures_row_41_what_stands_still_is_seen_with_its_error_and_released_by_master_or_operator(
    home: Home, status: Api
) -> None:
    ada = await home.player("alpha.ada")
    await home.entity(BALL, ada, "alpha.s1")
    holding = home.simservers["alpha.s1"].holdings.get(BALL)
    assert holding is not None
    life = holding.life
    assert await status.get("/v1/local/quarantine") == []
    life.enter_quarantine("ZeroDivisionError: poison")
    (row,) = await status.get("/v1/local/quarantine")
    assert (row["entity"], row["tick"], row["error"]) == (BALL, life.tick, "ZeroDivisionError: poison")

    path = f"/v1/local/entities/{BALL}/release"
    await status.refused(403, "wrong_token", "POST", path, {})
    headers = {"authorization": f"Bearer {(home.directory / 'simserver-operator').read_text()}"}
    assert await status.do("POST", path, {}, headers=headers) == {"released": True}
    await until(lambda: life.tick > row["tick"])
    assert await status.refused(404, "not_here", "POST", path, {}, headers=headers) == BALL

    life.enter_quarantine("poison")
    stated: dict[str, Any] = {"master_rev": 1, "discard_inputs": True}
    bob = await home.player("alpha.bob")
    path = f"/v1/entities/{BALL}/release"
    for who, rev, code in ((bob, 1, (403, "not_master")), (ada, 2, (409, "stale_revision"))):
        proof = who.proof(action="release", entity=BALL, discard_inputs=True, master_rev=rev, release_rev=1)
        body = stated | {"by": who.name, "master_rev": rev, "proof": proof}
        await home.api.refused(*code, "POST", path, body)
    body = stated | {"by": "alpha.ada", "proof": ada.proof(action="release", entity=BALL, release_rev=1, **stated)}
    assert await home.api.do("POST", path, body) == {"entity": BALL, "authority": "alpha.s1"}
    await until(lambda: not life.quarantine_reason)

    # What was signed for this time discards nothing the next time.
    life.enter_quarantine("poison")
    assert await home.api.refused(409, "stale_revision", "POST", path, body) == 2
    assert life.quarantine_reason


class WallOfTwo:
    """Shows of a server that is the controller of one."""

    def __init__(self) -> None:
        self.held = list[str]()
        self.has_reset = False

    def inspect(self, *, drops: int) -> list[ShowStatus]:
        engine = EngineStatus(state="running", error="", busy_ms=3, counters={}, events_dropped={})
        node = ShowNodeStatus(name="alpha.s2", host="127.0.0.1", port=9, heard_ms=4, acknowledged=17, held=False)
        return [
            ShowStatus(
                entity="alpha.show-wall",
                epoch=65_536,
                controller="alpha.s1",
                is_controller=True,
                newest=17,
                limit=60,
                engine=engine,
                nodes=[node],
                held=self.held,
                counters={"frames_dropped": 2},
                not_applied=0,
                drops=[ShowDrop(node="alpha.s2", first=5, last=6, reason="engine")][:drops],
            )
        ]

    def reset(self, entity: str) -> None:
        if entity != "alpha.show-wall":
            raise ShowRefused("not_controller", f"the controller of {entity} is alpha.s2: ask there", "alpha.s2")
        self.has_reset = True

    def hold(self, entity: str, node: str, *, is_held: bool) -> None:
        if node == "alpha.s1":
            raise ShowRefused("is_controller", "alpha.s1 is the controller", node)
        if not is_held and node not in self.held:
            raise ShowRefused("not_held", f"{node} is not held in {entity}", node)
        (self.held.append if is_held else self.held.remove)(node)


async def test_a_show_is_seen_with_who_dropped_which_frames_and_an_operator_holds_and_releases_a_node(
    home: Home, status: Api
) -> None:
    node = home.simservers["alpha.s1"]
    headers = {"authorization": f"Bearer {(home.directory / 'simserver-operator').read_text()}"}
    path = "/v1/local/shows/alpha.show-wall/nodes/{}/{}".format
    assert await status.get("/v1/local/shows") == []
    await status.refused(404, "not_here", "POST", path("alpha.s2", "hold"), headers=headers)
    assert await status.get("/v1/local/synchronisation") == {"synchronised": []}
    node.shows = cast(Any, WallOfTwo())
    (row,) = (await status.get("/v1/local/synchronisation"))["synchronised"]
    assert (row["entity"], row["system"], row["role"], row["position"]) == (
        *("alpha.show-wall", "followers", "controller"),
        17,
    )
    assert row["counters"] == {"frames_dropped": 2, "frames_not_applied": 0}
    assert [(part["name"], part["lag"]) for part in row["parts"]] == [("alpha.s2", 0)]
    (show,) = await status.get("/v1/local/shows")
    assert show["drops"] == [{"node": "alpha.s2", "first": 5, "last": 6, "reason": "engine"}]
    assert show["nodes"][0]["acknowledged"] == 17
    assert (await status.get("/v1/local/shows?drops=0"))[0]["drops"] == []
    await status.refused(403, "wrong_token", "POST", path("alpha.s2", "hold"))
    assert await status.do("POST", path("alpha.s2", "hold"), headers=headers) == {"held": True}
    assert (await status.get("/v1/local/shows"))[0]["held"] == ["alpha.s2"]
    assert await status.do("POST", path("alpha.s2", "release"), headers=headers) == {"held": False}
    assert await status.refused(404, "not_held", "POST", path("alpha.s2", "release"), headers=headers) == "alpha.s2"
    assert await status.refused(409, "is_controller", "POST", path("alpha.s1", "hold"), headers=headers) == "alpha.s1"
    reset = "/v1/local/shows/alpha.show-{}/reset".format
    await status.refused(403, "wrong_token", "POST", reset("wall"))
    assert await status.do("POST", reset("wall"), headers=headers) == {"reset": True}
    assert cast(Any, node.shows).has_reset
    assert await status.refused(409, "not_controller", "POST", reset("door"), headers=headers) == "alpha.s2"


class OneScene:
    """What is shown of scenes."""

    def members(self) -> dict[str, int]:
        return {"alpha.scene-plaza": 2}

    def merges(self, entity: str) -> tuple[int, dict[str, int]]:
        if entity != "alpha.scene-plaza":
            raise SceneRefusal(f"{entity} has just gone")
        return 3, {"taken": 5, "outdated": 4}

    def graph(self, entity: str) -> dict[str, Any]:
        if entity != "alpha.scene-plaza":
            raise SceneRefusal(f"alpha.s1 has no authority over {entity}")
        return {"scene": entity, "tick": 3, "all_entities": 0, "entities": []}


async def test_the_scenes_of_a_server_are_seen_and_the_graph_of_each(home: Home, status: Api) -> None:
    node = home.simservers["alpha.s1"]
    assert await status.get("/v1/local/scenes") == {"url": "", "members": {}, "traffic": None}
    assert await status.refused(404, "not_here", "GET", "/v1/local/scenes/alpha.scene-plaza") == "alpha.scene-plaza"
    node.scenes, node.scene_url = cast(Any, OneScene()), "http://127.0.0.1:1"
    (row,) = (await status.get("/v1/local/synchronisation"))["synchronised"]
    assert (row["system"], row["members"], row["position"], row["counters"]) == (
        *("scene", 2, 3),
        {"writes_outdated": 4, "writes_taken": 5},
    )
    counts = DoorTraffic(connected=2, entered=3, refused={"bad_proof": 1}, slow=0, silent=0, faulty=0)
    shown = await status.get("/v1/local/scenes")
    assert shown == {"url": "http://127.0.0.1:1", "members": {"alpha.scene-plaza": 2}, "traffic": None}
    node.door_traffic["scenes"] = lambda: counts
    assert (await status.get("/v1/local/scenes"))["traffic"] == asdict(counts)
    assert (await status.get("/v1/local/scenes/alpha.scene-plaza"))["tick"] == 3
    await status.refused(404, "not_here", "GET", "/v1/local/scenes/alpha.scene-other")
