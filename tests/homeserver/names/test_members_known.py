"""Simulation servers learn of homeservers that registered after they did, and of those that have moved."""

import trio

from batonpass.authority.model.records import DirectoryRow, Role
from batonpass.crypto.keys import Identity
from batonpass.homeserver.names.registration import register
from tests.homeserver.served import Home, until


async def test_whoever_registers_later_or_moves_hears_the_loads_and_never_had_to_lead(alpha: Home) -> None:
    """Else a drain that it is asked for has no end: it would wait for the server's word that it is empty."""
    s1 = await alpha.simserver("alpha.s1")
    assert [row.name for row in s1.home.members()] == ["alpha.h1"]
    keys = Identity.generate().public.to_jwks()
    udp = trio.socket.AF_INET, trio.socket.SOCK_DGRAM
    with trio.socket.socket(*udp) as early, trio.socket.socket(*udp) as late:
        await early.bind(("127.0.0.1", 0))
        await late.bind(("127.0.0.1", 0))
        for port in (early.getsockname()[1], late.getsockname()[1]):
            row = DirectoryRow(
                name="alpha.h2",
                role=Role.HOMESERVER,
                keys=keys,
                rest_url="http://127.0.0.1:1",
                link_host="127.0.0.1",
                link_port=port,
            )
            await register(alpha.node.store, row)
            await until(lambda port=port: port in [one.link_port for one in s1.home.members()])
        datagram, _ = await late.recvfrom(2048)
    assert datagram
    assert next(s1.home.members()).name == "alpha.h1", "it leads, and is asked first"
