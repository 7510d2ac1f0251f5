"""The network of one client of `baton run lockstep`."""

from collections.abc import Callable
from random import Random

import httpx
import trio.testing

from batonpass.scenarios.lockstep.way import LossyWay

Answers = Callable[[httpx.Request], httpx.Response]


def tick(number: int, **more: object) -> httpx.Response:
    return httpx.Response(200, json={"T": number, **more})


def way(answers: Answers, *, loss: float = 0.0, jitter_s: float = 0.0) -> LossyWay:
    return LossyWay(httpx.MockTransport(answers), Random(7), loss, jitter_s)


async def ask(over: LossyWay, method: str = "POST") -> httpx.Response:
    return await over.handle_async_request(httpx.Request(method, "http://x.invalid/game/me/3", json={}))


async def test_of_what_is_lost_half_has_arrived_and_its_ticks_count_as_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    arrived: list[int] = []

    def answers(request: httpx.Request) -> httpx.Response:
        arrived.append(1)
        return tick(len(arrived))

    over = way(answers, loss=0.5, jitter_s=0.1)
    answered = 0
    for _ in range(400):
        try:
            await ask(over)
        except httpx.ReadTimeout:
            continue
        answered += 1
    assert answered == 400 - over.log.lost
    assert 150 < answered < 250
    assert answered + 50 < len(arrived) < 400 - 50
    assert len(over.log.told) == len(arrived)


async def test_resets_and_refusals_of_what_clients_post_are_kept(autojump_clock: trio.testing.MockClock) -> None:
    rows = [
        tick(1, Reset=True),
        httpx.Response(429, json={"code": "too_many_events"}),
        httpx.Response(503, json={"code": "unavailable"}),
    ]
    over = way(lambda _: rows.pop(0))
    for _ in range(3):
        await ask(over)
    rows += [httpx.Response(404, json={"code": "no_snapshot"}), httpx.Response(410, json={"code": "history_dropped"})]
    await ask(over, "GET")
    await ask(over)
    assert (over.log.resets, over.log.unavailable, len(over.log.refused)) == (1, 1, 1)
