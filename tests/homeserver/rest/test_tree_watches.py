"""Events over HTTP: resumed after a lost connection and a restart, cut when nobody reads, ended when it must be."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import h11
import pytest
import trio

from batonpass.actors.http.app import ApiError
from batonpass.homeserver.rest import watches
from batonpass.tree.store.watch import History
from tests.homeserver.served import DEADLINE_S, Home, homeserver_config, new_ports, served, until


class Reader:
    """Reads a stream of server-sent events as a browser does: the id stays until another one comes."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.last_id = ""
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self._text = b""

    async def ask(self, target: str, headers: dict[str, str]) -> h11.Response:
        """Send the request; the head of its answer."""
        request = h11.Request(method="GET", target=target, headers=list({"host": "localhost", **headers}.items()))
        await self._stream.send_all((self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b""))
        response = await self._next()
        assert isinstance(response, h11.Response)
        return response

    async def _next(self) -> Any:
        with trio.fail_after(DEADLINE_S):
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(bytes(await self._stream.receive_some()))
        return event

    async def line(self) -> str:
        """The next line of the stream."""
        while b"\n" not in self._text:
            piece = await self._next()
            assert isinstance(piece, h11.Data), "the stream ended"
            self._text += piece.data
        line, _, self._text = self._text.partition(b"\n")
        return line.decode()

    async def event(self) -> tuple[str, dict[str, Any]]:
        """The next event with data: its kind and its data."""
        kind, data = "", ""
        while True:
            line = await self.line()
            field, _, value = line.partition(": ")
            match field:
                case "id":
                    self.last_id = value
                case "event":
                    kind = value
                case "data":
                    data += value
                case _ if not line and data:
                    return kind, json.loads(data)


@asynccontextmanager
async def watching(home: Home, query: str, **headers: str) -> AsyncIterator[Reader]:
    token = (home.directory / "client").read_text()
    stream = await trio.open_tcp_stream("127.0.0.1", home.node.config.rest.port)
    async with stream:
        reader = Reader(stream)
        response = await reader.ask(f"/v1/watch?{query}", {"authorization": f"Bearer {token}", **headers})
        assert response.status_code == 200
        assert dict(response.headers)[b"content-type"].startswith(b"text/event-stream")
        yield reader


async def put(home: Home, path: str, data: Any) -> None:
    await home.api.do("PUT", f"/v1/tree/{path}", {"data": data})


def history_of(home: Home) -> History:
    """What the server's watchers watch; with one watcher of ours."""
    return home.node.replica.watch(("jobs",))._watcher._history


async def test_events_are_told_as_they_happen(alpha: Home) -> None:
    async with watching(alpha, "pattern=jobs/*&previous=true") as reader:
        await put(alpha, "jobs/7", {"$bytes": "AA=="})
        await put(alpha, "other", 1)
        await put(alpha, "jobs/7", 2)
        await alpha.api.do("DELETE", "/v1/tree/jobs/7")
        events = [await reader.event() for _ in range(3)]
    assert [kind for kind, _ in events] == ["created", "updated", "deleted"]
    created, updated, deleted = (data for _, data in events)
    assert (created["path"], created["data"], created["previous"]) == (["jobs", "7"], {"$bytes": "AA=="}, None)
    assert (updated["data"], updated["previous"], updated["payload_version"]) == (2, {"$bytes": "AA=="}, 2)
    assert (deleted["has_data"], deleted["previous"]) == (False, 2)
    assert created["revision"] < updated["revision"] < deleted["revision"]


async def test_a_commit_is_resumed_as_a_whole(alpha: Home) -> None:
    await put(alpha, "jobs/0", 0)
    many = {"then": [{"op": "put", "path": f"jobs/{n}", "data": n} for n in range(1, 4)]}
    async with watching(alpha, "pattern=jobs/*&since=0") as reader:
        await reader.event()
        seen = reader.last_id
        await alpha.api.do("POST", "/v1/tx", many)
        await reader.event()
        assert reader.last_id == seen, "in the middle of a commit there is no new id"
    async with watching(alpha, "pattern=jobs/*", **{"last-event-id": seen}) as reader:
        again = [(await reader.event())[1] for _ in range(3)]
        assert [event["data"] for event in again] == [1, 2, 3]
        assert reader.last_id == str(again[-1]["revision"])


async def test_watching_goes_on_after_a_restart_of_the_server(tmp_path: Path) -> None:
    with new_ports() as ports:
        config = homeserver_config(tmp_path, ports)
        async with served(config) as home:
            async with watching(home, "pattern=jobs/*") as reader:
                await put(home, "jobs/1", 1)
                first = await reader.event()
            await put(home, "jobs/2", 2)
            last = reader.last_id
        async with served(config) as home:
            await put(home, "jobs/3", 3)
            async with watching(home, "pattern=jobs/*", **{"last-event-id": last}) as reader:
                assert [(await reader.event())[1]["data"] for _ in range(2)] == [2, 3]
            async with watching(home, "pattern=jobs/*&since=0") as reader:
                assert await reader.event() == first


async def test_a_heartbeat_moves_the_id_on(alpha: Home) -> None:
    async with watching(alpha, "pattern=nothing&heartbeat_s=1") as reader:
        await put(alpha, "jobs/7", 1)
        revision = str((await alpha.api.get("/v1/tree/jobs/7"))["revision"])
        with trio.fail_after(DEADLINE_S):
            while await reader.line() != f"id: {revision}":
                pass


async def test_a_watch_can_be_resumed_from_the_last_heartbeat_of_a_quiet_pattern(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much happened elsewhere since the one before."""
    monkeypatch.setattr(history_of(alpha), "_max_events", 10)
    async with watching(alpha, "pattern=nothing&heartbeat_s=1") as reader:
        for number in range(30):
            await put(alpha, "jobs/7", number)
        revision = str((await alpha.api.get("/v1/tree/jobs/7"))["revision"])
        with trio.fail_after(DEADLINE_S):
            while await reader.line() != f"id: {revision}":
                pass
    async with watching(alpha, "pattern=nothing", **{"last-event-id": revision}):
        pass


async def test_a_revision_that_is_still_to_come_is_not_waited_for_in_silence(alpha: Home) -> None:
    await put(alpha, "jobs/7", 1)
    revision = (await alpha.api.get("/v1/tree/jobs/7"))["revision"]
    for query, headers in ((f"&since={revision + 1}", {}), ("", {"last-event-id": str(2**63 - 1)})):
        path = f"/v1/watch?pattern=jobs/*{query}"
        assert await alpha.api.refused(409, "future_revision", "GET", path, headers=headers) == revision
    async with watching(alpha, f"pattern=jobs/*&since={revision}"):
        pass


async def test_a_member_that_is_behind_catches_up_with_a_revision_before_it_refuses_it(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(alpha, "jobs/7", 1)
    revision = alpha.node.replica.store.revision
    asked: list[int] = []

    async def catches_up() -> None:
        asked.append(revision)
        await put(alpha, "jobs/8", 1)

    monkeypatch.setattr(alpha.node.store, "fresh", catches_up)
    async with watching(alpha, f"pattern=jobs/*&since={revision + 1}"):
        assert asked == [revision]


async def test_a_member_that_hears_of_no_leader_sends_no_heartbeats_and_ends_the_stream(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(alpha, "pattern=nothing&heartbeat_s=1") as reader:
        monkeypatch.setattr("batonpass.tree.raft.raft.RaftCore.leader_name", lambda _raft: None)
        monkeypatch.setattr("batonpass.tree.raft.raft.RaftCore.why_no_leader", lambda _raft: "its leader is silent")
        assert await reader.line() == ": watching"
        assert (await reader.line()).startswith("id: ")
        assert await reader.line() == ""
        assert await reader.line() == "event: cut", "and no heartbeat before"
        cut = json.loads((await reader.line()).removeprefix("data: "))
        assert cut["code"] == "watcher_cut"
        assert "no leader that alpha.h1 hears: its leader is silent" in cut["message"]
        answer = await alpha.api.call("GET", "/healthz")
        assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
        assert answer.json()["message"].endswith("no leader that alpha.h1 hears: its leader is silent")
        cluster = await alpha.api.get("/v1/cluster")
        assert (cluster["leader"], cluster["ready"]) == (None, False)
        assert not any(member["leads"] for member in cluster["members"])


async def test_what_is_not_kept_any_more_is_said_to_be_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonpass.tree.member.local_tree.History", lambda: History(max_events=3))
    with new_ports() as ports:
        async with served(homeserver_config(tmp_path, ports)) as home:
            for number in range(6):
                await put(home, "jobs/7", number)
            await home.api.refused(410, "compacted", "GET", "/v1/watch?pattern=jobs/*&since=0")
            answer = await home.api.call("GET", "/v1/watch?pattern=jobs/*&since=0")
            oldest = answer.json()["details"]["oldest"]
            async with watching(home, f"pattern=jobs/*&since={oldest}") as reader:
                assert [(await reader.event())[1]["data"] for _ in range(3)] == [3, 4, 5]


async def test_a_watcher_that_does_not_read_is_cut_and_costs_the_others_nothing(alpha: Home) -> None:
    history = history_of(alpha)
    large = "x" * 900_000
    async with watching(alpha, "pattern=jobs/*") as slow:
        before = history.watcher_count
        written = 0
        with trio.fail_after(DEADLINE_S):
            while history.watcher_count == before:
                await put(alpha, "jobs/7", [written, large])
                written += 1
        taken, last = 0, ""
        while True:
            kind, data = await slow.event()
            if kind in ("cut", "compacted"):
                break
            assert data["data"][0] == taken
            taken, last = taken + 1, slow.last_id
        assert taken < written
        assert data["code"] == ("watcher_cut" if kind == "cut" else "compacted")
        if kind == "cut":
            assert str(data["last_revision"]) == last


async def test_when_the_tree_is_replaced_by_a_snapshot_everybody_reads_again(alpha: Home) -> None:
    await put(alpha, "jobs/7", 1)
    history = history_of(alpha)
    own = history.watcher_count
    async with watching(alpha, "pattern=jobs/*") as reader:
        await until(lambda: history.watcher_count == own + 1)
        history.reset(history.revision + 10)
        kind, data = await reader.event()
    assert (kind, data["code"]) == ("compacted", "compacted")
    assert data["oldest"] == history.revision


async def test_watchers_are_bounded_and_gone_when_their_clients_are(alpha: Home) -> None:
    history = history_of(alpha)
    own = history.watcher_count
    held = [watching(alpha, f"pattern=jobs/{n}") for n in range(3)]
    for one in held:
        await one.__aenter__()
    assert history.watcher_count == own + 3
    for one in held:
        await one.__aexit__(None, None, None)
    await until(lambda: history.watcher_count == own)
    with pytest.raises(ApiError) as refused:
        watches.WatchSeats(0).take()
    assert (refused.value.status, refused.value.code) == (503, "too_many_watchers")


async def test_a_pattern_that_cannot_be_watched_is_refused(alpha: Home) -> None:
    pattern = '[["if_has_data", true], "x"]'
    answer = await alpha.api.call("GET", "/v1/watch", params={"pattern": pattern})
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_pattern")
    await alpha.api.refused(422, "invalid_field", "GET", "/v1/watch")
    await alpha.api.refused(422, "invalid_field", "GET", "/v1/watch?pattern=x", headers={"last-event-id": "x"})
