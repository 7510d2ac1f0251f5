"""Exit signals and monitors, without links."""

from typing import Any

from batonpass.actors import Down, Server, System
from tests.actors.oracle.lines import oracle
from tests.actors.oracle.subjects import Subject, end_of, settled, subject
from tests.actors.servers import Recorder


class Monitoring(Recorder):
    """Monitors every ref it is cast, and keeps the reasons of the `Down`s."""

    def handle_cast(self, message: Any, state: list[Any]) -> None:
        self.monitor(message)

    def handle_info(self, message: Any, state: list[Any]) -> None:
        assert isinstance(message, Down)
        state.append(message.reason)


@oracle("exit(pid,:normal) from another process: still alive?", "true")
async def _(system: System) -> Any:
    ref, other = await subject(system), await subject(system)
    await other.call(lambda server: server.exit(ref, "normal"))
    return ref.alive


@oracle("exit(pid,:boom) not trapping", "{:DOWN, :boom}")
async def _(system: System) -> Any:
    ref, watcher = await subject(system), await system.start(Monitoring)
    watcher.cast(ref)
    await settled()
    ref.exit("boom")
    (reason,) = await watcher.call("get")
    return "DOWN", reason


@oracle("terminate called? (not trapping)", "[]")
async def _(system: System) -> Any:
    heard: list[Any] = []
    ref = await subject(system, heard=heard)
    ref.exit("boom")
    await settled()
    return heard


@oracle(
    "trapping: exit(:shutdown) from NON-parent arrives as handle_info {:EXIT,..}",
    "{true, [info: {:EXIT, #PID<0.96.0>, :shutdown}]}",
)
async def _(system: System) -> Any:
    heard: list[Any] = []
    ref, other = await subject(system, trap=True, heard=heard), await subject(system)
    await other.call(lambda server: server.exit(ref, "shutdown"))
    await settled()
    return ref.alive, heard


@oracle("kill is untrappable (DOWN :killed, no terminate)", "[DOWN: :killed]")
async def _(system: System) -> Any:
    heard: list[Any] = []
    ref, watcher = await subject(system, trap=True, heard=heard), await system.start(Monitoring)
    watcher.cast(ref)
    await settled()
    ref.exit("kill")
    return heard + [("DOWN", reason) for reason in await watcher.call("get")]


@oracle("trapping: exit(:shutdown) from PARENT -> terminate", "{:terminated, :shutdown}")
async def _(system: System) -> Any:
    heard: list[Any] = []
    parent = await subject(system, trap=True)
    ref = await subject(system, trap=True, heard=heard, link=parent)
    await parent.call(lambda server: server.exit(ref, "shutdown"))
    await settled()
    return heard[0]


@oracle("linked trapping parent receives", "{:EXIT, :shutdown}")
async def _(system: System) -> Any:
    heard: list[Any] = []
    parent = await subject(system, trap=True, heard=heard)
    ref = await subject(system, trap=True, link=parent)
    await parent.call(lambda server: server.exit(ref, "shutdown"))
    await settled()
    ((_, (kind, sender, reason)),) = heard
    assert sender is ref
    return kind, reason


@oracle("monitor of an already dead pid", "{:DOWN, :noproc}")
async def _(system: System) -> Any:
    ref, watcher = await subject(system), await system.start(Monitoring)
    ref.kill()
    watcher.cast(ref)
    await settled()
    (reason,) = await watcher.call("get")
    return "DOWN", reason


@oracle("monitor of self", ":none")
async def _(system: System) -> Any:
    heard: list[Any] = []
    ref = await subject(system, heard=heard)
    await ref.call(lambda server: server.monitor(server.ref))
    await settled()
    return heard[0] if heard else "none"


@oracle("monitored twice, demonitored once", "[:boom]")
async def _(system: System) -> Any:
    class Fickle(Monitoring):
        def handle_cast(self, message: Any, state: list[Any]) -> None:
            first = self.monitor(message)
            self.monitor(message)
            self.demonitor(first)

    ref, watcher = await subject(system), await system.start(Fickle)
    watcher.cast(ref)
    await settled()
    ref.exit("boom")
    return await watcher.call("get")


# to oneself, and trap_exit at run time


@oracle("exit(self(), :normal) not trapping", ":normal")
async def _(system: System) -> Any:
    ref = await subject(system)
    return await end_of(ref, lambda: ref.cast(lambda server: server.exit(server.ref, "normal")))


@oracle("exit(self(), :normal) trapping", "{:alive, [a: {:EXIT, :a, :normal}]}")
async def _(system: System) -> Any:
    heard: list[Any] = []
    ref = await subject(system, trap=True, heard=heard)
    outcome = await end_of(ref, lambda: ref.cast(lambda server: server.exit(server.ref, "normal")))
    ((_, (kind, sender, reason)),) = heard
    assert sender is ref
    return outcome, [("a", (kind, "a", reason))]


@oracle("exit(pid, :normal) from another, trapping", "{:alive, 1}")
async def _(system: System) -> Any:
    heard: list[Any] = []
    ref = await subject(system, trap=True, heard=heard)
    return await end_of(ref, lambda: ref.exit("normal")), len(heard)


@oracle("exit(self(), :kill) trapping", ":killed")
async def _(system: System) -> Any:
    ref = await subject(system, trap=True)
    return await end_of(ref, lambda: ref.cast(lambda server: server.exit(server.ref, "kill")))


def set_trap(value: bool) -> Any:
    """A request: set the flag."""

    def act(server: Server[Any]) -> None:
        server.trap_exit = value

    return act


@oracle("trap_exit set at run time, exit(:boom)", "{:alive, 1}")
async def _(system: System) -> Any:
    heard: list[Any] = []
    ref = await subject(system, heard=heard)
    await ref.call(set_trap(True))
    return await end_of(ref, lambda: ref.exit("boom")), len(heard)


@oracle("trap_exit taken back at run time, exit(:boom)", ":boom")
async def _(system: System) -> Any:
    ref = await system.start(Subject, set_trap(True))
    await ref.call(set_trap(False))
    return await end_of(ref, lambda: ref.exit("boom"))
