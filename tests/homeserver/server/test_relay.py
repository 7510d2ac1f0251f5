"""A relay passes on what somebody waits for still, and says how much time is left."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from batonpass.actors.http.app import ApiError
from batonpass.actors.http.client import HttpClient
from batonpass.authority.wire.envelope import WAIT_HEADER
from batonpass.homeserver.config import PeerConfig, RelayConfig
from batonpass.homeserver.names.federation import REQUEST_TIMEOUT_S
from batonpass.homeserver.rest.models import FederationBody
from batonpass.homeserver.server.relay import Relay
from tests.simserver.ports import TrioClock

QUERY = FederationBody.model_validate(
    {"to_instance": "beta", "query": {"query": "members", "nonce": "0123456789abcdef"}}
)


def relay_to(answer: Callable[[httpx.Request], Any], *urls: str) -> Relay:
    peers = (PeerConfig(instance="beta", urls=urls or ("http://one",), hops=2),)
    client = HttpClient(transport=httpx.MockTransport(answer))
    config: Any = RelayConfig.model_construct(name="relay.r1", peers=peers)
    return Relay(config, client, TrioClock())


@pytest.mark.parametrize(("wait_s", "left_ms"), [(1.25, 1250), (60.0, 3000)])
async def test_the_next_hears_how_long_is_waited_yet(wait_s: float, left_ms: int, autojump_clock: MockClock) -> None:
    waits = []

    def answer(request: httpx.Request) -> httpx.Response:
        waits.append(int(request.headers[WAIT_HEADER]))
        return httpx.Response(200, json={"rows": []})

    assert await relay_to(answer).forward(QUERY, wait_s) == {"rows": []}
    assert waits == [left_ms]


async def test_what_nobody_waits_for_any_more_is_not_passed_on(autojump_clock: MockClock) -> None:
    asked = []

    async def hang(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        await trio.sleep_forever()
        raise AssertionError

    with pytest.raises(ApiError) as late:
        await relay_to(hang).forward(QUERY, 0.0)
    assert (late.value.code, asked) == ("nobody_waits", [])
    began_s = trio.current_time()
    with pytest.raises(ApiError):
        await relay_to(hang, "http://one", "http://two", "http://three").forward(QUERY, 1.5 * REQUEST_TIMEOUT_S)
    assert asked == ["one", "two"], "there is no time for the third"
    assert trio.current_time() - began_s == pytest.approx(1.5 * REQUEST_TIMEOUT_S)
