"""A whole cluster of real server processes on loopback, as one `async with`.

    spec = ClusterSpec({"alpha": 3, "beta": 3})
    async with LocalCluster.start(spec) as cluster:
        url = cluster.server("alpha.h1").rest_url
        await cluster.kill("alpha.h2")
        await cluster.restart("alpha.h2")

`topology` describes a cluster, `blueprint` lays it out on disk, `processes` runs the servers. This file brings them up,
watches over them, and does to them what a scenario asks for.
"""

import re
import shlex
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import Self

import httpx
import trio

from batonpass.actors.http.client import believe, trusted_authorities
from batonpass.homeserver.server.exit_status import REMOVED
from batonpass.scenarios.cluster.blueprint import Blueprint, ProcessRole, ServerPlan, hold_directory, lay_out
from batonpass.scenarios.cluster.certificates import authority_in
from batonpass.scenarios.cluster.events import (
    Added,
    ClusterEvent,
    Kept,
    Left,
    NotInPeace,
    Progress,
    Ready,
    Removed,
    ServerCrashed,
    Started,
    Stopping,
)
from batonpass.scenarios.cluster.fork_server import ForkServer
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.scenarios.cluster.processes import BATON, ChildCommand, ChildExit, ChildProcesses, RunningChild, as_fork
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.scenarios.players.rest_client import CALL_PATIENCE_S, RestClient

__all__ = ["ClusterFailed", "ClusterSpec", "Launcher", "LocalCluster", "ProcessRole", "ServerInfo", "baton_launcher"]

# Simulation servers lean on homeservers, so they leave first and can still say goodbye to them.
_WAVES = {ProcessRole.RELAY: 0, ProcessRole.HOMESERVER: 0, ProcessRole.SIMSERVER: 1}
# The log of a server that dies in C code then still says where.
_ENVIRONMENT = {"PYTHONFAULTHANDLER": "1"}
HEALTH_POLL_S = 0.1
HEALTH_TIMEOUT_S = 2.0
# Without a server that became ready. A machine that does much else takes its time, and is no reason to fail.
PATIENCE_S = 180.0
MAX_REASON_CHARS = 200
_NO_ANSWER = "its REST address does not answer"


class ClusterFailed(EnvironmentFailed):
    """The cluster, or a server of it, did not come up; the sentence names the server, the reason and its log."""


@dataclass(frozen=True)
class ServerInfo:
    """One server as it is now. `pid` is None while it does not run."""

    name: str
    role: ProcessRole
    instance: str
    rest_url: str
    link_address: tuple[str, int] | None
    pid: int | None
    log_file: Path
    directory: Path


Launcher = Callable[[ServerPlan], Sequence[str]]


def baton_launcher(plan: ServerPlan) -> Sequence[str]:
    """The command line that runs a server of batonpass as a child of this process."""
    return (*BATON, plan.role.value, "--config", str(plan.config_file), "--parent-pipe")


def _silent(event: ClusterEvent) -> None:
    pass


class LocalCluster:
    """A running cluster. Made by `LocalCluster.start`."""

    def __init__(
        self,
        blueprint: Blueprint,
        processes: ChildProcesses,
        launcher: Launcher,
        environment: Mapping[str, str],
        progress: Progress,
        crashes: list[ChildExit],
        ports: PortAllocator,
        forks: ForkServer | None,
    ) -> None:
        self.directory = blueprint.directory
        self.spec = blueprint.spec
        self.crashes = crashes
        """Servers that ended without being asked to."""
        self._blueprint = blueprint
        self._processes = processes
        self._launcher = launcher
        self._environment = environment
        self._ports = ports
        self._forks = forks
        self._progress = progress
        self._plans = {plan.name: plan for plan in blueprint.servers}
        self._children: dict[str, RunningChild] = {}

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        spec: ClusterSpec,
        *,
        progress: Progress = _silent,
        timeout_s: float = PATIENCE_S,
        grace_s: float = 10.0,
        impatient: trio.Event | None = None,
        launcher: Launcher = baton_launcher,
        environment: Mapping[str, str] | None = None,
        rng: Random | None = None,
    ) -> AsyncIterator[Self]:
        """Bring a cluster up, hand it out when every server is ready, and take it down at the end.

        Without `spec.directory` it lives in a fresh temporary directory, which is removed unless something failed.

        Args:
            spec: what to start.
            progress: told what happens, as it happens.
            timeout_s: how long to wait while no server becomes ready.
            grace_s: for a server to end in peace before it is killed.
            impatient: when it is set, servers are no longer given that time.
            launcher: the command line for a server, given its plan.
            environment: variables for every server, on top of ours.
            rng: the dice for choosing ports.

        Raises:
            ClusterFailed: a server ended, or was not ready in time; the sentence says which and why.
            BadSpec, DirectoryUnusable, PortTaken, SpawnError: before that; each says what to do.
        """
        fate = _Fate()
        variables = {**_ENVIRONMENT, **(environment or {})}
        with (
            _directory_of(spec, fate, progress) as directory,
            hold_directory(directory),
            PortAllocator(rng or SystemRandom()) as ports,
        ):
            blueprint = lay_out(spec, directory, ports)
            if spec.tls:
                believe(authority_in(directory))
            fate.ran = True

            def on_crash(end: ChildExit) -> None:
                if _was_let_go(end, cluster._plans[end.name]):
                    progress(Left(end.name))
                    return
                fate.crashes.append(end)
                plan = cluster._plans[end.name]
                again = shlex.join(("baton", plan.role.value, "--config", str(plan.config_file.absolute())))
                if spec.world is not None:
                    # It is looked for where the command is given.
                    again = f"env -C {shlex.quote(str(Path.cwd()))} {again}"
                progress(ServerCrashed(end, again))

            async with (
                _forks_for(blueprint, launcher, variables) as forks,
                ChildProcesses.open(on_crash=on_crash, grace_s=grace_s, impatient=impatient) as processes,
            ):
                cluster = cls(blueprint, processes, launcher, variables, progress, fate.crashes, ports, forks)
                try:
                    await cluster._bring_up(timeout_s)
                    yield cluster
                except BaseException as error:
                    fate.failed = not _only_ends(error)
                    raise
                finally:
                    unclean = await cluster._take_down()
                    # Who is given no time to end in peace is killed; nothing is wrong with it.
                    fate.unclean = unclean if grace_s else []

    # ---- what is there ----

    @property
    def servers(self) -> list[ServerInfo]:
        """All servers as they are now, in the order in which they were started."""
        return [self.server(name) for name in self._plans]

    def server(self, name: str) -> ServerInfo:
        """One server as it is now.

        Raises:
            KeyError: there is none of that name.
        """
        plan, child = self._plans[name], self._children.get(name)
        return ServerInfo(
            name=name,
            role=plan.role,
            instance=plan.instance,
            rest_url=plan.rest_url,
            link_address=plan.link_address,
            pid=child.pid if child is not None and child.running else None,
            log_file=plan.log_file,
            directory=plan.directory,
        )

    def client_token(self, instance: str) -> str:
        """The bearer token for clients of `instance`."""
        return self.client_token_file(instance).read_text(encoding="utf-8").strip()

    def client_token_file(self, instance: str) -> Path:
        """The file that holds the bearer token for clients of `instance`."""
        return self._blueprint.client_token_file(instance)

    def homeserver_urls(self) -> dict[str, list[str]]:
        """Where the REST of each instance is, of every member."""
        urls: dict[str, list[str]] = {}
        for server in self.servers:
            if server.role is ProcessRole.HOMESERVER:
                urls.setdefault(server.instance, []).append(server.rest_url)
        return urls

    def simserver_urls(self) -> dict[str, str]:
        """Where the REST of each simulation server is."""
        return {server.name: server.rest_url for server in self.servers if server.role is ProcessRole.SIMSERVER}

    def rest_client(self, patience_s: float = CALL_PATIENCE_S) -> RestClient:
        """A client of every instance, let in, as patient as that; the caller closes it."""
        urls = self.homeserver_urls()
        return RestClient(urls, {instance: self.client_token(instance) for instance in urls}, patience_s)

    def operator_token_file(self, instance: str) -> Path:
        """The file that holds the bearer token for operators of `instance`, as its homeservers take it."""
        return self._blueprint.operator_token_file(instance)

    def simserver_operator_token_file(self, instance: str) -> Path:
        """The file that holds the bearer token for operators of `instance`, as its simulation servers take it."""
        return self._blueprint.simserver_operator_token_file(instance)

    # ---- servers that come and go ----

    async def add_simserver(self, instance: str, *, timeout_s: float = PATIENCE_S) -> ServerInfo:
        """Start one more simulation server of an instance, and wait until it is ready; a later start has it too.

        Raises:
            BadSpec: there is no such instance, or it has as many as there may be.
            ClusterFailed: it ended, or was not ready in time; then it is no part of the cluster.
            DirectoryUnusable, PortTaken, SpawnError: as `start`.
        """
        before = self.spec
        spec, name = before.with_simserver(instance)
        self._lay_out_anew(spec)
        try:
            self._launch(self._plans[name])
            await self.wait_ready(name, timeout_s=timeout_s)
        except BaseException:
            with trio.CancelScope(shield=True):
                if name in self._children:
                    await self.stop(name)
            self._lay_out_anew(before)
            raise
        self._progress(Added(name))
        return self.server(name)

    async def remove_simserver(self, name: str) -> ChildExit:
        """Stop a simulation server for good; its files stay. A caller that wants what it held moves that away first.

        Raises:
            BadSpec: there is none of that name.
        """
        spec = self.spec.without_simserver(name)
        end = await self.stop(name)
        self._lay_out_anew(spec)
        del self._children[name]
        self._progress(Removed(name))
        return end

    def has_removed(self, name: str) -> bool:
        """Whether it was a simulation server of this cluster, now or at an earlier start: its files have stayed."""
        instance = name.partition(".")[0]
        if instance not in self.spec.instances or name in self.spec.simserver_names(instance):
            return False
        is_name = re.fullmatch(rf"{re.escape(instance)}\.s[0-9]+", name) is not None
        return is_name and (self.directory / name / "config.toml").is_file()

    def _lay_out_anew(self, spec: ClusterSpec) -> None:
        self._blueprint = lay_out(spec, self.directory, self._ports)
        self.spec = self._blueprint.spec
        self._plans = {plan.name: plan for plan in self._blueprint.servers}

    # ---- what a scenario does to it ----

    async def kill(self, name: str) -> ChildExit:
        """End a server with SIGKILL, as a power cut would; returns when the process is gone."""
        child = self._children[name]
        child.kill()
        return await child.wait()

    async def stop(self, name: str) -> ChildExit:
        """Ask a server to end, kill it if it does not in time; returns when the process is gone."""
        child = self._children[name]
        await self._processes.stop(child)
        return await child.wait()

    async def restart(self, name: str, *, timeout_s: float = PATIENCE_S, same_code: bool = False) -> ServerInfo:
        """Start a server again with the same configuration and state (after stopping it, if it runs); wait for it.

        It runs the code that is installed by now, as after an upgrade. With `same_code` it may run what the others have
        loaded (a fork), which spares a second of processor time.

        Raises:
            ClusterFailed: it ended, or was not ready in time.
        """
        await self.stop(name)
        self._launch(self._plans[name], self._forks if same_code else None)
        await self.wait_ready(name, timeout_s=timeout_s)
        return self.server(name)

    async def pause(self, name: str) -> None:
        """Freeze a server (SIGSTOP); returns when it is paused."""
        await self._children[name].pause()

    def resume(self, name: str) -> None:
        """Let a frozen server run on (SIGCONT)."""
        self._children[name].resume()

    async def wait_ready(self, *names: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until these servers (all of them, if none is named) say that they are ready.

        `timeout_s` begins anew with every server that becomes ready.

        Raises:
            ClusterFailed: one ended, or none became ready in time; the sentence repeats the reasons they gave.
        """
        with trio.move_on_after(timeout_s) as patience:
            waiting = _WaitingUntilReady(
                dict.fromkeys(names or self._plans, _NO_ANSWER), self._progress, patience, timeout_s
            )
            # Only loopback, hence no proxies from the environment.
            client = httpx.AsyncClient(trust_env=False, verify=trusted_authorities(), timeout=HEALTH_TIMEOUT_S)
            async with client, trio.open_nursery() as nursery:
                for name in tuple(waiting.reasons):
                    nursery.start_soon(self._until_ready, name, client, waiting, nursery.cancel_scope)
        if waiting.failure is not None:
            raise ClusterFailed(waiting.failure)
        if waiting.reasons:
            missing = "; ".join(f"{name}: {reason}" for name, reason in waiting.reasons.items())
            text = f"not ready, and no other server became ready for {timeout_s:g} s: {missing}"
            raise ClusterFailed(f"{text}; logs are in {self.directory}")

    # ---- inside ----

    async def _bring_up(self, timeout_s: float) -> None:
        self._progress(Started(len(self._plans), self.directory))
        for plan in self._plans.values():
            self._launch(plan, self._forks)
        await self.wait_ready(timeout_s=timeout_s)

    def _launch(self, plan: ServerPlan, forks: ForkServer | None = None) -> None:
        argv = self._launcher(plan)
        command = ChildCommand(plan.name, argv, plan.log_file, wave=_WAVES[plan.role], environment=self._environment)
        self._children[plan.name] = self._processes.start(command, forks if as_fork(argv) else None)

    async def _take_down(self) -> list[ChildExit]:
        with trio.CancelScope(shield=True):
            self._progress(Stopping(sum(child.running for child in self._children.values())))
            unclean = await self._processes.stop_all()
        for end in unclean:
            self._progress(NotInPeace(end))
        return unclean

    async def _until_ready(
        self, name: str, client: httpx.AsyncClient, waiting: "_WaitingUntilReady", all_waits: trio.CancelScope
    ) -> None:
        child, url = self._children[name], self._plans[name].rest_url
        while True:
            if child.exit is not None and _was_let_go(child.exit, self._plans[name]):
                waiting.is_left_out(name)
                return
            if child.exit is not None:
                waiting.failure = f"not all servers came up: {child.exit.sentence}"
                all_waits.cancel()
                return
            health = await _ask_health(client, url)
            if health.name not in (None, name):
                waiting.failure = f"{url} should be {name}, but answers as {health.name}; is another cluster running?"
                all_waits.cancel()
                return
            if health.ready:
                waiting.is_ready(name)
                return
            waiting.reasons[name] = health.reason
            await trio.sleep(HEALTH_POLL_S)


def _was_let_go(end: ChildExit, plan: ServerPlan) -> bool:
    """Whether a homeserver has ended because it is no member of its instance any more, since an operator said so."""
    return plan.role is ProcessRole.HOMESERVER and end.returncode == REMOVED


@dataclass
class _Fate:
    """How a cluster fared, which decides whether its temporary directory is worth keeping."""

    ran: bool = False
    failed: bool = False
    crashes: list[ChildExit] = field(default_factory=list)
    unclean: list[ChildExit] = field(default_factory=list)


@asynccontextmanager
async def _forks_for(
    blueprint: Blueprint, launcher: Launcher, environment: Mapping[str, str]
) -> AsyncIterator[ForkServer | None]:
    """Where to have servers forked, if there are several of them and they are batonpass's."""
    if sum(as_fork(launcher(plan)) is not None for plan in blueprint.servers) < 2:
        yield None
        return
    async with ForkServer.open(environment) as forks:
        yield forks


@contextmanager
def _directory_of(spec: ClusterSpec, fate: _Fate, progress: Progress) -> Iterator[Path]:
    """The directory asked for, or a temporary one, which is removed at the end if nothing failed."""
    if spec.directory is not None:
        try:
            yield spec.directory
        finally:
            if fate.ran:
                progress(Kept(spec.directory))
        return
    temporary = Path(tempfile.mkdtemp(prefix="baton-"))
    try:
        yield temporary
    finally:
        if fate.failed or fate.crashes or fate.unclean:
            progress(Kept(temporary))
        else:
            shutil.rmtree(temporary)


def _only_ends(error: BaseException) -> bool:
    """Whether `error` only means that the cluster was asked to end, and nothing is wrong with it."""
    if isinstance(error, BaseExceptionGroup):
        return all(_only_ends(inner) for inner in error.exceptions)
    return isinstance(error, trio.Cancelled | KeyboardInterrupt | GeneratorExit)


class _WaitingUntilReady:
    """Who is waited for, and the last reason each gave; shared by the tasks of one `wait_ready`.

    `patience` ends `timeout_s` after the last of them that became ready.
    """

    def __init__(
        self, reasons: dict[str, str], progress: Progress, patience: trio.CancelScope, timeout_s: float
    ) -> None:
        self.reasons = reasons
        self._patience = patience
        self._timeout_s = timeout_s
        self.failure: str | None = None
        self._servers = len(reasons)
        self._progress = progress
        self._since_s = trio.current_time()

    def is_left_out(self, name: str) -> None:
        del self.reasons[name]
        self._servers -= 1

    def is_ready(self, name: str) -> None:
        del self.reasons[name]
        self._patience.deadline = trio.current_time() + self._timeout_s
        ready = self._servers - len(self.reasons)
        self._progress(Ready(name, ready, self._servers, trio.current_time() - self._since_s))


@dataclass(frozen=True)
class _Health:
    ready: bool
    name: str | None
    reason: str


async def _ask_health(client: httpx.AsyncClient, rest_url: str) -> _Health:
    try:
        response = await client.get(f"{rest_url}/healthz")
    except httpx.TransportError:
        return _Health(ready=False, name=None, reason=_NO_ANSWER)
    return _health_from_untrusted(response)


def _health_from_untrusted(response: httpx.Response) -> _Health:
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    fields = body if isinstance(body, dict) else {}
    name = fields.get("name")
    # Servers answer errors as {code, message, value}.
    reason = fields.get("message") or f"/healthz answers with status {response.status_code}"
    return _Health(
        ready=response.status_code == httpx.codes.OK and isinstance(name, str),
        name=name if isinstance(name, str) else None,
        reason=str(reason)[:MAX_REASON_CHARS],
    )
