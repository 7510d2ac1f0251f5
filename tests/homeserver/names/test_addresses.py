"""Where servers are: the directory follows the process that lives, also after a copy of it ran for a moment."""

from types import SimpleNamespace
from typing import Any, Final

import httpx
import pytest

from batonpass.actors.base.clock import Clock
from batonpass.actors.http.client import HttpClient
from batonpass.authority.errors import MessageError
from batonpass.authority.wire.lease import Renew
from batonpass.homeserver.config import PeerConfig
from batonpass.homeserver.names.registration import register
from batonpass.homeserver.rest.models import FederationBody
from batonpass.homeserver.server import main as app
from batonpass.homeserver.server.relay import Relay
from tests.homeserver.rest.test_server_routes import Server
from tests.homeserver.served import Home, until

NONCES: Final = ("0" * 32, "1" * 32)
HERE, THERE = 9009, 9010


def place(port: int) -> dict[str, Any]:
    return {"rest_url": f"http://127.0.0.1:{port}", "link_host": "127.0.0.1", "link_port": port}


def port_of(home: Home, server: str) -> int:
    row = home.node.store.row(server)
    assert row is not None
    assert row.rest_url == f"http://127.0.0.1:{row.link_port}"
    return row.link_port


async def renew(home: Home, number: int, port: int, incarnation: int = 1) -> str:
    message = Renew(
        server="alpha.p1",
        incarnation=incarnation,
        nonce=NONCES[incarnation - 1],
        previous_nonce=NONCES[incarnation - 2] if incarnation > 1 else "",
        renewal=number,
        **place(port),
    )
    return (await home.node.leases.renew(message, "alpha.p1")).verdict


async def test_addresses_are_those_of_the_incarnation_that_has_the_lease(alpha: Home) -> None:
    server = Server(alpha, "alpha.p1")
    await server.register(**place(HERE))
    assert await renew(alpha, 1, HERE) in ("granted", "returning")
    await server.register(**place(THERE))
    assert port_of(alpha, "alpha.p1") == HERE, "a copy has registered, and has no lease"
    assert await renew(alpha, 1, THERE, incarnation=2) in ("granted", "returning")
    assert port_of(alpha, "alpha.p1") == THERE, "it begins an incarnation, so that is where the server is"
    assert await renew(alpha, 2, HERE) == "over"
    assert port_of(alpha, "alpha.p1") == THERE


async def test_a_living_incarnation_is_put_where_it_is_with_its_next_renewal(alpha: Home) -> None:
    """As when the log was restored from a copy that knew it elsewhere."""
    await Server(alpha, "alpha.p1").register(**place(HERE))
    assert await renew(alpha, 1, HERE) in ("granted", "returning")
    assert await renew(alpha, 2, THERE) in ("granted", "returning")
    assert port_of(alpha, "alpha.p1") == THERE


@pytest.mark.parametrize(
    "where",
    [
        {"link_host": "::1"},
        {"link_host": "localhost"},
        {"link_host": "0.0.0.0"},
        {"link_port": 53},
        {"rest_url": "file:///x"},
    ],
    ids=str,
)
async def test_no_renewal_puts_a_server_where_nobody_could_reach_it(alpha: Home, where: dict[str, Any]) -> None:
    await Server(alpha, "alpha.p1").register(**place(HERE))
    message = Renew(server="alpha.p1", incarnation=1, nonce=NONCES[0], renewal=1, **place(HERE) | where)
    with pytest.raises(MessageError, match=r"no server could reach alpha\.p1"):
        await alpha.node.leases.renew(message, "alpha.p1")
    assert port_of(alpha, "alpha.p1") == HERE
    assert await renew(alpha, 1, HERE) in ("granted", "returning")


async def test_a_simulation_server_says_where_it_is_with_every_renewal(alpha: Home) -> None:
    sim = await alpha.simserver("alpha.s1")
    row = alpha.node.store.row("alpha.s1")
    assert row is not None
    assert (row.link_host, row.link_port) == sim.link.address
    elsewhere = row.changed(rest_url="http://127.0.0.1:1", link_port=1)
    lease = alpha.node.store.lease("alpha.s1")
    assert lease is not None
    assert lease.addressed
    # What no registration does any more.
    await alpha.node.store.submit(
        "lease.claim",
        server="alpha.s1",
        incarnation=lease.incarnation,
        nonce=lease.nonce,
        previous_nonce="",
        addresses=list(elsewhere.address),
    )
    sim.lease.once_renewed(lambda: None)
    await until(lambda: alpha.node.store.row("alpha.s1").address == row.address)  # type: ignore[union-attr]


async def test_a_homeserver_is_put_where_it_is_after_another_process_of_its_name_was_elsewhere(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "LOOK_AT_OWN_ROW_S", 0.01)
    row = alpha.node.store.row("alpha.h1")
    assert row is not None
    await register(alpha.node.store, row.changed(rest_url="http://127.0.0.1:1", link_port=1))
    await until(lambda: alpha.node.store.row("alpha.h1").address == row.address)  # type: ignore[union-attr]


async def test_a_relay_asks_again_where_a_member_is_that_is_not_where_it_was() -> None:
    """Of two addresses that it knows for an instance, the members have changed places."""
    at = {"one.test": "beta.h1", "two.test": "beta.h2"}

    def answer(request: httpx.Request) -> httpx.Response:
        name = at.get(request.url.host)
        if name is None:
            raise httpx.ConnectError("nobody is there")
        if request.url.path == "/healthz":
            return httpx.Response(200, json={"name": name})
        if b"beta.h1" in request.content and name != "beta.h1":
            return httpx.Response(421, json={"code": "misdirected", "message": f"this is {name}"})
        return httpx.Response(200, json={"rows": [], "proof": name})

    client = HttpClient(transport=httpx.MockTransport(answer))
    peer = PeerConfig(instance="beta", urls=("http://one.test", "http://two.test"), hops=1)
    config: Any = SimpleNamespace(name="gamma.r1", peers=(peer,))
    relay = Relay(config, client, Clock())
    body = FederationBody.model_validate(
        {"to_instance": "beta", "to": "beta.h1", "query": {"query": "members", "nonce": "n" * 16}}
    )
    assert (await relay.forward(body))["proof"] == "beta.h1"
    for moved in ({"two.test": "beta.h1", "one.test": "beta.h2"}, {"one.test": "beta.h1"}):
        at.clear()
        at.update(moved)
        with pytest.raises(Exception, match=r"this is|no answer"):
            await relay.forward(body)
        assert (await relay.forward(body))["proof"] == "beta.h1"
