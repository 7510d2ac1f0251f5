"""A real etcd cluster on loopback, in a directory of the test's, ended by the id of each process."""

import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.tree.etcd import EtcdConfig
from tests.tree.instances import free_ports

__all__ = ["EtcdCluster", "EtcdMember", "needs_etcd", "running_etcd", "started_etcd"]

READY_S: Final = 60.0


def needs_etcd() -> None:
    """Skip the test where etcd is not installed; `.ci/run` installs it."""
    if shutil.which("etcd") is None:
        pytest.skip("needs the etcd program: apt-get install etcd-server")


class EtcdMember:
    """One etcd process that can be killed, frozen and started again on its own data."""

    def __init__(self, name: str, directory: Path, urls: tuple[str, str], options: tuple[str, ...]) -> None:
        self.name = name
        self.url, self.peer_url = urls
        self._directory = directory
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, initial_cluster: str) -> None:
        command = (
            "etcd",
            f"--name={self.name}",
            f"--data-dir={self._directory / self.name}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={self.peer_url}",
            f"--initial-advertise-peer-urls={self.peer_url}",
            f"--initial-cluster={initial_cluster}",
            "--log-level=error",
            *self._options,
        )
        with (self._directory / f"{self.name}.log").open("ab") as log:
            # A group of its own: Ctrl-C in a terminal must reach the test, which then ends it.
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """End at once, as by power loss of the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self) -> None:
        """Stand still without closing anything."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after `freeze`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        # Nobody is signalled if it has ended: its number may be another's by then.
        self._process.send_signal(number)


class EtcdCluster:
    """Members by rank, and questions about the cluster."""

    def __init__(
        self, directory: Path, size: int, options: tuple[str, ...] = (), tls: ssl.SSLContext | None = None
    ) -> None:
        scheme = "http" if tls is None else "https"
        self.tls: ssl.SSLContext | bool = False if tls is None else tls
        ports = free_ports(2 * size)
        urls = [
            (f"{scheme}://127.0.0.1:{client}", f"http://127.0.0.1:{peer}")
            for client, peer in zip(ports[:size], ports[size:], strict=True)
        ]
        self.members = [EtcdMember(f"e{rank}", directory, pair, options) for rank, pair in enumerate(urls)]
        self.initial_cluster = ",".join(f"{member.name}={member.peer_url}" for member in self.members)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(member.url for member in self.members)

    def config(self, name: str, **changes: Any) -> EtcdConfig:
        """How a process called `name` uses this cluster; quick timings, as loopback allows."""
        fields: dict[str, Any] = {
            "kind": "homeserver",
            "instance": "alpha",
            "name": name,
            "endpoints": self.urls,
            "request_timeout_s": 1.0,
            "pulse_s": 0.2,
        }
        return EtcdConfig(**fields | changes)

    def start(self, member: EtcdMember) -> None:
        member.start(self.initial_cluster)

    async def post(
        self, path: str, body: dict[str, Any], member: EtcdMember | None = None, token: str = ""
    ) -> dict[str, Any]:
        """Ask a member directly."""
        headers = {"authorization": token} if token else {}
        async with httpx.AsyncClient(trust_env=False, timeout=READY_S, verify=self.tls) as client:
            response = await client.post((member or self.members[0]).url + path, json=body, headers=headers)
            answer: dict[str, Any] = response.raise_for_status().json()
            return answer

    async def until_ready(self) -> None:
        """Every running member knows a leader."""
        async with httpx.AsyncClient(trust_env=False, timeout=1.0, verify=self.tls) as client:
            for member in self.members:
                await self._until_led(client, member)

    @staticmethod
    async def _until_led(client: httpx.AsyncClient, member: EtcdMember) -> None:
        while True:
            try:
                if (await client.get(f"{member.url}/health")).is_success:
                    return
            except httpx.HTTPError:
                pass
            await trio.sleep(0.02)

    async def leader(self) -> EtcdMember:
        """The member that leads now."""
        while True:
            for member in self.members:
                status = await self.post("/v3/maintenance/status", {}, member)
                if status["leader"] == status["header"]["member_id"]:
                    return member
            await trio.sleep(0.05)


@contextmanager
def started_etcd(directory: Path) -> Iterator[EtcdCluster]:
    """A cluster of one member for many tests, started and ended without trio."""
    needs_etcd()
    cluster = EtcdCluster(directory, 1)
    (member,) = cluster.members
    try:
        cluster.start(member)
        deadline_s = time.monotonic() + READY_S
        with httpx.Client(trust_env=False, verify=trusted_authorities(), timeout=1.0) as client:
            while not _is_ready(client, member):
                assert time.monotonic() < deadline_s, "etcd does not become ready"
        yield cluster
    finally:
        member.kill()


def _is_ready(client: httpx.Client, member: EtcdMember) -> bool:
    try:
        return client.get(f"{member.url}/health").is_success
    except httpx.HTTPError:
        return False


@asynccontextmanager
async def running_etcd(
    directory: Path, size: int = 1, *options: str, tls: ssl.SSLContext | None = None
) -> AsyncIterator[EtcdCluster]:
    """A cluster that serves; ended, frozen members too, when the block ends."""
    needs_etcd()
    cluster = EtcdCluster(directory, size, options, tls)
    try:
        for member in cluster.members:
            cluster.start(member)
        with trio.fail_after(READY_S):
            await cluster.until_ready()
        yield cluster
    finally:
        for member in cluster.members:
            member.kill()
