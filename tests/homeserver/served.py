"""A homeserver and a simulation server, running in the test's own process, spoken to over real HTTP.

Every answer that a test gets has been held against the OpenAPI document first, and has been searched for secrets.
"""

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import SystemRandom
from typing import Any
from unittest.mock import patch

import httpx
import trio

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.client import trusted_authorities
from batonpass.actors.net.key_service import KeyService
from batonpass.authority.node.config import Address
from batonpass.crypto import jose
from batonpass.crypto.keys import Identity
from batonpass.homeserver.config import HomeserverConfig, MemberConfig, PeerConfig
from batonpass.homeserver.node.dispatch import HomeserverNode
from batonpass.homeserver.server.main import run as run_homeserver
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.simserver.server.config import SimserverConfig
from batonpass.simserver.server.dispatch import SimserverNode as SimNode
from batonpass.simserver.server.main import Shell
from batonpass.simserver.server.main import run as run_simserver
from tests.homeserver.openapi import Contract
from tests.tokens import write_issuer

DEADLINE_S = 240.0
LEASE_TERM_S = 60.0
_CONTRACTS: list[Contract] = []
SECRET_NAMES = ("raft", "join", "client", "federation", "operator", "simserver-operator")


class Player:
    """Somebody with keys who can sign."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.identity = Identity.generate()

    @property
    def keys(self) -> list[dict[str, Any]]:
        """The public keys, as they are registered."""
        keys: list[dict[str, Any]] = self.identity.public.to_jwks()["keys"]
        return keys

    def proof(self, /, *, lifetime_s: float = 60.0, sign_as: str | None = None, **statement: Any) -> str:
        """A signed statement that expires `lifetime_s` from now."""
        claims = statement | {"expires_at_s": time.time_ns() / 1e9 + lifetime_s}
        return jose.sign(claims, sender=self.identity, sender_id=sign_as or self.name)


class MovableClock(Clock):
    """The clock of the machine, moved forward at will."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def unix_s(self) -> float:
        return super().unix_s() + self.ahead_s


class Api:
    """A client of one server that lets no undocumented answer pass."""

    def __init__(self, url: str, token: str, contract: Contract, forbidden: tuple[str, ...]) -> None:
        self.url = url
        self.contract = contract
        self._headers = {"authorization": f"Bearer {token}"}
        self._forbidden = forbidden
        self.http = httpx.AsyncClient(base_url=url, trust_env=False, verify=trusted_authorities(), timeout=DEADLINE_S)

    async def call(
        self, method: str, path: str, body: Any = None, /, *, token: bool = True, **more: Any
    ) -> httpx.Response:
        """One request; its answer is as documented and gives nothing away."""
        if body is not None:
            more["json"] = body
        more["headers"] = (self._headers if token else {}) | more.pop("headers", {})
        answer = await self.http.request(method, path, **more)
        self.contract.check(answer)
        for secret in self._forbidden:
            assert secret not in answer.text
        assert "Traceback" not in answer.text
        assert answer.status_code != 500, answer.text
        return answer

    async def get(self, path: str, **more: Any) -> Any:
        """The body of a GET that succeeds."""
        answer = await self.call("GET", path, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def do(self, method: str, path: str, body: Any = None, /, **more: Any) -> Any:
        """The body of a request that succeeds."""
        answer = await self.call(method, path, body, **more)
        assert answer.is_success, answer.text
        return answer.json()

    async def drained(self, server: str) -> dict[str, Any]:
        """Wait until a drained server is empty."""
        with trio.fail_after(DEADLINE_S):
            while True:
                view: dict[str, Any] = await self.get(f"/v1/servers/{server}/drain")
                if view["empty"]:
                    return view
                await trio.sleep(0.05)

    async def refused(self, status: int, code: str, method: str, path: str, body: Any = None, /, **more: Any) -> Any:
        """The value that an error names; the error is the expected one."""
        answer = await self.call(method, path, body, **more)
        error = answer.json()
        assert (answer.status_code, error["code"]) == (status, code), answer.text
        assert error["message"], "an error has a sentence"
        return error["value"]


class Home:
    """A running instance: one homeserver, and simulation servers as a test needs them."""

    def __init__(
        self, node: HomeserverNode, directory: Path, api: Api, clock: MovableClock, nursery: trio.Nursery
    ) -> None:
        self.node = node
        self.directory = directory
        self.api = api
        self.clock = clock
        self.nursery = nursery
        self.simservers: dict[str, SimNode] = {}
        self.keys: dict[str, KeyService] = {}

    async def simserver(self, name: str, **options: Any) -> SimNode:
        """Start a simulation server and wait until it is registered."""
        shell: Shell = await self.nursery.start(run_simserver, simserver_config(self, name, **options))
        node, self.keys[name] = shell.node, shell.keys
        await until(lambda: node.registered and node.lease.is_alive)
        self.simservers[name] = node
        return node

    async def player(self, name: str) -> Player:
        """A player whose keys are registered here."""
        player = Player(name)
        await self.api.do("PUT", f"/v1/players/{name}/keys", {"keys": player.keys})
        return player

    async def entity(self, entity_id: str, spawner: Player, server: str, **more: Any) -> dict[str, Any]:
        """A ball that is simulated."""
        body = {"id": entity_id, "kind": "ball", "spawner": spawner.name, "server": server} | more
        while True:
            answer = await self.api.call("POST", "/v1/entities", body)
            # A busy machine takes its time for large states; the same request learns the outcome.
            if answer.status_code != 504 or answer.json()["code"] != "spawn_unconfirmed":
                assert answer.is_success, answer.text
                record: dict[str, Any] = answer.json()
                return record

    async def finished(self, transfer_id: str) -> dict[str, Any]:
        """A transfer when it is over, one way or the other."""
        with trio.fail_after(DEADLINE_S):
            while True:
                view: dict[str, Any] = await self.api.get(f"/v1/transfers/{transfer_id}")
                if view["result"] != "pending":
                    return view
                await trio.sleep(0.01)


async def until(condition: Any) -> None:
    """Wait until something is so."""
    with trio.fail_after(DEADLINE_S):
        while True:
            if condition():
                return
            await trio.sleep(0.005)


def write_secrets(directory: Path) -> None:
    for name in SECRET_NAMES:
        path = directory / name
        if not path.exists():
            path.write_text(secrets.token_urlsafe(32))
            path.chmod(0o600)


def homeserver_config(
    directory: Path, ports: PortAllocator, name: str = "alpha.h1", peers: tuple[PeerConfig, ...] = ()
) -> HomeserverConfig:
    """An instance of one member, whose leases outlast a process that is not given the processor for a while."""
    instance = name.partition(".")[0]
    write_secrets(directory)
    rest = Address(port=ports.choose())
    return HomeserverConfig(
        name=name,
        instance=instance,
        directory=directory / name,
        rest=rest,
        members=(MemberConfig(name=name, raft_port=ports.choose(), rest_url=rest.url),),
        peers=peers,
        raft_secret_file=directory / "raft",
        join_token_file=directory / "join",
        token_issuer_file=write_issuer(directory),
        client_token_file=directory / "client",
        federation_secret_file=directory / "federation",
        operator_token_file=directory / "operator",
        lease_term_s=LEASE_TERM_S,
    )


def simserver_config(home: Home, name: str, **options: Any) -> SimserverConfig:
    fields: dict[str, Any] = {
        "name": name,
        "instance": name.partition(".")[0],
        "directory": home.directory / name,
        "home_urls": (home.api.url,),
        "join_token_file": home.directory / "join",
        "operator_token_file": home.directory / "simserver-operator",
    }
    return SimserverConfig(**fields | options)


async def contract_of(url: str) -> Contract:
    """What homeservers say of themselves: the first of this process is asked, which makes the document for all."""
    if not _CONTRACTS:
        async with httpx.AsyncClient(trust_env=False, verify=trusted_authorities()) as client:
            _CONTRACTS.append(Contract((await client.get(f"{url}/openapi.json")).json()))
    return _CONTRACTS[0]


@asynccontextmanager
async def served(config: HomeserverConfig) -> AsyncIterator[Home]:
    """Run a homeserver until the block ends; it is ready when the block begins."""
    directory = config.directory.parent
    clock = MovableClock()
    async with trio.open_nursery() as nursery:
        with patch("batonpass.homeserver.server.main.Clock", lambda: clock):
            node: HomeserverNode = await nursery.start(run_homeserver, config)
        # With the last of what it writes by itself.
        await until(lambda: node.registered and node.leases.granter.office > 0)
        contract = await contract_of(config.rest.url)
        held = {name: (directory / name).read_text() for name in SECRET_NAMES}
        api = Api(config.rest.url, held["client"], contract, (*held.values(), str(directory), "site-packages"))
        try:
            yield Home(node, directory, api, clock, nursery)
        finally:
            with trio.CancelScope(shield=True):
                await api.http.aclose()
            nursery.cancel_scope.cancel()


def of_one_server(
    cases: Iterable[tuple[Any, ...]],
) -> Callable[[Callable[..., Awaitable[None]]], Callable[[Home], Awaitable[None]]]:
    """In the place of `pytest.mark.parametrize`, for requests that are refused and so change nothing.

    One server is asked all of them, instead of one that is started for each. What fails has a note that names its case.
    """

    def decorated(test: Callable[..., Awaitable[None]]) -> Callable[[Home], Awaitable[None]]:
        async def with_all(alpha: Home) -> None:
            for case in cases:
                try:
                    await test(alpha, *case)
                except BaseException as error:
                    error.add_note(f"of the case {case!r:.300}")
                    raise

        with_all.__name__, with_all.__qualname__ = test.__name__, test.__qualname__
        with_all.__doc__, with_all.__module__ = test.__doc__, test.__module__
        return with_all

    return decorated


def new_ports() -> PortAllocator:
    return PortAllocator(SystemRandom())
