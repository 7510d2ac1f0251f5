"""The network of one client: requests and answers are lost and late on it, as the dice say."""

import re
from dataclasses import dataclass, field
from random import Random
from typing import Final

import httpx
import trio

__all__ = ["LossyWay", "WayLog"]

NOTICED_S: Final = 0.4
"""After so long a client takes a request for lost."""
_TICK: Final = re.compile(rb'\{"T":\s*(\d+)')
_RESET: Final = re.compile(rb'"Reset":\s*true')


@dataclass
class WayLog:
    """What went over the way of one client."""

    told: list[tuple[float, int]] = field(default_factory=list)
    """When a door told a tick, and which, also in answers that were lost then."""
    lost: int = 0
    sent_on: int = 0
    unavailable: int = 0
    resets: int = 0
    refused: list[str] = field(default_factory=list)
    """Answers that say no for good, to what clients post."""


class LossyWay(httpx.AsyncBaseTransport):
    """A way to the doors of a cluster, for `HttpClient`.

    Args:
        inner: the real network, which others use, too.
        dice: what decides.
        loss: the share of requests that are lost; half of these arrive, and their answers are lost.
        jitter_s: by which each is late at most, on either way.
        latency_s: by which each is late at least.
    """

    def __init__(
        self, inner: httpx.AsyncBaseTransport, dice: Random, loss: float, jitter_s: float, latency_s: float = 0.0
    ) -> None:
        self._inner: Final = inner
        self._dice: Final = dice
        self._loss: Final = loss
        self._least_s: Final = latency_s
        self._most_s: Final = latency_s + jitter_s
        self.log: Final = WayLog()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """As of httpx. Raises `httpx.TransportError`: it was lost, or is not answered."""
        is_lost, arrives = self._dice.random() < self._loss, self._dice.random() < 0.5
        there_s, back_s = (self._dice.uniform(self._least_s, self._most_s) for _ in range(2))
        await trio.sleep(there_s)
        answer = None if is_lost and not arrives else await self._ask(request)
        if answer is None or is_lost:
            self.log.lost += 1
            await trio.sleep(NOTICED_S)
            raise httpx.ReadTimeout("lost on the way", request=request)
        await trio.sleep(back_s)
        return answer

    async def _ask(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        try:
            body = await answer.aread()
        finally:
            await answer.aclose()
        self._note(request, read := httpx.Response(answer.status_code, headers=answer.headers, content=body))
        return read

    def _note(self, request: httpx.Request, answer: httpx.Response) -> None:
        if answer.status_code == httpx.codes.TEMPORARY_REDIRECT:
            self.log.sent_on += 1
        elif answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            self.log.unavailable += 1
        elif request.method != "POST" or answer.status_code == httpx.codes.GONE:
            # Snapshots and dumps may be refused: others have given theirs already. What a client is too far behind for
            # was dropped, and it takes the snapshot.
            return
        elif not answer.is_success:
            self.log.refused.append(f"{answer.status_code} {answer.text[:200]}")
        elif (found := _TICK.match(answer.content)) is not None:
            self.log.told.append((trio.current_time(), int(found[1])))
            self.log.resets += _RESET.search(answer.content) is not None
