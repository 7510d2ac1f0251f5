"""A simulation server as a process: what it opens, with what, and what its services do when they begin."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from batonpass.actors.base.clock import Clock, InstanceClock
from batonpass.actors.core.telemetry import Telemetry
from batonpass.actors.http.client import HttpClient
from batonpass.actors.http.door import DoorTraffic
from batonpass.actors.net.key_service import KeysRefused
from batonpass.actors.supervision.application import LastWord
from batonpass.authority.node.spans import Spans
from batonpass.crypto.continuity import Published
from batonpass.simserver.net.home_answers import HomeRefused
from batonpass.simserver.server import build as build_module
from batonpass.simserver.server import main
from batonpass.simserver.server.build import PartTypes, build
from tests.certified import certified
from tests.wiring.made import Lines, noted, noted_types
from tests.wiring.records import same_as_record
from tests.wiring.servers import HEARD, NAME, begin, full_simserver_config

RECORD: Final = Path(__file__).with_name("made_simserver.txt")


@dataclass
class Opened:
    """A server that is put together, and runs what a test has begun of it."""

    shell: main.Shell
    nursery: trio.Nursery
    lines: Lines

    @property
    def node(self) -> Any:
        return self.shell.node


@asynccontextmanager
async def opened(directory: Path, **changes: Any) -> AsyncIterator[Opened]:
    config = full_simserver_config(directory).model_copy(update=changes)
    async with HttpClient() as client, trio.open_nursery() as nursery:
        with noted(main, config, directory) as lines:
            yield Opened(main.open_shell(config, client, InstanceClock(Clock(), NAME)), nursery, lines)
        nursery.cancel_scope.cancel()


async def lines_made(directory: Path) -> Lines:
    """What is made for a whole server, with what."""
    config = full_simserver_config(directory)
    with noted(build_module, config, directory) as lines, pytest.MonkeyPatch.context() as patch:
        types = noted_types(PartTypes(), lines, config, directory)
        patch.setattr(main, "build", wraps(build)(partial(build, types=types)))
        async with opened(directory) as one:
            main.supervision_tree(one.shell)
            await begin_doors(one)
            return lines | one.lines


async def begin_doors(one: Opened) -> None:
    node = one.node
    await begin(one.nursery, node.link.serve)
    await begin(one.nursery, main._serve_door, node, node.streams)
    await begin(one.nursery, main._serve_stream_link, node, node.streams)
    await begin(one.nursery, main._serve_scenes, node, node.scenes)
    await begin(one.nursery, main._serve_players, node)


def test_it_is_made_as_it_is_written_down(tmp_path: Path) -> None:
    same_as_record(RECORD, trio.run(lines_made, tmp_path))
    assert HEARD[-1] == NAME, "what the configuration names has been told of the telemetry"


async def test_its_doors_listen_where_it_is_said_and_tell_how_many_are_there(tmp_path: Path) -> None:
    async with opened(tmp_path) as one:
        await begin_doors(one)
        node = one.node
        assert set(node.door_traffic) == {"streams", "scenes", "players"}
        for traffic in node.door_traffic.values():
            assert traffic() == DoorTraffic(0, 0, {}, 0, 0, 0)
        assert node.stream_url.startswith("http://127.0.1.3:")
        assert node.scene_url.startswith("http://127.0.1.4:")
        assert node.player_url == "wss://players.example"
        assert node.stream_pushes is not None
        async with httpx.AsyncClient(trust_env=False) as client:
            page = await client.get(f"{node.stream_url}/game.html")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert node.link.address[0] == "127.0.1.2"


async def test_with_a_certificate_its_doors_prove_themselves_by_it(tmp_path: Path) -> None:
    async with opened(tmp_path, tls=certified(tmp_path, NAME), player_door_url=None) as one:
        await begin_doors(one)
        for url in (one.node.stream_url, one.node.scene_url, one.node.player_url):
            assert url.startswith("https://"), url


async def test_its_players_door_is_said_to_be_where_it_listens_if_nothing_else_is_said(tmp_path: Path) -> None:
    async with opened(tmp_path, player_door_url=None) as one:
        await begin(one.nursery, main._serve_players, one.node)
        assert one.node.player_url.startswith("http://127.0.1.5:")
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(one.node.player_url.replace("ws://", "http://"))
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")


async def test_it_does_not_show_its_secrets(tmp_path: Path) -> None:
    secret = "the operator token, of some length"  # noqa: S105 -- as tests.wiring.servers writes it
    async with opened(tmp_path) as one:
        assert secret not in repr(one.shell)
        assert secret not in repr(one.shell.tokens)


class Web:
    """REST that listens."""

    urls: Final = ("http://127.0.1.1:1",)


class Asked:
    """A home instance that notes who registers."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.fails: Exception | None = None
        self.began: list[Any] = []
        self.registered: list[tuple[str, tuple[str, int], Published]] = []

    async def register(self, url: str, address: tuple[str, int], keys: Published) -> Published:
        if self.fails is not None:
            raise self.fails
        self.registered.append((url, address, keys))
        return keys

    def begin(self, places: Any) -> None:
        self.began.append(places())


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[Opened]:
    async with opened(tmp_path) as one:
        yield one


@pytest.fixture
def home(one: Opened, monkeypatch: pytest.MonkeyPatch) -> Asked:
    home = Asked(one.node)
    monkeypatch.setattr(one.node.ports.home, "register", home.register)
    monkeypatch.setattr(one.node.lease, "begin", home.begin)
    return home


async def test_it_registers_begins_its_lease_and_publishes_each_change_of_its_keys(one: Opened, home: Asked) -> None:
    node = one.node
    await begin(one.nursery, node.link.serve)
    await begin(one.nursery, main._register, one.shell, Web())
    await wait_all_tasks_blocked()
    assert node.registered
    assert home.began == [(Web.urls[0], *node.link.address)]
    assert [(url, address) for url, address, _ in home.registered] == [(Web.urls[0], node.link.address)]
    before = node.sealer.identity.public.signing_kid
    await one.shell.keys.rotate(3600.0)
    assert len(home.registered) == 2
    assert len(home.began) == 1, "the lease goes on"
    assert node.sealer.identity.public.signing_kid != before
    assert node.link._endpoint._table.identity is node.sealer.identity
    home.fails = HomeRefused("no", "key_change")
    with pytest.raises(KeysRefused):
        await one.shell.keys.rotate(3600.0)
    assert one.shell.last_word.error is None, "it continues with the keys that it has"


async def test_whom_home_refuses_at_the_start_has_said_its_last_word(one: Opened, home: Asked) -> None:
    home.fails = HomeRefused("no", "not_allowed")
    await begin(one.nursery, one.node.link.serve)
    await begin(one.nursery, main._register, one.shell, Web())
    await wait_all_tasks_blocked()
    assert one.shell.last_word.error is home.fails
    assert not one.node.registered


async def test_its_ledger_is_opened_remembered_and_written_to_the_end(
    one: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, done = one.node, list[str]()
    monkeypatch.setattr(main, "remember", lambda given: done.append(f"remembered {given.config.name}"))
    monkeypatch.setattr(node.replication, "check_in_all", lambda: done.append("written"))
    async with trio.open_nursery() as inner:
        await begin(inner, main._serve_ledger, node)
        assert done == [f"remembered {NAME}"]
        inner.cancel_scope.cancel()
    assert done == [f"remembered {NAME}", "written"]


# --- the process ------------------------------------------------------------------------------------


async def test_it_is_opened_runs_and_closes_its_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, done = full_simserver_config(tmp_path), list[Any]()
    monkeypatch.setattr(main, "believe_authorities", lambda files: done.append(("believes", files)))
    monkeypatch.setattr(Spans, "close", lambda _: done.append("closed"))
    system = object()

    async def run_application(name: str, tree: Any, last_word: Any, started: Any, telemetry: Any) -> None:
        done.extend((name, tree.id, type(last_word), type(telemetry)))
        started(system)
        await trio.sleep_forever()

    monkeypatch.setattr(main, "run_application", run_application)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as inner:
            shell: Any = await begin(inner, main.run, config)
            assert shell.node.system is system
            scope.cancel()
    assert done == [("believes", config.tls), NAME, "simserver", LastWord, Telemetry, "closed"]


@pytest.mark.parametrize(("refuses", "status"), [(False, 0), (True, 3)])
def test_the_exit_status_says_whether_home_refused_it(
    refuses: bool, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config, ran = full_simserver_config(tmp_path), list[Any]()

    def run_until_signalled(name: str, run: Any) -> None:
        assert name == NAME
        run()
        if refuses:
            inner = ExceptionGroup("inside", [HomeRefused("no room here", "not_allowed")])
            raise ExceptionGroup("it stops", [inner])

    monkeypatch.setattr(main, "run_until_signalled", run_until_signalled)
    monkeypatch.setattr(main, "run", ran.append)
    assert main.main(config) == status
    assert ran == [config]
    assert ("stops: its home instance refused it" in caplog.text) is refuses
    assert ("no room here" in caplog.text) is refuses
