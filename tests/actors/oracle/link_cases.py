"""Links, and actors started with one."""

from collections.abc import Callable
from typing import Any

from batonpass.actors import ExitSignal, NoProc, Ref, StartError, Stop, System
from tests.actors.oracle.lines import Raw, inspect, oracle, reason_in_elixir, started
from tests.actors.oracle.subjects import Subject, busy, end_of, settled, subject
from tests.actors.servers import Counter, ignore, refuse


def exiting(reason: Any) -> Callable[[Subject], Any]:
    """A cast: end yourself, as a process whose function calls `exit(reason)`."""
    return lambda server: Stop(reason)


async def two(system: System, *, trap: bool = False) -> tuple[Ref, Ref, list[Any]]:
    """a, and b which is linked to it and traps exits or not; and what b hears."""
    heard: list[Any] = []
    a, b = await subject(system), await subject(system, trap=trap, heard=heard)
    await a.call(lambda server: server.link(b))
    return a, b, heard


def told(who: str, heard: list[Any], names: dict[Ref, str]) -> list[Any]:
    """The exit signals it heard, as the recording shows them: `b: {:EXIT, :a, reason}`."""
    return [(who, (kind, names[sender], reason)) for _, (kind, sender, reason) in heard]


REASONS: list[tuple[Any, str, str]] = [
    ("boom", ":boom", "{:alive, [b: {:EXIT, :a, :boom}]}"),
    ("shutdown", ":shutdown", "{:alive, [b: {:EXIT, :a, :shutdown}]}"),
    (("shutdown", "x"), "{:shutdown, :x}", "{:alive, [b: {:EXIT, :a, {:shutdown, :x}}]}"),
    ("normal", ":alive", "{:alive, [b: {:EXIT, :a, :normal}]}"),
    ("kill", ":kill", "{:alive, [b: {:EXIT, :a, :kill}]}"),
]


def _every_reason(reason: Any, not_trapping: str, trapping: str) -> None:
    @oracle(f"a exits {inspect(reason)}, linked b not trapping ends with", not_trapping)
    async def _(system: System) -> Any:
        a, b, _ = await two(system)
        return await end_of(b, lambda: a.cast(exiting(reason)))

    @oracle(f"a exits {inspect(reason)}, linked b trapping", trapping)
    async def _(system: System) -> Any:
        a, b, heard = await two(system, trap=True)
        return await end_of(b, lambda: a.cast(exiting(reason))), told("b", heard, {a: "a"})


for row in REASONS:
    _every_reason(*row)


@oracle("a is killed by exit(a, :kill), linked b not trapping ends with", ":killed")
async def _(system: System) -> Any:
    a, b, _ = await two(system)
    return await end_of(b, lambda: a.exit("kill"))


@oracle("a is killed by exit(a, :kill), linked b trapping", "[b: {:EXIT, :a, :killed}]")
async def _(system: System) -> Any:
    a, b, heard = await two(system, trap=True)
    await end_of(b, lambda: a.exit("kill"))
    return told("b", heard, {a: "a"})


@oracle("links are symmetric: b exits :boom, a ends with", ":boom")
async def _(system: System) -> Any:
    a, b, _ = await two(system)
    return await end_of(a, lambda: b.cast(exiting("boom")))


@oracle("a-b-c in a chain, exit(a, :boom), c ends with", ":boom")
async def _(system: System) -> Any:
    a, b, _ = await two(system)
    c = await subject(system)
    await b.call(lambda server: server.link(c))
    return await end_of(c, lambda: a.exit("boom"))


@oracle("linked three times, EXIT messages", "1")
async def _(system: System) -> Any:
    a, b, heard = await two(system, trap=True)
    await a.call(lambda server: server.link(b))
    await b.call(lambda server: server.link(a))
    await end_of(b, lambda: a.cast(exiting("boom")))
    return len(heard)


@oracle("linked twice, unlinked once by the other, a exits :boom, b", ":alive")
async def _(system: System) -> Any:
    a, b, _ = await two(system)
    await a.call(lambda server: server.link(b))
    await b.call(lambda server: server.unlink(a))
    return await end_of(b, lambda: a.exit("boom"))


@oracle("unlinked, then it exits :boom, messages", "[]")
async def _(system: System) -> Any:
    a, b, heard = await two(system, trap=True)
    await b.call(lambda server: server.unlink(a))
    await end_of(b, lambda: a.exit("boom"))
    return heard


@oracle("unlinked by the other, then it exits :boom, messages", "[]")
async def _(system: System) -> Any:
    a, b, heard = await two(system, trap=True)
    await a.call(lambda server: server.unlink(b))
    await end_of(b, lambda: a.exit("boom"))
    return heard


@oracle("exit(pid, :normal) to a linked process, not trapping", "{true, []}")
async def _(system: System) -> Any:
    heard: list[Any] = []
    a, b = await subject(system, trap=True, heard=heard), await subject(system)
    await a.call(lambda server: (server.link(b), server.exit(b, "normal"))[1])
    await settled()
    return b.alive, heard


# the dead, and oneself


async def dead_one(system: System) -> Ref:
    ref = await subject(system)
    ref.kill()
    return ref


@oracle("link to a dead process, trapping", "{true, [a: {:EXIT, :dead, :noproc}]}")
async def _(system: System) -> Any:
    heard: list[Any] = []
    dead, a = await dead_one(system), await subject(system, trap=True, heard=heard)
    await a.call(lambda server: server.link(dead))
    await settled()
    return a.alive, told("a", heard, {dead: "dead"})


def link_and_catch(dead: Ref) -> Callable[[Subject], Any]:
    """A request: link, and answer with what that raised."""

    def act(server: Subject) -> Any:
        try:
            server.link(dead)
        except NoProc as error:
            return error.reason
        return "nothing raised"

    return act


@oracle(
    "link to a dead process, not trapping, what link does",
    "{:raised, %ErlangError{original: :noproc, reason: nil}}",
)
async def _(system: System) -> Any:
    a, dead = await subject(system), await dead_one(system)
    raised = await a.call(link_and_catch(dead))
    return "raised", Raw(f"%ErlangError{{original: {inspect(raised)}, reason: nil}}")


@oracle("link to a dead process, not trapping, alive after catching that", "true")
async def _(system: System) -> Any:
    a, dead = await subject(system), await dead_one(system)
    await a.call(link_and_catch(dead))
    return a.alive


@oracle("link to a dead process, not trapping, ends with", "{:noproc, :stacktrace}")
async def _(system: System) -> Any:
    a, dead = await subject(system), await dead_one(system)
    return reason_in_elixir(await end_of(a, lambda: a.cast(lambda server: server.link(dead))))


@oracle("unlink of a dead process", "true")
async def _(system: System) -> Any:
    a, dead = await subject(system), await dead_one(system)
    return await a.call(lambda server: server.unlink(dead)) is None


@oracle("link to self", "true")
async def _(system: System) -> Any:
    a = await subject(system)
    return await a.call(lambda server: server.link(server.ref)) is None


@oracle("alive after link to self", "true")
async def _(system: System) -> Any:
    a = await subject(system)
    await a.call(lambda server: server.link(server.ref))
    return a.alive


@oracle("unlink after the EXIT message arrived, which is still there", "{:EXIT, :b, :boom}")
async def _(system: System) -> Any:
    a, b = await subject(system, trap=True), await subject(system)
    seen: list[Any] = []

    def look_away(server: Subject) -> None:
        server.link(b)
        b.exit("boom")
        seen.extend(entry[1] for entry in server.ref.process.mailbox)
        server.unlink(b)
        assert not server.ref.process.mailbox, "here, unlink does what OTP's manual tells to do after it"

    await a.call(look_away)
    assert seen == [ExitSignal("boom", b)]
    return "EXIT", "b", seen[0].reason


# a server and its parent


async def family(system: System, *, trap: bool) -> tuple[Ref, Ref, list[Any]]:
    """A parent, and a server started with `start_link`; and what the server hears."""
    heard: list[Any] = []
    parent = await subject(system)
    return parent, await subject(system, trap=trap, heard=heard, link=parent), heard


PARENTS: list[tuple[str, str, str]] = [
    ("normal", "{:normal, [terminated: :normal]}", "{:alive, []}"),
    ("shutdown", "{:shutdown, [terminated: :shutdown]}", "{:shutdown, []}"),
    ("boom", "{:boom, [terminated: :boom]}", "{:boom, []}"),
]


def _every_parent(reason: str, trapping: str, not_trapping: str) -> None:
    @oracle(f"parent exits {inspect(reason)}, linked server trapping", trapping)
    async def _(system: System) -> Any:
        parent, server, heard = await family(system, trap=True)
        return await end_of(server, lambda: parent.cast(exiting(reason))), heard

    @oracle(f"parent exits {inspect(reason)}, linked server not trapping", not_trapping)
    async def _(system: System) -> Any:
        parent, server, heard = await family(system, trap=False)
        return await end_of(server, lambda: parent.cast(exiting(reason))), heard


for parent_row in PARENTS:
    _every_parent(*parent_row)


@oracle("unlinked parent sends exit(:boom), trapping", "{:boom, [terminated: :boom]}")
async def _(system: System) -> Any:
    parent, ref, heard = await family(system, trap=True)
    await parent.call(lambda server: (server.unlink(ref), server.exit(ref, "boom"))[1])
    await settled()
    return ref.process.reason, heard


@oracle("parent sends exit(:normal), trapping", "{:normal, [terminated: :normal]}")
async def _(system: System) -> Any:
    parent, ref, heard = await family(system, trap=True)
    await parent.call(lambda server: server.exit(ref, "normal"))
    await settled()
    return ref.process.reason, heard


@oracle("parent sends exit(:normal), not trapping", "{:alive, []}")
async def _(system: System) -> Any:
    parent, ref, heard = await family(system, trap=False)
    return await end_of(ref, lambda: parent.cast(lambda server: server.exit(ref, "normal"))), heard


@oracle("linked non-parent exits :boom, server trapping", "{:alive, [info: {:EXIT, :b, :boom}]}")
async def _(system: System) -> Any:
    _, ref, heard = await family(system, trap=True)
    b = await subject(system)
    await ref.call(lambda server: server.link(b))
    return await end_of(ref, lambda: b.exit("boom")), told("info", heard, {b: "b"})


@oracle("linked exits :boom, server not trapping, terminate not called", "{:boom, []}")
async def _(system: System) -> Any:
    b, ref, heard = await two(system)
    return await end_of(ref, lambda: b.exit("boom")), heard


def fails(_server: Any) -> Any:
    raise RuntimeError("boom")


@oracle("server raises, linked b ends with", '{%RuntimeError{message: "boom"}, :stacktrace}')
async def _(system: System) -> Any:
    ref, b, _ = await two(system)
    return reason_in_elixir(await end_of(b, lambda: ref.cast(fails)))


@oracle("server stopped with :boom, linked b ends with", ":boom")
async def _(system: System) -> Any:
    ref, b, _ = await two(system)
    await ref.stop("boom")
    return b.process.reason


@oracle("server stopped normally, linked b", ":alive")
async def _(system: System) -> Any:
    ref, b, _ = await two(system)
    await ref.stop()
    return await end_of(b, lambda: None)


# start_link


async def start_link(system: System, init: Any, *, trap: bool) -> tuple[Ref, Any, list[Any]]:
    """A starter, the outcome of its `start_link`, and the reasons of the exit signals it got."""
    heard: list[Any] = []
    starter = await subject(system, trap=trap, heard=heard)
    outcome: list[Any] = []

    async def start(server: Subject) -> None:
        outcome.append(await started(server.start_link(Subject, init)))

    starter.cast(start)
    await settled()
    if not starter.alive:
        return starter, ("died", reason_in_elixir(starter.process.reason)), heard
    return starter, outcome[0], [(kind, reason_in_elixir(reason)) for _, (kind, _, reason) in heard]


INITS: list[tuple[Any, str, str, str]] = [
    (refuse, "{:stop, :cfg}", "{:died, :cfg}", "{{:error, :cfg}, [EXIT: :cfg]}"),
    (
        fails,
        "raise",
        '{:died, {%RuntimeError{message: "boom"}, :stacktrace}}',
        '{{:error, {%RuntimeError{message: "boom"}, :stacktrace}},'
        ' [EXIT: {%RuntimeError{message: "boom"}, :stacktrace}]}',
    ),
    (ignore, ":ignore", "{:alive, :ignore}", "{:ignore, [EXIT: :normal]}"),
    (
        lambda server: Stop("normal"),
        "{:stop, :normal}",
        "{:alive, {:error, :normal}}",
        "{{:error, :normal}, [EXIT: :normal]}",
    ),
]


def _every_init(init: Any, name: str, not_trapping: str, trapping: str) -> None:
    @oracle(f"start_link, init {name}, starter not trapping", not_trapping)
    async def _(system: System) -> Any:
        starter, outcome, _ = await start_link(system, init, trap=False)
        return ("alive", outcome) if starter.alive else outcome

    @oracle(f"start_link, init {name}, starter trapping", trapping)
    async def _(system: System) -> Any:
        _, outcome, heard = await start_link(system, init, trap=True)
        return outcome, heard


for init_row in INITS:
    _every_init(*init_row)


async def start_slowly(system: System, *, trap: bool) -> tuple[Any, Ref, list[Any]]:
    heard: list[Any] = []
    starter = await subject(system, trap=trap, heard=heard)
    return await started(system.start(Subject, busy, timeout_s=0.05, link=starter)), starter, heard


@oracle("start_link timeout, starter trapping", "{{:error, :timeout}, []}")
async def _(system: System) -> Any:
    outcome, _, heard = await start_slowly(system, trap=True)
    return outcome, heard


@oracle("start_link timeout, starter not trapping", "{{:error, :timeout}, true}")
async def _(system: System) -> Any:
    outcome, starter, _ = await start_slowly(system, trap=False)
    return outcome, starter.alive


@oracle("start_link, name taken, starter trapping", "{:already_started, []}")
async def _(system: System) -> Any:
    heard: list[Any] = []
    starter = await subject(system, trap=True, heard=heard)
    await system.start(Counter, 0, name="taken")
    try:
        await system.start(Counter, 0, name="taken", link=starter)
    except StartError as error:
        return str(error.reason).split(":")[0], heard
