"""State that others look at and change with functions (Elixir's Agent).

    cache = await system.start(Agent, dict)          # or ActorSpec("cache", Agent, dict, name="cache")
    await Agent.update(cache, lambda state: state | {"anna": 1})
    assert await Agent.get(cache, lambda state: state["anna"]) == 1

A function runs in the agent, one at a time, so it sees the state between two others, which wait as long as it takes.
It may be `async def`, and then others wait for it too, but not the node. One that raises ends the agent, and its caller
gets `Exit` with the reason; its supervisor starts it again with a new state. Functions do not travel, so an agent is
for its own system; where requests have names, write a `Server`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, final

from batonpass.actors.base.unrun_coroutine import UnrunCoroutine
from batonpass.actors.core.exits import BadReturnValue
from batonpass.actors.core.named import Named
from batonpass.actors.core.ref import DEFAULT_TIMEOUT_S, Ref
from batonpass.actors.core.server import NoReply, Reply, Server

if TYPE_CHECKING:
    from batonpass.actors.core.ref import From

__all__ = ["Agent", "AgentFunction"]

AgentFunction: TypeAlias = Callable[..., Any]
"""Given the state, and the arguments that came with it; plain or `async def`."""


class _Verb(Enum):
    GET = "get"
    UPDATE = "update"
    BOTH = "get and update"


@final
@dataclass(frozen=True, slots=True)
class _AgentRequest:
    """What a function's result is to an agent."""

    verb: _Verb
    function: AgentFunction
    args: tuple[Any, ...]


class Agent(Server[Any]):
    """See the head of the module. Started with a function that makes the first state.

    All of the client functions raise what `Ref.call` raises.
    """

    @staticmethod
    async def get(
        agent: Ref | Named, function: AgentFunction, *args: Any, timeout_s: float | None = DEFAULT_TIMEOUT_S
    ) -> Any:
        """What `function(state, *args)` returns."""
        return await agent.call(_AgentRequest(_Verb.GET, function, args), timeout_s)

    @staticmethod
    async def update(
        agent: Ref | Named, function: AgentFunction, *args: Any, timeout_s: float | None = DEFAULT_TIMEOUT_S
    ) -> None:
        """Make `function(state, *args)` the state, and wait until it is."""
        await agent.call(_AgentRequest(_Verb.UPDATE, function, args), timeout_s)

    @staticmethod
    async def get_and_update(
        agent: Ref | Named, function: AgentFunction, *args: Any, timeout_s: float | None = DEFAULT_TIMEOUT_S
    ) -> Any:
        """`function(state, *args)` returns a pair: the answer, and the next state."""
        return await agent.call(_AgentRequest(_Verb.BOTH, function, args), timeout_s)

    @staticmethod
    def cast(agent: Ref | Named, function: AgentFunction, *args: Any) -> None:
        """`update`, without waiting; on the terms of `Ref.cast`."""
        agent.cast(_AgentRequest(_Verb.UPDATE, function, args))

    # Callbacks

    def init(self, arg: Callable[[], Any | Awaitable[Any]]) -> Any:
        """Make the first state."""
        if not callable(arg):
            raise TypeError(f"an agent is started with a function that makes its first state, not with {arg!r}")
        return arg()

    def handle_call(self, request: Any, from_: From, state: Any) -> Any:
        """Run a function, and answer."""
        if type(request) is not _AgentRequest:
            return super().handle_call(request, from_, state)
        result = request.function(state, *request.args)
        if inspect.iscoroutine(result):
            return self._later(request.verb, UnrunCoroutine(result))
        return self._answer(request.verb, result)

    async def _later(self, verb: _Verb, unrun: UnrunCoroutine) -> Reply[Any]:
        return self._answer(verb, await unrun.coroutine)

    def _answer(self, verb: _Verb, result: Any) -> Reply[Any]:
        if verb is _Verb.GET:
            return Reply(result)
        if verb is _Verb.UPDATE:
            return Reply(None, result)
        if type(result) is not tuple or len(result) != 2:
            raise BadReturnValue(str(self.ref), "the function of get_and_update", result)
        return Reply(*result)

    def handle_cast(self, message: Any, state: Any) -> Any:
        """Run a function."""
        if type(message) is not _AgentRequest:
            return super().handle_cast(message, state)
        result = message.function(state, *message.args)
        return self._cast_later(UnrunCoroutine(result)) if inspect.iscoroutine(result) else NoReply(result)

    async def _cast_later(self, unrun: UnrunCoroutine) -> NoReply[Any]:
        return NoReply(await unrun.coroutine)
