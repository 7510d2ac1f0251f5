"""The actors that the cases are played with, and how to watch what becomes of them."""

from collections.abc import Callable
from inspect import iscoroutine
from typing import Any

import trio
import trio.testing

from batonpass.actors import TIMEOUT, Continue, ExitSignal, From, NoReply, Ok, Ref, Reply, Server, Stop, System

Work = Callable[["Subject"], Any]


class Subject(Server[Any]):
    """Does what it is asked to, and notes on `heard` what happens to it.

    Started with a function of itself, which is its `init`; a call and a cast carry a function too. Its state is what
    `init` returned.
    """

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def init(self, arg: Work | None) -> Any:
        return None if arg is None else arg(self)

    def handle_call(self, request: Work, from_: From, state: Any) -> Any:
        self.caller, self.latest = from_, state
        result = request(self)
        return result if isinstance(result, Reply | NoReply | Stop) else Reply(result)

    def state(self) -> Any:
        """The state, in a call."""
        return self.latest

    def handle_cast(self, message: Work, state: Any) -> Any:
        result = message(self)
        return result if isinstance(result, Stop) or iscoroutine(result) else None

    def handle_continue(self, value: Any, state: Any) -> None:
        self.heard.append(value)

    def handle_info(self, message: Any, state: Any) -> None:
        match message:
            case ExitSignal(reason, sender):
                self.heard.append(("info", ("EXIT", sender, reason)))
            case _ if message is TIMEOUT:
                self.heard.append("got_timeout")
            case _:
                self.heard.append(("info", message))

    def terminate(self, reason: object, state: Any) -> None:
        self.heard.append(("terminated", reason))


async def subject(
    system: System, *, trap: bool = False, heard: list[Any] | None = None, link: Ref | None = None, state: Any = None
) -> Ref:
    """Start one that traps exits or not, and notes on `heard` if that is given."""

    def init(server: Subject) -> Any:
        server.trap_exit = trap
        server.heard = server.heard if heard is None else heard
        return state

    return await system.start(Subject, init, link=link)


def going_on(server: Subject) -> Any:
    """An `init` that goes on with `"continued"` while a message waits already."""
    server.ref.cast(lambda server: server.heard.append("message"))
    return Ok(None, then=Continue("continued"))


async def settled() -> None:
    """Let everything happen that can happen without time passing."""
    await trio.testing.wait_all_tasks_blocked()


async def end_of(ref: Ref, act: Callable[[], object]) -> Any:
    """Do something; the exit reason of the actor if that ends it, else `"alive"`."""
    act()
    await settled()
    return "alive" if ref.alive else ref.process.reason


async def busy(server: Subject) -> Any:
    """A callback that takes a second."""
    await trio.sleep(1)
    return Reply("late")
