"""How the process of a server starts: its `init`, which may be `async def`, and what ends a start that is not over.

What `init` returns is given its meaning by `actors.core.server_process`, like what any callback returns.

Every actor has a context of its own (`contextvars`), as every trio task has: it begins as a copy of that of its
starter. What a callback sets there is seen by the later callbacks of the same life, and by no other.
"""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Mapping
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Self, final

import trio

from batonpass.actors.base.interrupts import interruptibly, protected
from batonpass.actors.core.checks import need_hashable
from batonpass.actors.core.exits import KILLED, SHUTDOWN, NoProc, Reason, StartError, reason_of, shown
from batonpass.actors.core.log_metadata import log_metadata
from batonpass.actors.core.process import ALIVE_STILL, KILL_GRACE_S, Process
from batonpass.actors.core.ref import current_process
from batonpass.actors.core.server import Server
from batonpass.actors.core.system_messages import ControlledProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

    from batonpass.actors.core.system import System


@final
class Starting:
    """An `async def init` at work: what waits for it waits for `over`, and raises `error` if there is one then."""

    __slots__ = ("error", "over")

    def __init__(self) -> None:
        self.over = trio.Event()
        self.error: StartError | None = None


def _own_context() -> Context:
    """A copy of the present context, for an actor that is being started in it."""
    context = copy_context()
    if current_process.get() is not None:
        context.run(current_process.set, None)
    return context


def _made_by(factory: Callable[[], Server[Any]]) -> Server[Any]:
    server: Any = factory()
    if not isinstance(server, Server):
        raise TypeError(f"it must make a Server, and made {shown(server)}")
    return server.behaviour()


def _need_start(factory: Any, name: Any) -> None:
    """Raises `TypeError` for what makes no server, and for what is no name."""
    if not callable(factory):
        hint = f"; write {type(factory).__name__}, the class itself" if isinstance(factory, Server) else ""
        raise TypeError(f"an actor is started with what makes a Server for each life, not with {shown(factory)}{hint}")
    need_hashable("the name of an actor", name)


class StartingProcess(ControlledProcess):
    """A server's process until its `init` is over; see the head of the module."""

    __slots__ = ("_handling", "_starting")

    @abstractmethod
    def __init__(self, system: System, server: Server[Any], label: str, parent: Process | None) -> None:
        super().__init__(system, label, parent)
        self._handling = False
        self._starting: Starting | None = None  # only while an async init is at work

    @abstractmethod
    def settle_init(self, result: Any) -> None:
        """Do what `init` returned. Raises `StartError`, `Ignored`."""

    @classmethod
    @protected
    def begin(
        cls,
        system: System,
        factory: Callable[[], Server[Any]],
        arg: Any,
        name: Hashable,
        parent: Process | None,
        starter: Process | None = None,
    ) -> tuple[Self, Any]:
        """Make the process and call `init`; whatever that returned comes back for `settle_init`.

        It ends with its `parent`, if it has one, or is linked to its `starter`, if that one is linked to it.

        Raises `StartError` (`AlreadyStarted` for a name that is taken), `TypeError` for a name that is not hashable,
        and for a `factory` that cannot be called.
        """
        system.loop.require(system)
        if type(name) is not str or not callable(factory):
            _need_start(factory, name)
        label = getattr(factory, "__name__", None) or type(factory).__name__
        label = label if name is None else f"{label} {name!r}"
        if system.closing:
            raise StartError(label, SHUTDOWN)
        if starter is not None and not starter.alive:
            raise StartError(label, NoProc(str(starter.ref)))
        try:
            context = _own_context()
            server = context.run(interruptibly, _made_by, factory)
        except Exception as error:
            raise StartError(label, error) from error
        process = cls(system, server, label, parent)
        process.context = context
        process._handling = True
        try:
            if name is not None:
                system.registry.claim(name, process.ref)
        except Exception as error:
            process._fail_start(error)
            raise
        if starter is not None:
            process.parent = starter
            process.link(starter.ref)
        try:
            result = context.run(interruptibly, server.init, arg)
        except Exception as error:
            process._fail_start(error)
            raise StartError(process.label, error) from error
        except BaseException:
            process.abandon()
            raise
        return process, result

    @classmethod
    @protected
    def start_nowait(
        cls,
        system: System,
        factory: Callable[[], Server[Any]],
        arg: Any,
        name: Hashable,
        parent: Process | None,
        starter: Process | None = None,
    ) -> Self:
        """Start as far as that goes without waiting: an `async def init` runs on in its own task; see `wait_started`.

        Raises what `begin` and `settle_init` raise.
        """
        process, result = cls.begin(system, factory, arg, name, parent, starter)
        if inspect.iscoroutine(result):
            process._starting = starting = Starting()
            process.context.run(system.spawn, process, process._run_init, result, starting)
        else:
            process.finish_init(result)
        return process

    async def _run_init(self, coroutine: Coroutine[Any, Any, Any], starting: Starting) -> None:
        """Run an `async def init` in its own task."""
        current_process.set(self)
        self.system.debug.began(self, "init", coroutine)
        try:
            result = await self._await_init(coroutine)
            self.keep_context()
            self.settle_init(result)
        except StartError as error:
            starting.error = error
        except BaseException:
            starting.error = StartError(self.label, KILLED)
            raise
        finally:
            self.scope = None
            self.system.debug.running.pop(self, None)
            starting.over.set()

    def log_metadata(self) -> Mapping[str, Any]:
        """What its callbacks have set for its log lines."""
        return log_metadata(self.context)

    def keep_context(self) -> None:
        """An `async def` callback is over: what its task, which had a copy, has set is what the next one will see."""
        current_process.set(None)
        self.context = copy_context()

    async def _await_init(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            # Shielded: only `exit` and `kill` may end it; what waits for it sees to that.
            with trio.CancelScope(shield=True) as self.scope:
                if self.pending_exit is ALIVE_STILL:
                    return await coroutine
                coroutine.close()
        except Exception as error:
            reason = reason_of(error)
            self._fail_start(reason)
            raise StartError(self.label, reason) from error
        finally:
            self.scope = None
        return None

    async def wait_started(self, timeout_s: float | None) -> None:
        """Wait until a start that could not be finished at once is over. Raises `StartError`, and `Ignored`.

        After `timeout_s`, if the waiting task is cancelled or the system closes, the start is given up and this ends.
        """
        starting, self._starting = self._starting, None
        if starting is None:
            return
        try:
            given_up = await self.start_over(starting.over, timeout_s)
        except BaseException:
            await self._give_up_start(KILLED)
            raise
        if given_up is not None:
            await self._give_up_start(given_up)
            raise StartError(self.label, given_up)
        if starting.error is not None:
            raise starting.error

    async def _give_up_start(self, reason: Reason) -> None:
        # As in OTP this is no reason for the starter to end, so the link must not say so.
        if self.parent is not None:
            self.parent.unlink(self.ref)
        self._end(reason)
        with trio.CancelScope(shield=True, deadline=trio.current_time() + KILL_GRACE_S):
            await self.wait_dead()

    @protected
    def finish_init(self, result: Any) -> None:
        """`settle_init`, after which, if it is interrupted, there is no such actor."""
        try:
            interruptibly(self.settle_init, result)
        except Exception:
            raise
        except BaseException:
            self.abandon()
            raise

    def _fail_start(self, reason: Reason) -> None:
        # Quietly: the starter is told by StartError, and a log line would say the same twice.
        if self.alive:
            self._die(reason, quiet=True)
