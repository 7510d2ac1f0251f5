"""Inboxes of an endpoint: full ones, closed ones, and those of claimed channels."""

import pytest
import trio

from batonpass.actors.net.endpoint import Received
from tests.actors.net.test_endpoint import ALPHA, BETA, receive, serving, until


async def test_a_full_inbox_makes_the_sender_wait_and_loses_nothing() -> None:
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA, inbox_capacity=32) as beta:
        sent = 0

        async def send_many() -> None:
            nonlocal sent
            for number in range(200):
                await alpha.send("beta.s1", beta.address, number.to_bytes(2, "big"))
                sent += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_many)
            await until(lambda: sent == 32)
            await until(lambda: alpha._links["beta.s1"].is_credit_awaited)
            assert sent == 32
            received = [int.from_bytes((await receive(beta)).message, "big") for _ in range(200)]
        assert received == list(range(200))


async def test_a_closed_inbox_takes_no_more() -> None:
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA) as beta:
        await alpha.send("beta.s1", beta.address, b"one")
        await until(lambda: bool(beta.inbox._ready))
        await beta.inbox.aclose()
        assert (await receive(beta)).message == b"one"
        with pytest.raises(trio.EndOfChannel):
            await beta.inbox.receive()


async def test_a_claimed_channel_has_an_inbox_of_its_own() -> None:
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA) as beta:
        await alpha.send("beta.s1", beta.address, b"early", channel=5)
        await until(lambda: bool(beta.inbox._ready))
        five = beta.claim(5)
        assert beta.claim(5) is five
        await alpha.send("beta.s1", beta.address, b"for everybody")
        await alpha.send("beta.s1", beta.address, b"for five", channel=5)
        with trio.fail_after(90):
            # Nobody has taken what came for everybody, and five does not wait for that.
            assert [(await five.receive()).message for _ in range(2)] == [b"early", b"for five"]
        assert await receive(beta) == Received("alpha.s1", b"for everybody", 0, alpha.address)
        with pytest.raises(trio.WouldBlock):
            five.receive_nowait()
        with pytest.raises(ValueError, match="channel 32"):
            beta.claim(32)


async def test_a_claimed_inbox_gives_credit_back_and_ends_with_the_endpoint() -> None:
    async with serving("alpha.s1", ALPHA) as alpha, serving("beta.s1", BETA, inbox_capacity=32) as beta:
        five = beta.claim(5)
        for number in range(100):
            await alpha.send("beta.s1", beta.address, bytes([number]), channel=5)
            with trio.fail_after(90):
                assert (await five.receive()).message == bytes([number])
    with pytest.raises(trio.EndOfChannel):
        five.receive_nowait()
