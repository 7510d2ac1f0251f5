"""One peer's messages, whatever they are and do, end nothing of the others'; nor does one peer have all places."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors.net.endpoint import LinkEndpoint
from batonpass.actors.net.inbox import Received
from batonpass.actors.net.taking import Rest, take_each
from batonpass.crypto.keys import Identity
from tests.actors.net.test_endpoint import ALPHA, BETA, Directory, serving, until
from tests.budget import examples

GAMMA = Identity.generate()
KEYS = {"alpha.s1": ALPHA.public, "beta.s1": BETA.public, "gamma.s1": GAMMA.public}


class Service:
    """Takes what comes to `endpoint`: `raise` and `raise later` fail, `wait` waits for `go_on`, the rest is noted."""

    def __init__(self, endpoint: LinkEndpoint, at_most: int = 4) -> None:
        self.endpoint = endpoint
        self.taken: list[tuple[str, bytes]] = []
        self.failed: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()
        self.go_on = trio.Event()
        self._at_most = at_most

    async def serve(self) -> None:
        await take_each(self.endpoint.inbox, self._take, self._note_failure, at_most=self._at_most)

    def _take(self, received: Received) -> Rest | None:
        if received.message == b"raise":
            raise ValueError("at once")
        if received.message == b"note":
            self.taken.append((received.peer, received.message))
            return None
        return partial(self._later, received)

    async def _later(self, received: Received) -> None:
        if received.message == b"raise later":
            raise ValueError("later")
        if received.message == b"wait":
            self.waiting[received.peer] += 1
            await self.go_on.wait()
        self.taken.append((received.peer, received.message))

    def _note_failure(self, received: Received, error: Exception) -> None:
        self.failed[received.peer] += 1

    async def has_taken(self, count: int) -> None:
        await until(lambda: len(self.taken) >= count)


@asynccontextmanager
async def a_service_and_two_peers(at_most: int = 4) -> AsyncIterator[tuple[Service, LinkEndpoint, LinkEndpoint]]:
    async with (
        serving("alpha.s1", ALPHA, Directory(KEYS)) as served,
        serving("beta.s1", BETA, Directory(KEYS)) as mallory,
        serving("gamma.s1", GAMMA, Directory(KEYS)) as other,
        trio.open_nursery() as nursery,
    ):
        service = Service(served, at_most)
        nursery.start_soon(service.serve)
        yield service, mallory, other
        nursery.cancel_scope.cancel()


async def test_equal_messages_at_the_same_time_are_as_many_as_they_are() -> None:
    async with a_service_and_two_peers(at_most=8) as (service, mallory, _):
        for _ in range(3):
            await mallory.send("alpha.s1", service.endpoint.address, b"wait")
        await until(lambda: service.waiting["beta.s1"] == 3)
        service.go_on.set()
        await service.has_taken(3)
        assert not service.failed


@pytest.mark.parametrize("message", [b"raise", b"raise later"])
async def test_what_taking_a_message_raises_ends_nothing_of_other_peers(
    message: bytes,
) -> None:
    async with a_service_and_two_peers() as (service, mallory, other):
        await other.send("alpha.s1", service.endpoint.address, b"wait")
        for _ in range(20):
            await mallory.send("alpha.s1", service.endpoint.address, message)
        await mallory.send("alpha.s1", service.endpoint.address, b"note")
        await other.send("alpha.s1", service.endpoint.address, b"note")
        await service.has_taken(2)
        await until(lambda: service.failed == {"beta.s1": 20})
        service.go_on.set()
        await service.has_taken(3)


async def test_a_peer_whose_messages_wait_long_has_half_of_the_places_and_no_more() -> None:
    async with a_service_and_two_peers(at_most=4) as (service, mallory, other):
        for _ in range(10):
            await mallory.send("alpha.s1", service.endpoint.address, b"wait")
        for _ in range(5):
            await other.send("alpha.s1", service.endpoint.address, b"at once, in a task")
        await service.has_taken(5)
        assert service.waiting["beta.s1"] == 2
        service.go_on.set()
        await service.has_taken(15)
        assert service.waiting["beta.s1"] == 10, "nothing of it was lost meanwhile"


HOSTILE = st.lists(st.sampled_from([b"raise", b"raise later", b"wait", b"note", b"", b"\xff" * 40]), max_size=60)


@given(messages=HOSTILE)
@settings(max_examples=examples(25), deadline=None)
def test_after_any_messages_of_one_peer_the_service_takes_those_of_another(messages: list[bytes]) -> None:
    async def after_them() -> None:
        async with a_service_and_two_peers() as (service, mallory, other):
            for message in messages:
                mallory.post("alpha.s1", service.endpoint.address, message)
            for _ in range(5):
                await other.send("alpha.s1", service.endpoint.address, b"note")
            await until(lambda: service.taken.count(("gamma.s1", b"note")) == 5)
            service.go_on.set()
            fine = sum(message not in (b"raise", b"raise later") for message in messages)
            await service.has_taken(5 + fine)
            await until(lambda: service.failed["beta.s1"] == len(messages) - fine)

    trio.run(after_them)
