"""The socket between a run and a member: answers find who asked, and silence ends in time."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from batonpass.scenarios.chaos.link import MemberGone, MemberLink, MemberSilent, NotAccepted

Answer = Callable[[dict[str, Any]], dict[str, Any] | None]


@asynccontextmanager
async def linked(tmp_path: Path, answer: Answer) -> AsyncIterator[tuple[MemberLink, Callable[[], Any]]]:
    """A link to a member that answers as told; and a way to end that member."""
    path = tmp_path / "socket"
    listening = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    await listening.bind(str(path))
    listening.listen(1)

    async def member(stream: trio.SocketStream) -> None:
        buffer = b""
        async for chunk in stream:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                request = json.loads(line)
                reply = answer(request)
                if reply is not None:
                    await stream.send_all(json.dumps({"number": request["number"], **reply}).encode() + b"\n")

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def serve() -> None:
            with scope:
                await trio.serve_listeners(member, [trio.SocketListener(listening)])

        nursery.start_soon(serve)
        link = MemberLink("m1", path)
        with trio.fail_after(90):
            await nursery.start(link.serve)
            yield link, scope.cancel
        nursery.cancel_scope.cancel()


async def test_each_answer_finds_its_question(tmp_path: Path) -> None:
    async with linked(tmp_path, lambda request: {"value": request["op"]}) as (link, _), trio.open_nursery() as nursery:
        answers: dict[str, Any] = {}

        async def ask(op: str) -> None:
            answers[op] = await link.ask(op, within_s=5.0)

        for op in ("a", "b", "c"):
            nursery.start_soon(ask, op)
    assert answers == {"a": "a", "b": "b", "c": "c"}


async def test_an_error_has_its_code(tmp_path: Path) -> None:
    async with linked(tmp_path, lambda _: {"error": "no_quorum"}) as (link, _):
        with pytest.raises(NotAccepted) as refused:
            await link.ask("submit", within_s=5.0)
    assert refused.value.code == "no_quorum"


async def test_silence_ends_in_time_and_a_late_answer_is_nobodys(tmp_path: Path) -> None:
    async with linked(tmp_path, lambda request: None if request["op"] == "dumb" else {"value": 1}) as (link, _):
        with pytest.raises(MemberSilent, match="m1 did not answer dumb"):
            await link.ask("dumb", within_s=0.01)
        assert await link.ask("other", within_s=5.0) == 1


async def test_whoever_waits_learns_that_the_member_is_gone(tmp_path: Path) -> None:
    async with linked(tmp_path, lambda _: None) as (link, end_member):
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(MemberGone):
                    await link.ask("dumb", within_s=5.0)

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked(0.01)
            end_member()
        with pytest.raises(MemberGone):
            await link.ask("anything", within_s=5.0)
