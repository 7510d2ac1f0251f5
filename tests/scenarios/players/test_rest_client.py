"""The scenarios' client reads from servers that are slow, and says at once that one is not there."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from batonpass.scenarios.players.rest_client import READ_TRIES, ApiFailure, RestClient

URL = "http://alpha.s1"


@asynccontextmanager
async def reading(answer: Callable[[int], httpx.Response]) -> AsyncIterator[tuple[RestClient, list[str]]]:
    """A client of whose requests each is answered, or fails, by its number; and the addresses that it asked for."""
    asked: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return answer(len(asked))

    client = RestClient({}, {})
    await client.aclose()
    client._http = httpx.AsyncClient(transport=httpx.MockTransport(handle))
    yield client, asked
    await client.aclose()


def slow(times: int) -> Callable[[int], httpx.Response]:
    def answer(number: int) -> httpx.Response:
        if number <= times:
            raise httpx.ReadTimeout("slow")
        return httpx.Response(200, json={"number": number})

    return answer


async def test_a_slow_server_is_asked_again() -> None:
    async with reading(slow(READ_TRIES - 1)) as (client, asked):
        assert await client.get(f"{URL}/v1/local/stats", state="true") == {"number": READ_TRIES}
        assert asked == [f"{URL}/v1/local/stats?state=true"] * READ_TRIES


async def test_one_that_never_answers_is_given_up() -> None:
    async with reading(slow(100)) as (client, asked):
        with pytest.raises(httpx.ReadTimeout):
            await client.get(URL)
        assert len(asked) == READ_TRIES


async def test_one_that_is_not_there_or_refuses_is_asked_once() -> None:
    def gone(_number: int) -> httpx.Response:
        raise httpx.ConnectError("gone")

    async with reading(gone) as (client, asked):
        with pytest.raises(httpx.ConnectError):
            await client.get(URL)
        assert len(asked) == 1
    async with reading(lambda _: httpx.Response(404, json={"code": "not_found", "message": "no"})) as (client, asked):
        with pytest.raises(ApiFailure) as refused:
            await client.get(URL)
        assert (refused.value.code, len(asked)) == ("not_found", 1)
