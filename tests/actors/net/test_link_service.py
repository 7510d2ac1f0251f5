"""A link that is restarted: peers find it where it was, and what they send again arrives."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from batonpass.actors.net.endpoint import LinkDown, LinkEndpoint
from batonpass.actors.net.link_service import LinkService
from tests.actors.net.test_endpoint import ALPHA, BETA, Directory, serving


def beta() -> LinkService:
    return LinkService(lambda port: LinkEndpoint("beta.s1", BETA, Directory(), port=port))


@asynccontextmanager
async def life(service: LinkService) -> AsyncIterator[None]:
    """One life of the service, for the length of the block."""
    async with trio.open_nursery() as nursery:
        await nursery.start(service.serve)
        yield
        nursery.cancel_scope.cancel()


async def test_it_comes_back_where_it_was_and_peers_send_again_what_it_had_not_got() -> None:
    service = beta()
    async with serving("alpha.s1", ALPHA) as alpha:
        async with life(service):
            address = service.address
            await alpha.send("beta.s1", address, b"first")
            assert (await service.inbox.receive()).message == b"first"
            service.post("alpha.s1", alpha.address, b"hello")
            assert (await alpha.inbox.receive()).message == b"hello"
        alpha.post("beta.s1", address, b"second")
        async with life(service):
            assert service.address == address
            with trio.fail_after(90):
                assert (await service.inbox.receive()).message == b"second"
            await service.send("alpha.s1", alpha.address, b"again")
            assert (await alpha.inbox.receive()).message == b"again"
            assert service.stats["links"] == 1


async def test_while_it_does_not_run_it_says_so() -> None:
    service = beta()
    with pytest.raises(RuntimeError, match="serve it first"):
        _ = service.address
    with pytest.raises(RuntimeError, match="serve it first"):
        _ = service.inbox
    with pytest.raises(LinkDown):
        service.post("alpha.s1", ("127.0.0.1", 1), b"")
    async with life(service):
        service.post("alpha.s1", ("127.0.0.1", 1), b"")
    with pytest.raises(LinkDown, match="not running at the moment"):
        await service.send("alpha.s1", ("127.0.0.1", 1), b"")
    with pytest.raises(trio.EndOfChannel):
        await service.inbox.receive()


async def test_its_counters_are_those_of_all_its_lives() -> None:
    service = beta()
    assert service.stats == {"links": 0}
    for lives in (1, 2, 3):
        async with life(service), serving("alpha.s1", ALPHA) as alpha:
            await alpha.send("beta.s1", service.address, b"x")
            await service.inbox.receive()
            assert service.stats["handshakes"] == lives
