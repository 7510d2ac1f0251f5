"""Where servers are, and which keys they have, as a client over the link hears from homeservers."""

from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from batonpass.actors.http.client import HttpClient
from batonpass.crypto.keys import Identity
from batonpass.simserver.sync.play.over_link import FRESH_S, HomeServers, read_server_row_untrusted

KEYS = Identity.generate().public
ROW: dict[str, Any] = {"keys": KEYS.to_jwks(), "link_host": "10.0.0.1", "link_port": 7}


class Home(httpx.AsyncBaseTransport):
    """Two homeservers, of which the first is dead."""

    def __init__(self) -> None:
        self.row: dict[str, Any] | None = dict(ROW)
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await trio.lowlevel.checkpoint()
        self.asked.append(f"{request.method} {request.url}")
        if request.url.host == "dead" or self.row is None:
            raise httpx.ConnectError("nobody is there", request=request)
        return httpx.Response(200, json=self.row)


async def test_the_next_homeserver_is_asked_and_an_address_is_asked_for_again_after_a_while(
    autojump_clock: MockClock,
) -> None:
    home = Home()
    async with HttpClient(transport=home) as http:
        servers = HomeServers(["http://dead:1", "http://there:1/"], http)
        for _ in range(3):
            assert await servers.address_of("alpha.s1") == ("10.0.0.1", 7)
        assert home.asked == ["GET http://dead:1/v1/servers/alpha.s1", "GET http://there:1/v1/servers/alpha.s1"]
        home.row = {**ROW, "link_port": 8}
        await trio.sleep(FRESH_S)
        assert await servers.address_of("alpha.s1") == ("10.0.0.1", 8)
        assert await servers.keys_of("alpha.s1") == KEYS


async def test_what_was_known_counts_while_home_is_away_and_nothing_else_does(autojump_clock: MockClock) -> None:
    home = Home()
    async with HttpClient(transport=home) as http:
        servers = HomeServers(["http://there:1"], http)
        await servers.address_of("alpha.s1")
        home.row = None
        await trio.sleep(FRESH_S)
        assert await servers.address_of("alpha.s1") == ("10.0.0.1", 7)
        assert await servers.keys_of("alpha.s1") == KEYS
        assert await servers.keys_of("alpha.s2") is None
        with pytest.raises(OSError, match=r"where alpha\.s2 is"):
            await servers.address_of("alpha.s2")
        with pytest.raises(OSError, match="no homeserver"):
            await HomeServers([], http).address_of("alpha.s1")


@pytest.mark.parametrize(
    "row",
    [None, [], {}, {**ROW, "keys": 1}, {**ROW, "link_port": "7"}, {**ROW, "link_port": 0}, {**ROW, "link_host": None}],
)
def test_a_row_without_keys_or_address_is_refused(row: Any) -> None:
    with pytest.raises(OSError, match="where the server is"):
        read_server_row_untrusted(row)
