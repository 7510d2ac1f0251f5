"""Forked servers are processes like any other: their own place, output, end, and nobody left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from batonpass.scenarios.cluster.fork_server import ForkServer, ForkServerFailed
from batonpass.scenarios.cluster.processes import BATON, ChildCommand, ChildExit, ChildProcesses, RunningChild, as_fork
from tests.scenarios.fakes import DEADLINE_S, Witness, wait_until

VARIABLES = {"BATON_URL": "http://127.0.0.1:9"}


@pytest.fixture(autouse=True)
def _of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a fork server of its own, whatever the tests share."""
    monkeypatch.setattr(ForkServer, "_shared", None)


class Place:
    """Where `baton` is forked."""

    def __init__(self, forks: ForkServer, children: ChildProcesses, crashes: list[ChildExit], logs: Path) -> None:
        self.forks = forks
        self.children = children
        self.crashes = crashes
        self._logs = logs

    def fork(self, name: str, *arguments: str) -> RunningChild:
        command = ChildCommand(name, (*BATON, *arguments), self._logs / f"{name}.log", environment=VARIABLES)
        return self.children.start(command, self.forks)

    async def ended(self, name: str, *arguments: str) -> tuple[int, Sequence[str]]:
        end = await self.fork(name, *arguments).wait()
        return end.returncode, end.log_tail

    def relay(self) -> RunningChild:
        """Something that goes on until it is told not to: a relay that waits for its configuration, a pipe."""
        config = self._logs / "relay.toml"
        if not config.exists():
            os.mkfifo(config)
        return self.fork("relay.r1", "relay", "--config", str(config), "--parent-pipe")


@asynccontextmanager
async def place(logs: Path) -> AsyncIterator[Place]:
    crashes: list[ChildExit] = []
    async with (
        ForkServer.open({}) as forks,
        ChildProcesses.open(on_crash=crashes.append, grace_s=DEADLINE_S) as children,
    ):
        yield Place(forks, children, crashes, logs)


def is_tied(pid: int) -> bool:
    """Whether the end of its standard input ends it, which it asks for first thing: then it has begun."""
    flags = next(line.split()[1] for line in Path(f"/proc/{pid}/fdinfo/0").read_text().splitlines() if "flags" in line)
    return bool(int(flags, 8) & 0o20000)  # O_ASYNC


def kernels_name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


async def test_a_fork_is_baton_with_a_place_of_its_own(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        status, (line,) = await here.ended("version", "--version")
        assert (status, line.split()[0]) == (0, "batonpass")
        status, (line,) = await here.ended("nonsense", "nonsense")
        assert status == 2
        assert "nonsense" in line
        status, (line,) = await here.ended("far", "tree", "ls", "jobs")
        assert status != 0
        assert VARIABLES["BATON_URL"] in line
        relay = here.relay()
        await wait_until(lambda: is_tied(relay.pid))
        assert os.getpgid(relay.pid) == relay.pid
        assert kernels_name_of(relay.pid) == "relay.r1"
        await relay.pause()
        relay.resume()
        relay.kill()
        assert (await relay.wait()).returncode == -signal.SIGKILL
        second = here.relay()
        await wait_until(lambda: is_tied(second.pid))
    assert second.exit is not None
    assert second.exit.returncode == -signal.SIGTERM
    assert [crash.name for crash in here.crashes] == ["version", "nonsense", "far"]


def test_what_every_fork_would_make_again_is_made_before() -> None:
    """In a process of its own: the documents of other tests are not those of this one."""
    code = (
        "from batonpass.scenarios.cluster import fork_server; import batonpass.actors.http.app as app\n"
        "fork_server.prepare(); print(*sorted(app._documents), sep=', ')"
    )
    made = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    assert made.stdout == "batonpass homeserver, batonpass simulation server\n"


def test_what_a_fork_can_be_instead_is_told_from_the_command() -> None:
    assert as_fork((*BATON, "relay", "--config", "x")) == (None, ("relay", "--config", "x"))
    assert as_fork(("nsenter", "--net=/run/a.net", *BATON, "relay")) == ("/run/a.net", ("relay",))
    for other in (
        ("nsenter", "--net=/run/a.net", "ip"),
        ("nsenter", *BATON),
        ("python", "-m", "batonpass.scenarios.cli.main"),
        (),
    ):
        assert as_fork(other) is None


async def test_a_fork_that_cannot_enter_its_network_says_so_and_ends(tmp_path: Path) -> None:
    (tmp_path / "no.net").touch()
    async with place(tmp_path) as here:
        argv = ("nsenter", f"--net={tmp_path}/no.net", *BATON, "--version")
        end = await here.children.start(ChildCommand("lost", argv, tmp_path / "lost.log"), here.forks).wait()
    assert end.returncode == 1
    assert end.log_tail[-1].startswith(f"cannot enter the network {tmp_path}/no.net: ")


async def test_forks_die_with_the_process_that_they_come_from(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        relay = here.relay()
        await wait_until(lambda: is_tied(relay.pid))
        witness = Witness(relay.pid)
        here.forks._process.kill()
        assert witness.saw_it_end()
        witness.close()
        assert (await relay.wait()).returncode == -signal.SIGKILL
        with pytest.raises(ForkServerFailed):
            here.relay()


async def test_who_does_not_end_in_time_is_ended_with_the_process_that_it_comes_from(tmp_path: Path) -> None:
    forks = ForkServer.start({})
    await forks.ready()
    async with ChildProcesses.open(on_crash=lambda _: None, grace_s=DEADLINE_S) as children:
        os.mkfifo(tmp_path / "relay.toml")
        argv = (*BATON, "relay", "--config", f"{tmp_path}/relay.toml", "--parent-pipe")
        relay = children.start(ChildCommand("relay.r1", argv, tmp_path / "log"), forks)
        await wait_until(lambda: is_tied(relay.pid))
        await trio.to_thread.run_sync(forks.let_go, 0.1)
        assert not forks.running
        assert (await relay.wait()).returncode == -signal.SIGKILL


async def test_what_cannot_be_imported_is_said(tmp_path: Path) -> None:
    (tmp_path / "trio.py").write_text("raise ImportError('no trio here')")
    with pytest.raises(ForkServerFailed, match="ImportError: no trio here"):
        async with ForkServer.open({"PYTHONPATH": str(tmp_path)}):
            pass


async def test_one_that_is_shared_forks_for_all_and_is_replaced_when_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    variables = {"PYTHONPATH": str(tmp_path / "more")}
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "elsewhere.py").write_text("import os\nraise ImportError(f'imported in {os.getcwd()}')")
    with ForkServer.shared():
        async with ForkServer.open({}) as first, ForkServer.open({}) as second:
            assert first._process is second._process
            async with ChildProcesses.open(on_crash=lambda _: None, grace_s=DEADLINE_S) as children:
                argv = (*BATON, "up", "--world", "elsewhere:World")
                command = ChildCommand("up", argv, tmp_path / "up.log", environment=variables)
                end = await children.start(command, second).wait()
        assert f"imported in {tmp_path}" in " ".join(end.log_tail)
        first._process.kill()
        first._process.wait()
        async with ForkServer.open({}) as third:
            assert third.running
    assert not third.running
