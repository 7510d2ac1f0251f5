"""What servers in processes of their own answer, asked until it is what a test waits for.

A server hears of a decision a moment after the log has it, and does what follows from it another moment later. So
nothing here reads once: the caller says what the answer is to be like. What does not come fails with the last answer.
An answer that is an error is never taken for one that is none.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import httpx
import pytest
import trio

from batonpass.actors.http.client import trusted_authorities
from batonpass.scenarios.players.rest_client import ApiFailure

__all__ = ["LIMIT_S", "PATIENCE_S", "answered", "come", "health_code", "limited", "refused", "says"]

PATIENCE_S: Final = 240.0
"""How long one thing may take. It is for what never comes: on a machine with much else to do, what takes a second on a
quiet one takes a minute."""
LIMIT_S: Final = 900.0
"""How long all that a test does with its servers may take."""
limited: Final = pytest.mark.timeout(LIMIT_S + 2 * PATIENCE_S)
"""The mark of modules whose tests run servers: those are ended in order before it kills the worker."""

# Each question takes time from the server that is asked.
_AGAIN_S: Final = 0.05
# A server that is paused takes the connection, and does not answer.
_REQUEST_S: Final = 20.0

T = TypeVar("T")


def _anything(_: object) -> bool:
    return True


async def come(look: Callable[[], Awaitable[T]], fits: Callable[[T], object] = bool, *, what: str) -> T:
    """Look until what is seen is like that (by default: anything at all), and give it.

    A server that refuses or does not answer is asked again.

    Raises:
        AssertionError: it was not within `PATIENCE_S`; it says `what` was waited for, and what was seen last.
    """
    last: object = "nothing"
    with trio.move_on_after(PATIENCE_S):
        while True:
            try:
                seen = await look()
            except (ApiFailure, httpx.HTTPError, ValueError) as error:
                last = repr(error)
            else:
                if fits(seen):
                    return seen
                last = seen
            await trio.sleep(_AGAIN_S)
    raise AssertionError(f"{what} did not come within {PATIENCE_S:g} s; the last that was seen: {last}")


@dataclass(frozen=True)
class _Answer:
    status: int
    body: Any

    @property
    def code(self) -> str:
        """That of an error; `ok` of what is none."""
        if 200 <= self.status < 300:
            return "ok"
        return str(self.body.get("code") if isinstance(self.body, dict) else self.status)


async def answered(url: str, fits: Callable[[Any], object] = _anything, *, token: str = "", **params: str) -> Any:
    """The body that is answered to a GET (JSON, or a text), once it is no error and like that."""
    answer = await _asked(url, lambda answer: answer.code == "ok" and fits(answer.body), token, params)
    return answer.body


async def refused(url: str, code: str) -> None:
    """Wait until a GET is answered with the error of this code."""
    await _asked(url, lambda answer: answer.code == code)


async def says(url: str, code: str) -> str:
    """Wait until a server says this of its health: `ok`, or the code of what is wrong. What else it says of it."""
    return str((await _asked(f"{url}/healthz", lambda answer: answer.code == code)).body.get("message", ""))


async def health_code(url: str) -> str:
    """What a server says of its health, whatever that is: for what must never be said."""
    return (await _asked(f"{url}/healthz", _anything)).code


async def _asked(
    url: str, fits: Callable[[_Answer], object], token: str = "", params: Mapping[str, str] | None = None
) -> _Answer:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(
        trust_env=False, verify=trusted_authorities(), timeout=_REQUEST_S, headers=headers
    ) as client:

        async def ask() -> _Answer:
            got = await client.get(url, params=params)
            is_json = got.headers.get("content-type", "").startswith("application/json")
            return _Answer(got.status_code, got.json() if is_json else got.text)

        return await come(ask, fits, what=f"the answer to GET {url} that is waited for")
