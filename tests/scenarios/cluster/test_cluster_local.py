"""A cluster comes up, is watched, is disturbed on purpose, and goes down; the servers are fakes, the processes real."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import trio
import trio.testing

from batonpass.actors.http.client import trusted_authorities
from batonpass.scenarios.cluster.cluster import ClusterFailed, ClusterSpec, LocalCluster
from batonpass.scenarios.cluster.events import (
    ClusterEvent,
    Kept,
    Left,
    NotInPeace,
    Ready,
    ServerCrashed,
    Started,
    Stopping,
)
from tests.scenarios.fakes import DEADLINE_S, Witness, fake_launcher, wait_until

SPEC = ClusterSpec({"alpha": 2}, simservers=1, relays=1)


@pytest.fixture(autouse=True)
def temporary_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where clusters without a directory live during a test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def status_of(cluster: LocalCluster, name: str) -> int:
    async with httpx.AsyncClient(trust_env=False, verify=trusted_authorities(), timeout=DEADLINE_S) as client:
        return (await client.get(f"{cluster.server(name).rest_url}/healthz")).status_code


async def start_and_leave(
    spec: ClusterSpec = SPEC,
    *,
    progress: Callable[[ClusterEvent], None] = lambda event: None,
    timeout_s: float = DEADLINE_S,
    grace_s: float = DEADLINE_S,
    **behaviours: str,
) -> None:
    """Start a cluster whose servers behave as given (`alpha_h1="crash"`), and leave it."""
    launcher = fake_launcher({name.replace("_", "."): behaviour for name, behaviour in behaviours.items()})
    async with LocalCluster.start(spec, launcher=launcher, progress=progress, timeout_s=timeout_s, grace_s=grace_s):
        pass


async def test_a_cluster_is_handed_out_when_every_server_is_ready() -> None:
    events: list[ClusterEvent] = []
    async with LocalCluster.start(SPEC, launcher=fake_launcher(), progress=events.append) as cluster:
        assert [server.name for server in cluster.servers] == ["relay.r1", "alpha.h1", "alpha.h2", "alpha.s1"]
        for server in cluster.servers:
            assert await status_of(cluster, server.name) == 200
        assert len(cluster.client_token("alpha")) >= 32

    assert [type(event) for event in events] == [Started, Ready, Ready, Ready, Ready, Stopping]
    ready = [event for event in events if isinstance(event, Ready)]
    assert {event.name for event in ready} == {"relay.r1", "alpha.h1", "alpha.h2", "alpha.s1"}
    assert [(event.ready, event.servers) for event in ready] == [(1, 4), (2, 4), (3, 4), (4, 4)]


async def test_nothing_is_left_of_a_temporary_cluster(temporary_directories: Path) -> None:
    async with LocalCluster.start(SPEC, launcher=fake_launcher()) as cluster:
        witnesses = [Witness(server.pid) for server in cluster.servers if server.pid is not None]
        assert cluster.directory.parent == temporary_directories

    assert len(witnesses) == 4
    for witness in witnesses:
        assert witness.saw_it_end(timeout_s=0.0)
        witness.close()
    assert left_in(temporary_directories) == []


async def test_a_given_directory_stays_and_is_used_again(tmp_path: Path) -> None:
    spec = ClusterSpec({"alpha": 1}, simservers=0, directory=tmp_path / "mine")
    urls = []
    for _ in range(2):
        async with LocalCluster.start(spec, launcher=fake_launcher()) as cluster:
            (cluster.server("alpha.h1").directory / "state" / "journal").write_text("kept")
            urls.append((cluster.server("alpha.h1").rest_url, cluster.client_token("alpha")))

    assert urls[0] == urls[1]
    assert (tmp_path / "mine" / "alpha.h1" / "state" / "journal").read_text() == "kept"


# ---- servers that do not come up ----


async def test_a_server_that_ends_during_the_start_fails_it_at_once(temporary_directories: Path) -> None:
    events: list[ClusterEvent] = []
    with pytest.raises(ClusterFailed) as failure:
        await start_and_leave(progress=events.append, alpha_h2="crash")

    assert "alpha.h2 (pid " in str(failure.value)
    assert 'ended with exit status 7, saying "the dog ate my journal"' in str(failure.value)
    (crash,) = [event for event in events if isinstance(event, ServerCrashed)]
    assert crash.exit.log_tail[-1] == "the dog ate my journal"
    assert [events[-1]] == [Kept(directory) for directory in left_in(temporary_directories)]


async def test_a_homeserver_that_is_no_member_any_more_is_not_waited_for(temporary_directories: Path) -> None:
    events: list[ClusterEvent] = []
    launcher = fake_launcher({"alpha.h2": "let_go"})
    async with LocalCluster.start(SPEC, launcher=launcher, progress=events.append) as cluster:
        assert cluster.crashes == []
        assert cluster.server("alpha.h2").pid is None
    assert [event.name for event in events if isinstance(event, Left)] == ["alpha.h2"]
    assert sorted(event.name for event in events if isinstance(event, Ready)) == ["alpha.h1", "alpha.s1", "relay.r1"]
    assert left_in(temporary_directories) == [], "nothing failed"
    with pytest.raises(ClusterFailed):
        await start_and_leave(alpha_s1="let_go")


async def test_a_server_that_is_never_ready_is_named_with_its_reason(
    temporary_directories: Path, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 1.0

    async def let_the_deadline_pass_when_only_one_is_missing() -> None:
        await wait_until(lambda: {"relay.r1", "alpha.h2", "alpha.s1"} <= ready)
        # It is asked a second time only when its first answer has been understood.
        log = left_in(temporary_directories)[0] / "alpha.h1" / "server.log"
        await wait_until(lambda: log.read_text().count("answered") >= 2)
        mock_clock.jump(1_000.0)

    ready: set[str] = set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(let_the_deadline_pass_when_only_one_is_missing)
        with pytest.raises(ClusterFailed, match=r"became ready for 1000 s: alpha\.h1: no leader yet; logs are in /"):
            await start_and_leave(
                progress=lambda event: ready.add(event.name) if isinstance(event, Ready) else None,
                timeout_s=1_000.0,
                alpha_h1="unready",
            )


async def test_the_time_to_come_up_begins_anew_with_every_server_that_is_ready(
    mock_clock: trio.testing.MockClock,
) -> None:
    """A busy machine starts one server after the other, and all of them in the end."""
    mock_clock.rate = 1.0
    seen: list[str] = []

    def slowly(event: ClusterEvent) -> None:
        if isinstance(event, Ready):
            seen.append(event.name)
            mock_clock.jump(900.0)

    await start_and_leave(progress=slowly, timeout_s=1_000.0)
    assert len(seen) == len({*seen}) > 2


async def test_a_stranger_on_the_port_of_a_server_is_not_taken_for_it() -> None:
    with pytest.raises(ClusterFailed, match=r"should be alpha\.s1, but answers as somebody\.else"):
        await start_and_leave(alpha_s1="impostor")


async def test_no_process_is_left_of_a_failed_start(temporary_directories: Path) -> None:
    with pytest.raises(ClusterFailed):
        await start_and_leave(alpha_h2="crash")

    (directory,) = left_in(temporary_directories)
    assert all(str(directory) not in command_line for command_line in command_lines())


def command_lines() -> list[str]:
    """Of all processes of this machine."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return lines


# ---- keeping the logs ----


async def test_the_directory_is_kept_when_the_body_fails(temporary_directories: Path) -> None:
    async def fail_inside() -> None:
        async with LocalCluster.start(SPEC, launcher=fake_launcher()):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_inside()

    assert len(left_in(temporary_directories)) == 1


@pytest.mark.parametrize(
    ("behaviour", "grace_s", "how"), [("sulky", DEADLINE_S, "exit status 4"), ("stubborn", 0.05, "SIGKILL")]
)
async def test_the_directory_is_kept_when_a_server_does_not_stop_in_peace(
    temporary_directories: Path, behaviour: str, grace_s: float, how: str
) -> None:
    events: list[ClusterEvent] = []
    alone = ClusterSpec({"alpha": 1}, simservers=0)

    await start_and_leave(alone, progress=events.append, grace_s=grace_s, alpha_h1=behaviour)

    (end,) = [event for event in events if isinstance(event, NotInPeace)]
    assert (end.exit.name, end.exit.how) == ("alpha.h1", how)
    assert len(left_in(temporary_directories)) == 1


async def test_a_cancelled_cluster_has_not_failed(temporary_directories: Path) -> None:
    async def be_cancelled(life: trio.CancelScope) -> None:
        async with LocalCluster.start(SPEC, launcher=fake_launcher()), trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            life.cancel()

    with trio.CancelScope() as life:
        await be_cancelled(life)

    assert left_in(temporary_directories) == []


async def test_a_start_can_be_cancelled(temporary_directories: Path) -> None:
    def cancel_when_started(event: ClusterEvent) -> None:
        if isinstance(event, Ready):
            life.cancel()

    with trio.CancelScope() as life:
        await start_and_leave(progress=cancel_when_started, alpha_h1="unready")

    assert life.cancelled_caught
    assert left_in(temporary_directories) == []


# ---- disturbances ----


async def test_a_killed_server_is_gone_and_comes_back_with_the_same_address(temporary_directories: Path) -> None:
    async with LocalCluster.start(SPEC, launcher=fake_launcher()) as cluster:
        before = cluster.server("alpha.h1")
        end = await cluster.kill("alpha.h1")
        assert (end.pid, end.how) == (before.pid, "SIGKILL")
        assert cluster.server("alpha.h1").pid is None
        assert await status_of(cluster, "alpha.h2") == 200

        after = await cluster.restart("alpha.h1")
        assert (after.rest_url, after.link_address) == (before.rest_url, before.link_address)
        assert after.pid != before.pid
        assert await status_of(cluster, "alpha.h1") == 200
        assert cluster.crashes == []

    assert left_in(temporary_directories) == []


async def test_a_running_server_is_stopped_before_it_is_started_again() -> None:
    async with LocalCluster.start(SPEC, launcher=fake_launcher()) as cluster:
        before = cluster.server("alpha.s1").pid
        await cluster.restart("alpha.s1")

        assert cluster.server("alpha.s1").pid not in (before, None)
        assert cluster.crashes == []


async def test_a_paused_server_answers_nothing_until_it_is_resumed() -> None:
    async with LocalCluster.start(SPEC, launcher=fake_launcher()) as cluster:
        await cluster.pause("alpha.h1")
        with pytest.raises(ClusterFailed, match=r"alpha\.h1: its REST address does not answer"):
            await cluster.wait_ready("alpha.h1", timeout_s=0.1)
        cluster.resume("alpha.h1")
        await cluster.wait_ready("alpha.h1")


async def test_a_crash_is_reported_and_the_rest_goes_on(temporary_directories: Path) -> None:
    events: list[ClusterEvent] = []
    async with LocalCluster.start(SPEC, launcher=fake_launcher(), progress=events.append) as cluster:
        pid = cluster.server("alpha.h2").pid
        assert pid is not None
        await trio.run_process(["kill", "-SEGV", str(pid)])
        await wait_until(lambda: bool(cluster.crashes))

        assert await status_of(cluster, "alpha.h1") == 200

    (crash,) = [event for event in events if isinstance(event, ServerCrashed)]
    assert (crash.exit.name, crash.exit.how) == ("alpha.h2", "SIGSEGV")
    assert "Fatal Python error: Segmentation fault" in crash.sentence
    assert isinstance(events[-1], Kept)
    assert len(left_in(temporary_directories)) == 1
