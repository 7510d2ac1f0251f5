"""/v1/actors: the overview is open, the inside takes the operator token, and nothing secret or unbounded comes out."""

import dataclasses
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import trio
from fastapi import FastAPI

from batonpass.actors import ActorSpec, From, NoReply, Reply, Restart, Server, ServiceSpec, SupervisorSpec, System
from batonpass.actors.core.ref import Ref
from batonpass.actors.core.status_report import ServerStatus
from batonpass.actors.http.app import ERROR_RESPONSES, prepare_app
from batonpass.actors.http.web_service import serve_app
from batonpass.actors.observe import sys
from batonpass.actors.observe.observation import MAX_TRACES, actor_routes
from tests.actors.servers import Counter, Slow
from tests.homeserver.openapi import Contract
from tests.homeserver.served import Api, until
from tests.tokens import gate

TOKEN = "the-operators-own"  # noqa: S105
SECRET = "open-sesame"  # noqa: S105


@dataclass
class Vault:
    open: bool
    combination: str
    hidden: str = field(default=SECRET, repr=False)


class Safe(Server[Vault]):
    """Holds a secret in its state, is sent secrets, and says so in `format_status`."""

    def init(self, arg: None) -> Vault:
        return Vault(open=False, combination=SECRET)

    def handle_call(self, request: str, from_: From, state: Vault) -> Reply[Vault]:
        return Reply({"token": SECRET, "tried": request})

    def handle_cast(self, message: str, state: Vault) -> NoReply[Vault]:
        return NoReply(state)

    def format_status(self, status: ServerStatus) -> ServerStatus:
        message = "a combination" if status.message == SECRET else status.message
        return dataclasses.replace(status, state=dataclasses.replace(status.state, combination="..."), message=message)


class Whisper(Server[str]):
    """Shows a text that is not its state."""

    def init(self, arg: None) -> str:
        return SECRET

    def format_status(self, status: ServerStatus) -> ServerStatus:
        return dataclasses.replace(status, state="...")


class Stage:
    def __init__(self, system: System, api: Api) -> None:
        self.system = system
        self.api = api

    async def child(self, spec: Any) -> Ref:
        ref = await self.system.start_child(spec)
        assert ref is not None
        return ref


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with System.open("alpha.s1") as system, trio.open_nursery() as nursery:
        app = FastAPI(responses=ERROR_RESPONSES)
        prepare_app(app)
        actor_routes(lambda: system, gate(operator=TOKEN)).add_to(app)
        (url,) = await nursery.start(serve_app, app, "127.0.0.1", 0)
        api = Api(url, TOKEN, Contract(app.openapi()), (SECRET, TOKEN, "site-packages"))
        yield Stage(system, api)
        await api.http.aclose()
        nursery.cancel_scope.cancel()


async def test_the_overview_shows_every_actor_and_needs_no_token(stage: Stage) -> None:
    counters = SupervisorSpec("counters", (ActorSpec("counter", Counter, 7, name=("counter", 1)),))
    supervisor = await stage.child(counters)
    view = (await stage.api.call("GET", "/v1/actors", token=False)).json()
    assert (view["node"], view["next"], view["stats"]["actors"]) == ("alpha.s1", None, 3)
    root, middle, leaf = view["actors"]
    assert (root["kind"], root["names"], root["parent"], root["children"]) == ("supervisor", ["root"], None, 1)
    assert (middle["pid"], middle["kind"], middle["parent"]) == (supervisor.pid, "supervisor", root["pid"])
    assert (leaf["kind"], leaf["module"], leaf["parent"]) == (
        "server",
        "tests.actors.servers.Counter",
        middle["pid"],
    )
    assert (leaf["names"], leaf["condition"], leaf["waiting"], leaf["messages_handled"]) == (
        ['["counter", 1]'],
        "running",
        0,
        None,
    )
    assert "state" not in leaf


async def test_the_overview_comes_in_pages(stage: Stage) -> None:
    refs = [await stage.system.start(Counter, 0) for _ in range(5)]
    seen: list[int] = []
    after: int | None = 0
    while after is not None:
        page = await stage.api.get(f"/v1/actors?after={after}&limit=2")
        assert len(page["actors"]) <= 2
        seen += [row["pid"] for row in page["actors"]]
        after = page["next"]
    assert seen == [stage.system.root.pid, *(ref.pid for ref in refs)]


async def test_the_inside_shows_what_format_status_allows_and_nothing_that_looks_secret(stage: Stage) -> None:
    safe = await stage.system.start(Safe, name="safe")
    inside = await stage.api.get(f"/v1/actors/{safe.pid}")
    assert inside["state"] == {"Vault": {"open": False, "combination": "..."}}
    assert (inside["state_known"], inside["stack"], inside["statistics"]) == (True, [], None)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/trace"),
        ("POST", "/suspend"),
        ("POST", "/resume"),
        ("PUT", "/state"),
        ("PUT", "/statistics"),
        ("DELETE", "/statistics"),
        ("DELETE", ""),
    ],
)
async def test_only_an_operator_looks_inside_or_changes_anything(stage: Stage, method: str, path: str) -> None:
    counter = await stage.system.start(Counter, 7)
    route = f"/v1/actors/{counter.pid}{path}"
    await stage.api.refused(401, "no_token", method, route, token=False)
    await stage.api.refused(403, "wrong_token", method, route, headers={"authorization": "Bearer x"})
    assert await sys.get_state(counter) == 7


async def test_without_an_operator_token_nobody_does_and_before_the_system_is_there_nothing_is_seen() -> None:
    app = FastAPI(responses=ERROR_RESPONSES)
    prepare_app(app)
    actor_routes(lambda: None, gate()).add_to(app)
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(serve_app, app, "127.0.0.1", 0)
        api = Api(url, TOKEN, Contract(app.openapi()), ())
        await api.refused(403, "no_operator", "GET", "/v1/actors/1")
        await api.refused(503, "not_ready", "GET", "/v1/actors")
        await api.http.aclose()
        nursery.cancel_scope.cancel()


async def test_an_actor_is_held_still_and_let_go(stage: Stage) -> None:
    counter = await stage.system.start(Counter, 7)
    row = await stage.api.do("POST", f"/v1/actors/{counter.pid}/suspend")
    assert row["condition"] == "suspended"
    counter.cast(1)
    assert (await stage.api.get(f"/v1/actors/{counter.pid}"))["waiting"] == 1
    row = await stage.api.do("POST", f"/v1/actors/{counter.pid}/resume")
    assert row["condition"] == "running"
    assert await counter.call("get") == 8


async def test_a_state_is_replaced_by_one_of_its_shape(stage: Stage) -> None:
    counter = await stage.system.start(Counter, 7)
    inside = await stage.api.do("PUT", f"/v1/actors/{counter.pid}/state", {"state": 40})
    assert (inside["pid"], inside["state"]) == (counter.pid, 40)
    counter.cast(2)
    assert await counter.call("get") == 42


@pytest.mark.parametrize("state", ["40", 40.0, True, None, [40], {"state": 40}])
async def test_a_state_that_is_refused_leaves_the_actor_as_it_was(stage: Stage, state: Any) -> None:
    counter = await stage.system.start(Counter, 7)
    path = f"/v1/actors/{counter.pid}/state"
    assert await stage.api.refused(409, "state_not_replaceable", "PUT", path, {"state": state}) == "state"
    assert await counter.call("get") == 7


async def test_what_format_status_shows_something_else_of_is_not_replaced_by_it(stage: Stage) -> None:
    whisper = await stage.system.start(Whisper)
    path = f"/v1/actors/{whisper.pid}"
    assert (await stage.api.get(path))["state"] == "..."
    for pid in (whisper.pid, stage.system.root.pid):
        for state in ("...", "louder", None):
            path = f"/v1/actors/{pid}/state"
            await stage.api.refused(409, "state_not_replaceable", "PUT", path, {"state": state})
    assert await sys.get_state(whisper) == SECRET


async def test_a_new_state_is_one_field_of_json(stage: Stage) -> None:
    counter = await stage.system.start(Counter, 7)
    path = f"/v1/actors/{counter.pid}/state"
    for body in ({}, {"state": 1, "more": 2}, [1]):
        await stage.api.refused(422, "invalid_field", "PUT", path, body)
    json_body = {"content-type": "application/json"}
    for content in ('{"state": NaN}', '{"state": 1, "state": 2}', '{"state": ' + "[" * 10_000, "{}}"):
        await stage.api.refused(400, "bad_json", "PUT", path, content=content, headers=json_body)
    assert await counter.call("get") == 7


async def test_statistics_are_switched_on_shown_and_switched_off(stage: Stage) -> None:
    counter = await stage.system.start(Counter, 7)
    path = f"/v1/actors/{counter.pid}"
    assert (await stage.api.do("PUT", f"{path}/statistics"))["messages_handled"] == 0
    await counter.call("get")
    counted = (await stage.api.get(path))["statistics"]
    assert (counted["messages_in"], counted["messages_out"]) == (1, 1)
    assert (await stage.api.do("DELETE", f"{path}/statistics"))["messages_handled"] is None


async def test_whoever_is_ended_is_started_again_by_its_supervisor(stage: Stage) -> None:
    counter = await stage.child(ActorSpec("counter", Counter, 7, name="counter"))
    await stage.api.do("DELETE", f"/v1/actors/{counter.pid}")
    assert not counter.alive
    assert await stage.system.named("counter").call("get") == 7
    assert await stage.api.refused(404, "unknown_actor", "GET", f"/v1/actors/{counter.pid}") == counter.pid


async def test_a_service_has_no_messages_and_no_state(stage: Stage) -> None:
    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()

    service = await stage.child(ServiceSpec("service", serve, restart=Restart.TEMPORARY))
    path = f"/v1/actors/{service.pid}"
    inside = await stage.api.get(path)
    assert (inside["kind"], inside["module"], inside["callback"], inside["state_known"]) == (
        "service",
        "",
        "serve",
        False,
    )
    await stage.api.refused(409, "not_a_server", "PUT", f"{path}/state", {"state": None})
    for method, what in (("POST", "suspend"), ("POST", "resume"), ("PUT", "statistics"), ("GET", "trace")):
        await stage.api.refused(409, "not_a_server", method, f"{path}/{what}")
    await stage.api.do("DELETE", path)
    assert not service.alive


async def test_an_actor_that_is_stuck_is_seen_at_once_and_does_not_hang_whoever_asks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonpass.actors.observe.observation.ANSWER_S", 0.01)
    slow = await stage.system.start(Slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(slow.call, 3600.0, None))
        await until(lambda: sys.get_status(slow).callback is not None)
        inside = await stage.api.get(f"/v1/actors/{slow.pid}")
        assert (inside["callback"], inside["state_known"], inside["state"]) == ("handle_call", False, None)
        assert inside["stack"][0].startswith("Slow.handle_call (servers.py:")
        await stage.api.refused(504, "actor_busy", "POST", f"/v1/actors/{slow.pid}/suspend")
        await stage.api.refused(504, "actor_busy", "PUT", f"/v1/actors/{slow.pid}/state", {"state": None})
        nursery.cancel_scope.cancel()
    slow.kill()


async def test_a_trace_streams_what_happens_without_secrets_until_the_actor_has_ended(stage: Stage) -> None:
    safe = await stage.system.start(Safe)
    lines: list[dict[str, Any]] = []
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with stage.api.http.stream("GET", f"/v1/actors/{safe.pid}/trace", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        safe.cast(SECRET)
        await safe.call("1234")
        await safe.stop()
        async for line in answer.aiter_lines():
            assert SECRET not in line
            lines.append(json.loads(line))
    assert [(line["kind"], line.get("content")) for line in lines] == [
        ("in", "a combination"),
        ("in", "1234"),
        ("out", {"token": "<hidden>", "tried": "1234"}),
        ("end", "normal"),
        ("done", None),
    ]
    assert lines[-1] == {"kind": "done", "why": "ended", "events": 4, "dropped": 0}


async def test_a_trace_ends_after_so_many_events_or_seconds_and_when_nobody_reads_on(stage: Stage) -> None:
    counter = await stage.system.start(Counter, 7)
    path = f"/v1/actors/{counter.pid}/trace"
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with stage.api.http.stream("GET", f"{path}?events=1", headers=headers) as answer:
        counter.cast(1)
        lines = [json.loads(line) async for line in answer.aiter_lines()]
    assert [line["kind"] for line in lines] == ["in", "done"]
    assert lines[-1]["why"] == "events"
    over = await stage.api.call("GET", f"{path}?seconds=0.1")
    assert json.loads(over.text)["why"] == "seconds"
    async with stage.api.http.stream("GET", path, headers=headers):
        assert stage.system.debug.probe_of(counter.process) is not None
    await until(lambda: stage.system.debug.probe_of(counter.process) is None)


async def test_only_so_many_traces_run_at_once(stage: Stage) -> None:
    counter = await stage.system.start(Counter, 7)
    path = f"/v1/actors/{counter.pid}/trace"
    async with trio.open_nursery() as nursery:
        opened = 0

        async def hold() -> None:
            nonlocal opened
            async with stage.api.http.stream("GET", path, headers={"authorization": f"Bearer {TOKEN}"}):
                opened += 1
                await trio.sleep_forever()

        for _ in range(MAX_TRACES):
            nursery.start_soon(hold)
        await until(lambda: opened == MAX_TRACES)
        assert await stage.api.refused(503, "too_many_traces", "GET", path) == MAX_TRACES
        nursery.cancel_scope.cancel()
    await until(lambda: stage.system.debug.probe_of(counter.process) is None)
    assert (await stage.api.call("GET", f"{path}?seconds=0.1")).status_code == 200


@pytest.mark.parametrize("pid", ["0", "-1", "x", "1.5", "9" * 5000, "99999", "%00", "..%2f1"])
async def test_strange_pids_are_nobody(stage: Stage, pid: str) -> None:
    for method in ("GET", "DELETE"):
        answer = await stage.api.call(method, f"/v1/actors/{pid}")
        assert answer.status_code in (404, 422)
    for query in ("after=-1", "limit=0", "limit=251", "limit=x", "after=" + "9" * 400, "nonsense=1"):
        await stage.api.refused(422, "invalid_field", "GET", f"/v1/actors?{query}")


async def test_supervisors_show_their_children_as_their_state(stage: Stage) -> None:
    await stage.child(ActorSpec("counter", Counter, 7))
    inside = await stage.api.get(f"/v1/actors/{stage.system.root.pid}")
    assert inside["state"]["children"] == [{"id": "counter", "status": "running", "restart": "Restart.PERMANENT"}]
