"""/v1/supervision: a tree in pages, with what was started again and why."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from fastapi import FastAPI

from batonpass.actors import (
    ActorSpec,
    DynamicSupervisor,
    DynamicSupervisorSpec,
    NoReply,
    Restart,
    Server,
    ServiceSpec,
    Supervisor,
    SupervisorSpec,
    System,
)
from batonpass.actors.http.app import ERROR_RESPONSES, prepare_app
from batonpass.actors.http.web_service import serve_app
from batonpass.actors.observe.supervision import FOLDED, MAX_ROWS, supervision_of, supervision_routes
from tests.actors.servers import Counter
from tests.homeserver.openapi import Contract
from tests.homeserver.served import Api, until


class Fragile(Server[None]):
    """Breaks when it is told to."""

    def init(self, arg: None) -> None:
        return None

    def handle_cast(self, message: str, state: None) -> NoReply[None]:
        raise RuntimeError(message)


@pytest.fixture
async def system() -> AsyncIterator[System]:
    async with System.open("alpha.s1") as system:
        yield system


def _view(system: System, under: int | None = None, first: int = 0, limit: int = 50) -> dict[str, Any]:
    return supervision_of(system, under, first, limit).model_dump()


def _shown(view: dict[str, Any]) -> list[tuple[int, str, str]]:
    return [(row["depth"], row["id"], row["state"]) for row in view["below"]]


async def _idle(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    task_status.started()
    await trio.sleep_forever()


async def test_a_small_tree_is_shown_whole_in_the_order_of_starting(system: System) -> None:
    faces = SupervisorSpec("faces", (ServiceSpec("rest", _idle), ActorSpec(("counter", 1), Counter, 7)))
    await system.start_child(SupervisorSpec("server", (ActorSpec("replica", Counter, 0), faces)))
    await system.start_child(DynamicSupervisorSpec("entities"))
    await DynamicSupervisor.start_child(
        next(ref for ref in system.actors() if "Dynamic" in str(ref)), ActorSpec("ball", Counter, 0)
    )
    view = _view(system)
    assert (view["node"], view["actors"], view["restarts"], view["above"]) == ("alpha.s1", 8, 0, [])
    assert (view["top"]["id"], view["top"]["kind"], view["top"]["children"]) == ("root", "supervisor", 2)
    assert _shown(view) == [
        (1, "server", "running"),
        (2, "replica", "running"),
        (2, "faces", "running"),
        (3, "rest", "running"),
        (3, '["counter", 1]', "running"),
        (1, "entities", "running"),
        (2, "ball", "running"),
    ]
    kinds = [(row["kind"], row["module"].rpartition(".")[2]) for row in view["below"][2:5]]
    assert kinds == [("supervisor", "Supervisor"), ("service", ""), ("server", "Counter")]
    inner = _view(system, under=view["below"][2]["pid"])
    assert [one["id"] for one in inner["above"]] == ["root", "server"]
    assert (inner["top"]["id"], _shown(inner)[0]) == ("faces", (1, "rest", "running"))


async def test_restarts_are_counted_with_their_reason_also_of_a_supervisor_that_was_started_again(
    system: System,
) -> None:
    inner = SupervisorSpec("inner", (ActorSpec("fragile", Fragile, name="fragile"),), max_restarts=1, window_s=60)
    await system.start_child(SupervisorSpec("outer", (inner, ActorSpec("calm", Counter, 0))))
    rows: dict[str, Any] = {}
    for count, word in enumerate(("first", "second", "third"), 1):
        before = system.whereis("fragile")
        assert before is not None
        before.cast(word)
        await until(lambda before=before: system.whereis("fragile") not in (None, before))
        rows = {row["id"]: row for row in _view(system)["below"]}
        assert rows["fragile"]["restarts"] == count
        assert rows["fragile"]["reason"] == f"RuntimeError({word!r})"
        assert 0 <= rows["fragile"]["restarted_s"] < 3600
    assert rows["inner"]["restarts"] == 1, "the second one was one too many"
    assert "RuntimeError('second')" in rows["inner"]["reason"]
    assert (rows["calm"]["restarts"], rows["calm"]["reason"], rows["calm"]["restarted_s"]) == (0, "", None)
    assert _view(system)["restarts"] == 4


async def test_children_that_do_not_run_are_shown_as_that(system: System) -> None:
    supervisor = await system.start_child(SupervisorSpec("server", (ActorSpec("one", Counter, 0),)))
    assert supervisor is not None
    await Supervisor.terminate_child(supervisor, "one")
    (_, row) = _view(system)["below"]
    assert (row["id"], row["state"], row["pid"], row["kind"], row["children"]) == ("one", "stopped", None, None, 0)


async def test_ten_thousand_actors_come_in_pages_and_the_first_one_at_once(system: System) -> None:
    entities = await system.start_child(DynamicSupervisorSpec("entities"))
    assert entities is not None
    for number in range(10_000):
        spec = ActorSpec(f"ball-{number}", Counter, 0, restart=Restart.TEMPORARY)
        await DynamicSupervisor.start_child(entities, spec)
    began_s = time.process_time()
    view = _view(system)
    assert time.process_time() - began_s < 1
    assert view["below"][0]["children"] == 10_000
    assert len(view["below"]) == 1 + FOLDED
    assert len(json.dumps(view)) < 10_000
    seen = list[str]()
    first: int | None = 0
    while first is not None:
        page = _view(system, entities.pid, first, 200)
        assert len(page["below"]) <= 200
        seen += [row["id"] for row in page["below"]]
        first = page["next"]
    assert seen == [f"ball-{number}" for number in range(10_000)]
    assert _view(system, entities.pid, 20_000)["below"] == []


async def test_an_answer_is_bounded_also_where_supervisors_are_many(system: System) -> None:
    leaves = tuple(DynamicSupervisorSpec(str(number)) for number in range(FOLDED + 5))
    for number in range(100):
        await system.start_child(SupervisorSpec(f"room-{number}", leaves))
    view = _view(system, limit=100)
    assert [row["id"] for row in view["below"] if row["depth"] == 1] == [f"room-{number}" for number in range(100)]
    assert len(view["below"]) <= MAX_ROWS + FOLDED + 100
    assert view["next"] is None


async def test_it_is_open_and_refuses_what_is_no_actor(system: System) -> None:
    app = FastAPI(responses=ERROR_RESPONSES)
    prepare_app(app)
    systems: list[System | None] = [system]
    supervision_routes(lambda: systems[-1]).add_to(app)
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(serve_app, app, "127.0.0.1", 0)
        api = Api(url, "token", Contract(app.openapi()), ())
        answer = await api.call("GET", "/v1/supervision", token=False)
        assert answer.json()["top"]["id"] == "root"
        assert await api.refused(404, "unknown_actor", "GET", "/v1/supervision?under=4711") == 4711
        systems.append(None)
        await api.refused(503, "not_ready", "GET", "/v1/supervision")
        await api.http.aclose()
        nursery.cancel_scope.cancel()
