"""Work for tasks, and actors that own tasks."""

from collections.abc import Callable
from typing import Any

import trio

from batonpass.actors import Exit, From, Reply, Server, TaskError


async def after(delay_s: float, value: Any = None) -> Any:
    await trio.sleep(delay_s)
    if isinstance(value, Exception):
        raise value
    return value


class Cleaning:
    """Work that takes `takes_s` to clean up when it is cancelled; `log` has what happened when."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.log: list[tuple[str, float]] = []

    async def __call__(self) -> None:
        try:
            self.log.append(("began", trio.current_time()))
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self.takes_s)
            self.log.append(("ended", trio.current_time()))

    @property
    def ended(self) -> bool:
        return [what for what, _ in self.log] == ["began", "ended"]


class Owner(Server[list[Any]]):
    """Does what it is told, in its callbacks, with itself; keeps every info message."""

    def init(self, arg: None) -> list[Any]:
        return []

    def handle_info(self, message: Any, state: list[Any]) -> None:
        state.append(message)

    def handle_cast(self, message: Callable[[Server[Any]], Any], state: list[Any]) -> Any:
        return message(self)

    async def handle_call(self, request: Any, from_: From, state: list[Any]) -> Reply[list[Any]]:
        if request == "what came?":
            return Reply(list(state))
        try:
            return Reply(await request(self))
        except (Exit, TaskError) as error:
            return Reply(error)


class TrappingOwner(Owner):
    """An owner that is told when a task has crashed, instead of crashing itself."""

    trap_exit = True
