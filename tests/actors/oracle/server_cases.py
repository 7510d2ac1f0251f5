"""init, call, cast, reply, timeouts: what callers see."""

from typing import Any

import pytest
import trio

from batonpass.actors import CallTimeout, Exit, From, NoReply, Ref, Reply, Server, Stop, System
from tests.actors.oracle.lines import Raw, called, oracle, reason_in_elixir, started
from tests.actors.oracle.subjects import Subject, going_on, settled, subject
from tests.actors.servers import Counter, Scripted, Slow, Waiting, ignore, refuse


def raises(_server: Any) -> Any:
    raise RuntimeError("boom")


@oracle("init {:stop, :cfg}", "{:ret, {:error, :cfg}}")
async def _(system: System) -> Any:
    return "ret", await started(system.start(Scripted, refuse))


@oracle("init :ignore", "{:ret, :ignore}")
async def _(system: System) -> Any:
    return "ret", await started(system.start(Scripted, ignore))


@oracle("init raises", '{:error, {%RuntimeError{message: "boom"}, :stacktrace}}')
async def _(system: System) -> Any:
    return await started(system.start(Scripted, raises))


@oracle("handle_continue runs before any message", ":continued")
async def _(system: System) -> Any:
    ref = await system.start(Subject, going_on)
    heard = await ref.call(lambda server: list(server.heard))
    assert heard == ["continued", "message"]
    return heard[0]


@oracle("call timeout", "{:exit, {:timeout, :call}}")
async def _(system: System) -> Any:
    ref = await system.start(Slow)
    return await called(ref.call(150.0, timeout_s=20))


@oracle(
    "server survives late reply; caller mailbox after (OTP>=24 aliases => no garbage)",
    "{{:ret, 1}, true, []}",
)
async def _(system: System) -> Any:
    class Caller(Subject):
        async def handle_cast(self, message: Any, state: Any) -> None:
            try:
                await message.call(150.0, timeout_s=20)
            except CallTimeout:
                await trio.sleep(200)
                self.heard.append(await called(message.call(1)))

    heard: list[Any] = []
    callee = await system.start(Slow)
    caller = await system.start(Caller, lambda server: setattr(server, "heard", heard))
    caller.cast(callee)
    await trio.sleep(500)
    outcome, *garbage = heard
    return outcome, callee.alive, garbage


@oracle(
    "calling self from handle_call (caller sees)",
    "{:exit, {{:calling_self, {GenServer, :call, [#PID<>, :get, 5000]}}, :call}}",
)
async def _(system: System) -> Any:
    class Narcissus(Server[None]):
        async def handle_call(self, request: str, from_: From, state: None) -> Reply[None]:
            return Reply(await self.ref.call("get"))

    return await called((await system.start(Narcissus)).call("self"))


@oracle("server crashes during call", '{:exit, {{{RuntimeError, "boom"}, :stacktrace}, :call}}')
async def _(system: System) -> Any:
    with pytest.raises(Exit) as caught:
        await (await subject(system)).call(raises)
    error = caught.value.reason
    return "exit", ((Raw(f'{{{type(error).__name__}, "{error}"}}'), "stacktrace"), "call")


@oracle("server {:stop,:normal} without reply", "{:exit, {:normal, :call}}")
async def _(system: System) -> Any:
    return await called((await system.start(Counter, 0)).call("stop"))


@oracle("server {:stop,:normal,:bye,s}", "{:ret, :bye}")
async def _(system: System) -> Any:
    return await called((await system.start(Counter, 0)).call("stop with an answer"))


@oracle("bad return value", "{:exit, {{:bad_return_value, :nonsense}, :call}}")
async def _(system: System) -> Any:
    ref = await system.start(Scripted, lambda server: None)
    return await called(ref.call(lambda server, from_: "nonsense"))


@oracle("call dead pid", "{:exit, {:noproc, :call}}")
async def _(system: System) -> Any:
    ref = await system.start(Counter, 0)
    ref.kill()
    return await called(ref.call("get"))


@oracle("call unregistered name", "{:exit, {:noproc, :call}}")
async def _(system: System) -> Any:
    return await called(system.named("nobody").call("get"))


@oracle("cast unregistered name", "{:ret, :ok}")
async def _(system: System) -> Any:
    assert system.named("nobody").cast("x") is None  # type: ignore[func-returns-value]  # None is what Elixir's :ok is
    return "ret", "ok"


@oracle("cast dead pid", "{:ret, :ok}")
async def _(system: System) -> Any:
    ref = await system.start(Counter, 0)
    ref.kill()
    assert ref.cast("x") is None  # type: ignore[func-returns-value]  # None is what Elixir's :ok is
    return "ret", "ok"


@oracle("5 casts to a busy server took ms (cast never blocks)", "0")
async def _(system: System) -> Any:
    class Busy(Server[None]):
        async def handle_cast(self, message: float, state: None) -> None:
            await trio.sleep(message)

    ref = await system.start(Busy)
    ref.cast(0.08)
    await settled()
    began_s = trio.current_time()
    for _ in range(5):
        ref.cast(0)
    return round((trio.current_time() - began_s) * 1000)


def answer_and_time_out(_server: Subject) -> Any:
    return Reply("ok", timeout_s=0.03)


@oracle("{:reply,_,_,30} then silence -> handle_info", ":got_timeout")
async def _(system: System) -> Any:
    heard: list[Any] = []
    ref = await subject(system, heard=heard)
    await ref.call(answer_and_time_out)
    await trio.sleep(0.2)
    return heard[0]


@oracle("any message cancels the timeout", ":none")
async def _(system: System) -> Any:
    heard: list[Any] = []
    ref = await subject(system, heard=heard)
    await ref.call(answer_and_time_out)
    await ref.call(lambda server: "get")
    await trio.sleep(0.1)
    return heard[0] if heard else "none"


# stop


async def stopped(ref: Ref, reason: str = "normal") -> Any:
    """The outcome of stopping it."""
    try:
        await ref.stop(reason)
    except Exit as error:
        return "exit", error.reason
    return "ok"


@oracle("stop(pid, :boom) returns", ":ok")
async def _(system: System) -> Any:
    return await stopped(await subject(system), "boom")


@oracle("stop of a dead pid", "{:exit, :noproc}")
async def _(system: System) -> Any:
    ref = await subject(system)
    ref.kill()
    return await stopped(ref)


@oracle("stop, but it ends for another reason", "{:exit, :worse}")
async def _(system: System) -> Any:
    class Unclean(Subject):
        def terminate(self, reason: object, state: Any) -> None:
            raise RuntimeError("worse")

    kind, reason = await stopped(await system.start(Unclean))
    assert isinstance(reason, RuntimeError)
    return kind, str(reason)


@oracle("stop, but it crashes before it gets to that", "{:exit, :worse}")
async def _(system: System) -> Any:
    class Busy(Server[None]):
        async def handle_cast(self, message: str, state: None) -> Stop[None]:
            await trio.sleep(1)
            return Stop(message)

    ref = await system.start(Busy)
    ref.cast("worse")
    await settled()
    return await stopped(ref)


@oracle("stop of self", "{:exit, :calling_self}")
async def _(system: System) -> Any:
    class Narcissus(Server[None]):
        async def handle_call(self, request: str, from_: From, state: None) -> Reply[None]:
            return Reply(await stopped(self.ref))

    return await (await system.start(Narcissus)).call("stop yourself")


# replies


@oracle("replied twice, the caller gets", "1")
async def _(system: System) -> Any:
    def twice(server: Subject) -> Any:
        server.caller.reply(1)
        server.caller.reply(2)
        return NoReply()

    return await (await subject(system)).call(twice)


@oracle("GenServer.reply and {:reply, ...}, the caller gets", "1")
async def _(system: System) -> Any:
    def reply_and_reply(server: Subject) -> Any:
        server.caller.reply(1)
        return Reply(2)

    return await (await subject(system)).call(reply_and_reply)


@oracle("server that kept From dies", "{:exit, :boom}")
async def _(system: System) -> Any:
    ref = await system.start(Waiting)
    outcome: list[Any] = []
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def call() -> None:
            outcome.append(await called(ref.call("keep")))

        await settled()
        ref.exit("boom")
    (kind, (reason, _)) = outcome[0]
    return kind, reason_in_elixir(reason)


@oracle("reply to a caller that is gone", "{false, :ok}")
async def _(system: System) -> Any:
    kept: list[From] = []

    def keep(server: Subject) -> Any:
        kept.append(server.caller)
        return NoReply()

    assert await called((await subject(system)).call(keep, timeout_s=20)) == ("exit", ("timeout", "call"))
    alive = kept[0].waiting
    assert kept[0].reply("late") is None  # type: ignore[func-returns-value]  # None is what Elixir's :ok is
    return alive, "ok"
