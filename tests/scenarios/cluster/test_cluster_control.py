"""Servers are added to and removed from a cluster that runs; the servers are fakes, processes and socket real."""

import contextlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from batonpass.scenarios.cluster.blueprint import remembered_spec
from batonpass.scenarios.cluster.cluster import ClusterSpec, LocalCluster
from batonpass.scenarios.cluster.control import _SOCKET, ask_cluster, serve_control
from batonpass.scenarios.cluster.events import Added, ClusterEvent, Removed
from batonpass.scenarios.cluster.topology import BadSpec
from batonpass.scenarios.common.errors import EnvironmentFailed
from tests.scenarios.fakes import DEADLINE_S, fake_launcher

SPEC = ClusterSpec({"alpha": 1, "beta": 1}, simservers=1)


@asynccontextmanager
async def controlled(directory: Path, events: list[ClusterEvent], **behaviours: str) -> AsyncIterator[LocalCluster]:
    launcher = fake_launcher({name.replace("_", "."): behaviour for name, behaviour in behaviours.items()})
    spec = remembered_spec(directory) or ClusterSpec({"alpha": 1, "beta": 1}, simservers=1, directory=directory)
    starting = LocalCluster.start(spec, launcher=launcher, progress=events.append)
    async with starting as cluster, trio.open_nursery() as nursery:
        await nursery.start(serve_control, cluster)
        yield cluster
        nursery.cancel_scope.cancel()


async def ask(directory: Path, line: bytes) -> dict[str, Any]:
    """Send a line to the socket; the answer."""
    with contextlib.chdir(directory):
        stream = await trio.open_unix_socket("control")
    async with stream:
        answer = b""
        # Whoever is hung up on may hear of it as a reset.
        with trio.fail_after(DEADLINE_S), contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(line)
            await stream.send_eof()
            async for piece in stream:
                answer += piece
    return json.loads(answer) if answer else {}


async def ask_for(directory: Path, **request: str) -> dict[str, Any]:
    return await ask(directory, json.dumps(request).encode() + b"\n")


async def test_servers_come_and_go_and_the_next_start_remembers(tmp_path: Path) -> None:
    events: list[ClusterEvent] = []
    async with controlled(tmp_path, events) as cluster:
        added = (await ask_for(tmp_path, do="add", instance="alpha"))["server"]
        assert (added["name"], added["role"]) == ("alpha.s2", "simserver")
        assert cluster.server("alpha.s2").pid == added["pid"]
        assert (await ask_for(tmp_path, do="remove", server="alpha.s1"))["server"]["name"] == "alpha.s1"
        names = [server.name for server in cluster.servers]
        assert names == ["alpha.h1", "beta.h1", "alpha.s2", "beta.s1"]
        kept = cluster.server("beta.h1").rest_url
        assert (tmp_path / "alpha.s1" / "config.toml").exists(), "its files stay"
        again = {"name": "alpha.s1", "was_removed": True}
        assert (await ask_for(tmp_path, do="remove", server="alpha.s1"))["server"] == again
    assert [event for event in events if isinstance(event, Added | Removed)] == [Added("alpha.s2"), Removed("alpha.s1")]
    async with controlled(tmp_path, events) as cluster:
        assert [server.name for server in cluster.servers] == names
        assert (await ask_for(tmp_path, do="remove", server="alpha.s1"))["server"] == again
        assert [server.name for server in cluster.servers] == names
        assert (cluster.server("alpha.s2").rest_url, cluster.server("beta.h1").rest_url) == (added["rest_url"], kept)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"do": "add", "instance": "gamma"}, "no instance 'gamma'"),
        ({"do": "remove", "server": "alpha.s9"}, "no simulation server 'alpha.s9'"),
        ({"do": "remove", "server": "alpha.h1"}, "no simulation server 'alpha.h1'"),
        ({"do": "remove", "server": "alpha.s1/../alpha.h1"}, "no simulation server 'alpha.s1/../alpha.h1'"),
        ({"do": "remove", "server": "gamma.s1"}, "no instance 'gamma'"),
        ({"do": "look", "instance": "gamma"}, "no instance 'gamma'"),
    ],
)
async def test_what_makes_no_sense_is_refused(tmp_path: Path, request_: dict[str, str], sentence: str) -> None:
    async with controlled(tmp_path, []) as cluster:
        before = cluster.servers
        assert sentence in (await ask_for(tmp_path, **request_))["refused"]
        assert cluster.servers == before


async def test_it_says_which_homeservers_are_its_own(tmp_path: Path) -> None:
    async with controlled(tmp_path, []) as cluster:
        found = (await ask_for(tmp_path, do="look", instance="alpha"))["server"]
        assert found == {"homeservers": [cluster.server("alpha.h1").rest_url]}


async def test_junk_is_answered_or_hung_up_on_and_harms_nobody(tmp_path: Path) -> None:
    async with controlled(tmp_path, []):
        for junk in (b"junk\n", b"[]\n", b'{"do": "add"}\n'):
            assert "error" in await ask(tmp_path, junk)
        for junk in (b"", b"half a line", b"x" * 10_000):
            assert await ask(tmp_path, junk) == {}
        assert "server" in await ask_for(tmp_path, do="add", instance="beta")


async def test_a_server_that_does_not_come_up_is_no_part_of_the_cluster(tmp_path: Path) -> None:
    async with controlled(tmp_path, [], alpha_s2="crash") as cluster:
        assert "alpha.s2" in (await ask_for(tmp_path, do="add", instance="alpha"))["error"]
        assert [server.name for server in cluster.servers] == ["alpha.h1", "beta.h1", "alpha.s1", "beta.s1"]
        with pytest.raises(KeyError):
            cluster.server("alpha.s2")
    assert remembered_spec(tmp_path) is not None


def test_where_no_cluster_runs_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match=r"no `baton up` answers .* is it running"):
        ask_cluster(tmp_path, {"do": "add", "instance": "alpha"}, 1.0)


def test_who_is_not_answered_in_time_is_told_that_it_goes_on(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / _SOCKET))
        silent.listen()
        with pytest.raises(EnvironmentFailed, match=r"did not do it in 0\.05 s, and goes on; give a longer --timeout"):
            ask_cluster(tmp_path, {"do": "add", "instance": "alpha"}, 0.05)


def test_numbers_of_servers_are_not_used_again_while_higher_ones_are_there() -> None:
    spec, name = SPEC.with_simserver("alpha")
    assert name == "alpha.s2"
    spec, name = spec.without_simserver("alpha.s1").with_simserver("alpha")
    assert (name, spec.simserver_names("alpha")) == ("alpha.s3", ("alpha.s2", "alpha.s3"))
    assert spec.simserver_names("beta") == ("beta.s1",)
    with pytest.raises(BadSpec, match="gamma"):
        ClusterSpec({"alpha": 1}, simserver_numbers={"gamma": (1,)})
    with pytest.raises(BadSpec, match="not between"):
        ClusterSpec({"alpha": 1}, simserver_numbers={"alpha": tuple(range(1, 101))})
