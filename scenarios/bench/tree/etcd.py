"""The subject of etcd: three members of Debian's etcd-server with default settings, durable, with TLS between them.

Its clients are h2load over plaintext gRPC on loopback, and for outages etcd's own HTTP gateway. Every write repeats one
key, because h2load has one body; that spares etcd the growth of its index.
"""

import base64
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import trio

from batonpass.scenarios.bench.process_facts import processor_seconds
from batonpass.scenarios.bench.subject import GRACE_S, MEMBER_COUNT, LeaderFault, LeaderMoved, MeasurementFailed, harmed
from batonpass.scenarios.bench.tree.etcd_certificates import PeerCertificates, make_peer_certificates
from batonpass.scenarios.bench.tree.grpc_bodies import grpc_message, put_request, range_request, transaction_of_puts
from batonpass.scenarios.bench.tree.h2load import H2Load, LoadRun
from batonpass.scenarios.bench.workloads import (
    COMMANDS_PER_GROUP,
    BenchWorkload,
    OperationKind,
    Place,
    Sample,
    key_path,
    value_text,
)
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.scenarios.cluster.processes import ChildCommand, ChildExit, ChildProcesses, RunningChild

__all__ = ["Etcd", "EtcdMissing", "require_programs"]

READY_TIMEOUT_S: Final = 60.0
OUTAGE_TIMEOUT_S: Final = 30.0
_PROBE_EVERY_S: Final = 0.02
_POLL_S: Final = 0.05
_CALIBRATION_REQUESTS: Final = 500
_PACKAGES: Final = {"etcd": "etcd-server", "h2load": "nghttp2-client"}
_SERVICE: Final = "/etcdserverpb.KV/"


class EtcdMissing(MeasurementFailed):
    """A program that measuring etcd needs is not installed."""


def require_programs() -> None:
    """Raises `EtcdMissing`, with the packages to install, unless everything is there."""
    missing = [package for program, package in _PACKAGES.items() if shutil.which(program) is None]
    if missing:
        raise EtcdMissing(
            f"to measure etcd in the same run, install it (Debian: apt install {' '.join(missing)}), "
            "or measure only batonpass with --without-etcd"
        )


@dataclass
class _Member:
    name: str
    child: RunningChild
    command: ChildCommand
    url: str


class Etcd:
    """See `scenarios.bench.subject.Subject`."""

    name: Final = "etcd"

    def __init__(self, members: list[_Member], processes: ChildProcesses, h2load: H2Load) -> None:
        self._members = members
        self._processes = processes
        self._h2load = h2load
        self._http: Final = httpx.AsyncClient(
            trust_env=False, timeout=OUTAGE_TIMEOUT_S, limits=httpx.Limits(max_connections=None)
        )
        self._rates: dict[BenchWorkload, float] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, directory: Path, ports: PortAllocator) -> AsyncIterator["Etcd"]:
        """Three members in new directories below `directory`; they are gone afterwards."""
        crashed: list[ChildExit] = []
        certificates = make_peer_certificates(directory)
        places = [(f"e{rank}", ports.choose(), ports.choose()) for rank in range(MEMBER_COUNT)]
        initial = ",".join(f"{name}=https://127.0.0.1:{peer}" for name, peer, _ in places)
        async with ChildProcesses.open(on_crash=crashed.append, grace_s=GRACE_S) as processes:
            members = []
            for name, peer, client in places:
                command = _command(directory, certificates, name, peer, client, initial)
                members.append(_Member(name, processes.start(command), command, f"http://127.0.0.1:{client}"))
            cluster = cls(members, processes, H2Load(processes, directory))
            try:
                async with cluster._http:
                    await cluster._leader()
                    yield cluster
            except MeasurementFailed as error:
                if crashed:
                    raise MeasurementFailed(crashed[0].sentence) from error
                raise

    @property
    def urls(self) -> tuple[str, ...]:
        """Where the members' clients go."""
        return tuple(member.url for member in self._members)

    async def measure(self, workload: BenchWorkload, seconds: float) -> Sample:
        """See `Subject.measure`."""
        leader = await self._leader()
        if workload not in self._rates:
            run = await self._run(leader, workload, _CALIBRATION_REQUESTS)
            self._rates[workload] = run.requests / run.seconds
        others = [member for member in self._members if member is not leader]
        before_s = [processor_seconds(member.child.pid) for member in (leader, *others)]
        run = await self._run(leader, workload, max(workload.outstanding * 2, round(self._rates[workload] * seconds)))
        after_s = [processor_seconds(member.child.pid) for member in (leader, *others)]
        self._rates[workload] = run.requests / run.seconds
        if await self._leader() is not leader:
            raise LeaderMoved(f"another member of etcd leads after {workload.name}")
        commands = run.requests * workload.commands_per_operation
        used_us = [(after - before) * 1e6 for before, after in zip(before_s, after_s, strict=True)]
        return Sample(
            commands=commands,
            seconds=run.seconds,
            p50_ms=run.p50_ms,
            p99_ms=run.p99_ms,
            leader_cpu_us=used_us[0] / commands,
            follower_cpu_us=sum(used_us[1:]) / len(others) / commands,
            client_cpu_us=run.processor_s * 1e6 / commands,
        )

    async def outage_ms(self, fault: LeaderFault) -> float:
        """See `Subject.outage_ms`. Every 20 ms a write begins at both others; the first accepted write counts."""
        leader = await self._leader()
        others = [member for member in self._members if member is not leader]
        began_s = time.monotonic()
        async with harmed(leader.child, fault, partial(self._restart, leader)):
            accepted_s = await self._first_accepted_s(others)
        await self._leader()
        return (accepted_s - began_s) * 1e3

    def _restart(self, member: _Member) -> None:
        member.child = self._processes.start(member.command)

    # --- load -----------------------------------------------------------------------------------------------------

    async def _run(self, leader: _Member, workload: BenchWorkload, requests: int) -> LoadRun:
        """One run of h2load, checked: writes by the revision of the store, reads by the size of the answers."""
        others = [member for member in self._members if member is not leader]
        member = leader if workload.place is Place.LEADER else others[0]
        method, body, answer_bytes = _request(workload.kind)
        before = await self._revision(member)
        run = await self._h2load.post(
            f"{member.url}{_SERVICE}{method}", grpc_message(body), outstanding=workload.outstanding, requests=requests
        )
        if method != "Range" and (await self._revision(member)) - before != requests:
            raise MeasurementFailed(f"of {requests} writes that etcd answered, some did not raise its revision")
        if run.data_bytes < requests * answer_bytes:
            raise MeasurementFailed(f"etcd answered some of {requests} requests ({workload.name}) with an error")
        return run

    # --- the gateway ----------------------------------------------------------------------------------------------

    async def _call(self, member: _Member, path: str, **body: Any) -> dict[str, Any]:
        try:
            answer = await self._http.post(member.url + path, json=body)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            problem = f"etcd {member.name} did not answer {path}: {type(error).__name__} {error}"
            raise MeasurementFailed(f"{problem.strip()}; its log is {member.command.log_file}") from error
        data: dict[str, Any] = answer.json()
        return data

    async def _revision(self, member: _Member) -> int:
        """The revision of the store after everything acknowledged so far: each write, or group, raises it by one."""
        data = await self._call(member, "/v3/kv/range", key=_base64(b"nothing"))
        return int(data["header"]["revision"])

    async def _leader(self) -> _Member:
        """The leader, once all three members know the same one."""
        with trio.move_on_after(READY_TIMEOUT_S):
            while True:
                leader = await self._agreed_leader()
                if leader is not None:
                    return leader
                await trio.sleep(_POLL_S)
        raise MeasurementFailed(
            f"the three members of etcd did not agree on a leader in {READY_TIMEOUT_S:g} s; "
            f"see {self._members[0].command.log_file.parent}"
        )

    async def _agreed_leader(self) -> _Member | None:
        try:
            statuses = [await self._call(member, "/v3/maintenance/status") for member in self._members]
        except MeasurementFailed:
            return None  # one of them is not up yet
        leaders = {status.get("leader", "0") for status in statuses}
        for member, status in zip(self._members, statuses, strict=True):
            if leaders == {status["header"]["member_id"]}:
                return member
        return None

    async def _first_accepted_s(self, members: list[_Member]) -> float:
        accepted_s: list[float] = []

        async def write(member: _Member, scope: trio.CancelScope) -> None:
            try:
                await self._call(member, "/v3/kv/put", key=_base64(_key(0)), value=_base64(_value(0)))
            except MeasurementFailed:
                return
            accepted_s.append(time.monotonic())
            scope.cancel()

        with trio.move_on_after(OUTAGE_TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                while True:
                    for member in members:
                        nursery.start_soon(write, member, nursery.cancel_scope)
                    await trio.sleep(_PROBE_EVERY_S)
        if not accepted_s:
            raise MeasurementFailed(f"etcd accepted no write in {OUTAGE_TIMEOUT_S:g} s after its leader failed")
        return min(accepted_s)


def _command(
    directory: Path, certificates: PeerCertificates, name: str, peer: int, client: int, initial: str
) -> ChildCommand:
    """Default settings, so every write is synced to disk before it is acknowledged."""
    argv = [
        "etcd",
        f"--name={name}",
        f"--data-dir={directory / name}",
        f"--listen-peer-urls=https://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=https://127.0.0.1:{peer}",
        f"--listen-client-urls=http://127.0.0.1:{client}",
        f"--advertise-client-urls=http://127.0.0.1:{client}",
        f"--initial-cluster={initial}",
        f"--peer-trusted-ca-file={certificates.authority}",
        f"--peer-cert-file={certificates.certificate}",
        f"--peer-key-file={certificates.key}",
        "--peer-client-cert-auth",
        "--logger=zap",
        "--log-outputs=stderr",
        "--log-level=warn",
    ]
    if (setpriv := shutil.which("setpriv")) is not None:
        # It must not outlive a benchmark that is killed.
        argv = [setpriv, "--pdeathsig", "KILL", *argv]
    return ChildCommand(f"etcd {name}", argv, directory / f"{name}.log")


def _request(kind: OperationKind) -> tuple[str, bytes, int]:
    """The method, the body, and how many bytes at least an answer has that is not an error."""
    match kind:
        case OperationKind.WRITE:
            return "Put", put_request(_key(0), _value(0)), 1
        case OperationKind.GROUPED_WRITE:
            puts = [(_key(number), _value(number)) for number in range(COMMANDS_PER_GROUP)]
            return "Txn", transaction_of_puts(puts), 1
        case OperationKind.LINEARIZABLE_READ | OperationKind.LOCAL_READ:
            body = range_request(_key(0), serializable=kind is OperationKind.LOCAL_READ)
            return "Range", body, len(_key(0)) + len(_value(0))


def _key(number: int) -> bytes:
    return "/".join(key_path(number)).encode()


def _value(number: int) -> bytes:
    return value_text(number).encode()


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
