"""A homeserver as a process: what it opens, with what, and what its services do when they begin."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from batonpass.actors.base.clock import Clock, InstanceClock
from batonpass.actors.core.telemetry import Telemetry
from batonpass.actors.http.client import HttpClient
from batonpass.actors.http.door import DoorTraffic
from batonpass.actors.net.key_service import KeysRefused
from batonpass.actors.supervision.application import LastWord
from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.authority.node.spans import Spans
from batonpass.homeserver.log.log_identity import LogDiffers
from batonpass.homeserver.node import composition
from batonpass.homeserver.node.composition import Kinds
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.server import exit_status, main
from batonpass.tree.net.roster import REMOVED
from batonpass.tree.net.transport import RefusedByInstance
from batonpass.tree.raft.submissions import NoQuorum, OutcomeUnknown
from tests.simserver.ports import TrioClock
from tests.wiring.made import Lines, noted, noted_types
from tests.wiring.records import same_as_record
from tests.wiring.servers import HEARD, HOME, begin, full_home_config

RECORD: Final = Path(__file__).with_name("made_homeserver.txt")


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[tuple[HomeserverNode, Lines]]:
    config = full_home_config(directory)
    async with HttpClient() as client:
        with noted(main, config, directory) as lines:
            yield main.build(config, client, InstanceClock(Clock(), HOME)), lines


async def lines_made(directory: Path) -> Lines:
    """What is made for a whole server, with what."""
    config, build = full_home_config(directory), composition.build
    with noted(composition, config, directory) as lines, pytest.MonkeyPatch.context() as patch:
        kinds = noted_types(Kinds(), lines, config, directory)
        patch.setattr(composition, "build", lambda ports, settings: build(ports, settings, kinds))
        async with opened(directory) as (node, more):
            main.supervision_tree(node)
            return lines | more


def test_it_is_made_as_it_is_written_down(tmp_path: Path) -> None:
    same_as_record(RECORD, trio.run(lines_made, tmp_path))
    assert HEARD[-1] == HOME, "what the configuration names has been told of the telemetry"


async def test_who_stands_in_its_door_is_counted(tmp_path: Path) -> None:
    async with opened(tmp_path) as (node, _):
        main.supervision_tree(node)
        assert node.door_traffic is not None
        assert node.door_traffic() == DoorTraffic(0, 0, {}, 0, 0, 0)


async def test_who_leads_is_asked_of_the_backend_of_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as (node, _):
        for leader in (HOME, "alpha.h2"):
            status = SimpleNamespace(leader=leader, is_leader=leader == HOME)
            monkeypatch.setattr(node.backend, "current", SimpleNamespace(status=status), raising=False)
            assert node.log_identity._leader() == leader
            assert node.balancer._leads() is (leader == HOME)
        assert node.sealer._log_for != node.sealer._is_not_bound


# --- what its services do --------------------------------------------------------------------------


class Served:
    """Services that say when they have begun."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def of(self, name: str) -> Any:
        async def serve(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            self.begun.append(name)
            task_status.started()
            await trio.sleep_forever()

        return SimpleNamespace(serve=serve)

    def loop(self, name: str) -> Any:
        async def loop(nursery: trio.Nursery) -> None:
            self.begun.append(name)
            assert isinstance(nursery, trio.Nursery)
            await trio.sleep_forever()

        return loop


async def test_rest_is_served_with_what_wakes_requests_that_wait(nursery: trio.Nursery) -> None:
    served = Served()
    await begin(
        nursery, main._serve_rest, cast(Any, SimpleNamespace(questions=served.of("questions"))), served.of("web")
    )
    assert served.begun == ["questions", "web"]


async def test_loops_run_beside_each_other(nursery: trio.Nursery) -> None:
    served = Served()
    await begin(nursery, main._serve_loops, [served.loop("one"), served.loop("two")])
    await wait_all_tasks_blocked()
    assert set(served.begun) == {"one", "two"}


async def test_whatever_looks_abroad_is_served_with_federation(nursery: trio.Nursery) -> None:
    served = Served()
    node = SimpleNamespace(
        federation=served.of("federation"),
        loops=lambda: {"abroad": (served.loop("abroad"),)},
        log_identity=served.of("log_identity"),
        clocks=served.of("clocks"),
    )
    await begin(nursery, main._serve_federation, cast(Any, node))
    await wait_all_tasks_blocked()
    assert set(served.begun) == {"federation", "abroad", "log_identity", "clocks"}


class Web:
    """REST that listens."""

    urls: Final = ["http://127.0.2.1:1"]


class Row:
    """The directory of an instance, with the row of one member."""

    def __init__(self) -> None:
        self.shown: DirectoryRow | None = None
        self.registered: list[DirectoryRow] = []
        self.fails: list[Exception] = []

    async def register(self, _store: Any, row: DirectoryRow) -> DirectoryRow:
        if self.fails:
            raise self.fails.pop(0)
        self.registered.append(row)
        self.shown = row
        return row

    def row(self, name: str) -> DirectoryRow | None:
        assert name == HOME
        return self.shown


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Row:
    rows = Row()
    monkeypatch.setattr(main, "register", rows.register)
    return rows


@pytest.fixture
async def node(tmp_path: Path, rows: Row) -> AsyncIterator[Any]:
    """What a homeserver registers with."""
    async with opened(tmp_path) as (built, _):
        yield SimpleNamespace(
            config=built.config,
            keys=built.keys,
            link=SimpleNamespace(address=("127.0.2.2", 7)),
            store=rows,
            clock=TrioClock(),
            registered=False,
            last_word=LastWord(),
        )


HERE: Final = (Web.urls[0], "127.0.2.2", 7)


async def test_it_enters_its_directory_as_soon_as_there_is_a_leader_and_with_each_change_of_its_keys(
    node: Any, rows: Row, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    rows.fails = [NoQuorum("none"), OutcomeUnknown("none", None)]
    await begin(nursery, main._register, node, Web())
    await trio.sleep(0.1)
    assert not node.registered, "the leader that is to come is not asked for without a pause"
    await trio.sleep(1.0)
    assert node.registered
    first = rows.registered[0]
    assert (first.name, first.role, first.address) == (HOME, Role.HOMESERVER, HERE)
    assert first.keys == node.keys.ring.published.keys.to_jwks()
    assert (first.version, first.statements) == (1, ())
    await node.keys.rotate(3600.0)
    assert (rows.registered[1].version, len(rows.registered[1].statements)) == (2, 1)
    assert node.last_word.error is None


async def test_another_process_that_had_its_name_does_not_leave_the_directory_astray(
    node: Any, rows: Row, nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    await begin(nursery, main._register, node, Web())
    await trio.sleep(main.LOOK_AT_OWN_ROW_S * 2.5)
    assert len(rows.registered) == 1, "it is where the directory says"
    assert rows.shown is not None
    rows.shown = rows.shown.model_copy(update={"link_port": 8})
    rows.fails = [NoQuorum("none")]
    await trio.sleep(main.LOOK_AT_OWN_ROW_S * 1.2)
    assert len(rows.registered) == 1
    await trio.sleep(main.LOOK_AT_OWN_ROW_S)
    assert [row.address for row in rows.registered] == [HERE, HERE]
    assert f"{HOME} is not listed where it is: none" in caplog.text


async def test_whoever_has_no_row_yet_is_left_alone(
    node: Any, rows: Row, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    nursery.start_soon(main._stay_where_it_is, node, Web.urls[0])
    await trio.sleep(main.LOOK_AT_OWN_ROW_S * 2.5)
    rows.shown = main._own_row(node, "http://127.0.2.1:2", node.keys.ring.published)
    await trio.sleep(main.LOOK_AT_OWN_ROW_S * 2.5)
    assert rows.registered == [], "it has not registered"
    node.registered = True
    await trio.sleep(main.LOOK_AT_OWN_ROW_S * 1.5)
    assert [row.address for row in rows.registered] == [HERE]


async def test_whose_keys_are_refused_at_the_start_has_said_its_last_word(
    node: Any, rows: Row, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    refusal = Refused(Reason.KEY_CONFLICT, "no")
    rows.fails = [refusal]
    await main._register(node, cast(Any, Web()))
    assert node.last_word.error is refusal
    assert not node.registered


async def test_whose_next_keys_are_refused_goes_on_with_those_it_has(
    node: Any, rows: Row, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await begin(nursery, main._register, node, Web())
    await trio.sleep(0.5)
    rows.fails = [Refused(Reason.KEY_CONFLICT, "no")]
    with pytest.raises(KeysRefused):
        await node.keys.rotate(3600.0)
    assert node.last_word.error is None


# --- the process ------------------------------------------------------------------------------------


async def test_a_member_begins_is_built_runs_and_closes_its_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    config, done = full_home_config(tmp_path), list[Any]()
    monkeypatch.setattr(main, "believe_authorities", lambda files: done.append(("believes", files)))
    monkeypatch.setattr(main, "begin_member", done.append)
    monkeypatch.setattr(Spans, "close", lambda _: done.append("closed"))
    system = object()

    async def run_application(name: str, tree: Any, last_word: Any, started: Any, telemetry: Any) -> None:
        done.extend((name, tree.id, type(last_word), type(telemetry)))
        started(system)
        await trio.sleep_forever()

    monkeypatch.setattr(main, "run_application", run_application)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as inner:
            node: Any = await begin(inner, main.run, config)
            assert node.system is system
            scope.cancel()
    assert done == [("believes", config.tls), config, HOME, "homeserver", LastWord, Telemetry, "closed"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, 0),
        (RefusedByInstance(REMOVED, "removed"), exit_status.REMOVED),
        (RefusedByInstance("wrong_instance", "refused"), exit_status.REFUSED),
        (LogDiffers("another log"), exit_status.REFUSED),
        (Refused(Reason.KEY_CONFLICT, "no"), exit_status.REFUSED),
    ],
    ids=str,
)
def test_the_exit_status_says_why_it_stops(
    error: Exception | None, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, ran = full_home_config(tmp_path), list[Any]()

    def run_until_signalled(name: str, run: Any) -> None:
        assert name == HOME
        run()
        if error is not None:
            raise ExceptionGroup("it stops", [error])

    monkeypatch.setattr(main, "run_until_signalled", run_until_signalled)
    monkeypatch.setattr(main, "run", ran.append)
    assert main.main(config) == status
    assert ran == [config]
