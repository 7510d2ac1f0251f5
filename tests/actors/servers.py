"""Servers that several test files use."""

from collections.abc import Callable
from typing import Any

import trio
import trio.testing

from batonpass.actors import (
    IGNORE,
    Continue,
    Down,
    ExitSignal,
    From,
    NoReply,
    Ok,
    Ref,
    Reply,
    Server,
    Stop,
)


class Counter(Server[int]):
    """Counts what it is cast; its state is an int, passed from callback to callback."""

    def handle_call(self, request: str, from_: From, state: int) -> Reply[int] | Stop[int]:
        match request:
            case "get":
                return Reply(state)
            case "take":
                return Reply(state, 0)
            case "raise":
                raise ValueError("boom")
            case "stop":
                return Stop("normal")
            case "stop with an answer":
                return Stop("normal", reply="bye")
            case _:
                raise AssertionError(request)

    def handle_cast(self, message: int | str, state: int) -> NoReply[int] | Stop[int]:
        if isinstance(message, str):
            return Stop(message)
        return NoReply(state + message)


class Slow(Server[None]):
    """Answers each call with the request itself, after that many seconds; remembers what came as info."""

    async def handle_call(self, request: float, from_: From, state: None) -> Reply[None]:
        await trio.sleep(request)
        return Reply(request)

    def handle_cast(self, message: Any, state: None) -> None:
        pass


class Recorder(Server[list[Any]]):
    """Keeps every info message, and answers any call with what it has kept."""

    def init(self, arg: Any) -> list[Any]:
        return []

    def handle_call(self, request: Any, from_: From, state: list[Any]) -> Reply[list[Any]]:
        return Reply(list(state))

    def handle_cast(self, message: Any, state: list[Any]) -> None:
        state.append(("cast", message))

    def handle_info(self, message: Any, state: list[Any]) -> None:
        state.append(message)


class Watcher(Recorder):
    """Monitors every ref that it is cast."""

    def handle_cast(self, message: Ref, state: list[Any]) -> None:
        self.monitor(message)


class Trapper(Server[list[Any]]):
    """Traps exits; tells the list it is started with what happened to it."""

    trap_exit = True

    def init(self, arg: list[Any]) -> list[Any]:
        return arg

    def handle_call(self, request: Any, from_: From, state: list[Any]) -> Reply[list[Any]]:
        return Reply("alive")

    def handle_info(self, message: Any, state: list[Any]) -> None:
        state.append(("info", message.reason if isinstance(message, Down | ExitSignal) else message))

    def terminate(self, reason: object, state: list[Any]) -> object:
        state.append(("terminate", reason))
        return None


class Polite(Trapper):
    """The same without trapping exits."""

    trap_exit = False

    def handle_cast(self, message: Any, state: list[Any]) -> Stop[list[Any]]:
        return Stop(message)


class Waiting(Server[From | None]):
    """Leaves its caller waiting, until it is cast what to answer."""

    def init(self, arg: None) -> None:
        return None

    def handle_call(self, request: Any, from_: From, state: From | None) -> NoReply[From | None]:
        return NoReply(from_)

    def handle_cast(self, message: Any, state: From | None) -> Stop[From | None] | None:
        if message == "stop":
            return Stop("normal")
        if state is not None:
            state.reply(message)
        return None


class Scripted(Server[Any]):
    """`init` and `handle_call` do what the function it is started with does."""

    def init(self, arg: Callable[[Server[Any]], Any]) -> Any:
        return arg(self)

    def handle_call(self, request: Callable[[Server[Any], From], Any], from_: From, state: Any) -> Any:
        return request(self, from_)

    def handle_cast(self, message: Callable[[Server[Any]], Any], state: Any) -> Any:
        return message(self)


class Continuing(Server[list[str]]):
    """Goes on by itself after `init`, and after each call."""

    def init(self, arg: None) -> Ok[list[str]]:
        self.ref.cast("message")
        return Ok(["init"], then=Continue("continue"))

    def handle_continue(self, value: str, state: list[str]) -> NoReply[list[str]]:
        return NoReply([*state, value])

    def handle_cast(self, message: str, state: list[str]) -> NoReply[list[str]]:
        return NoReply([*state, message])

    def handle_call(self, request: str, from_: From, state: list[str]) -> Reply[list[str]]:
        return Reply(state, then=Continue("after the call"))


def refuse(_server: Server[Any]) -> Any:
    return Stop("cfg")


def ignore(_server: Server[Any]) -> Any:
    return IGNORE


async def expect_seconds(ref: Ref, seconds: float) -> None:
    assert await ref.call(seconds) == seconds


class Last(Server[Callable[[], object]]):
    """Does something when the system comes to its end, while those before it still run, and gives them their turn."""

    trap_exit = True

    def init(self, arg: Callable[[], object]) -> Callable[[], object]:
        return arg

    async def terminate(self, reason: object, state: Callable[[], object]) -> None:
        state()
        await trio.testing.wait_all_tasks_blocked()
