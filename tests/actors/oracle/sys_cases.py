"""Looking into a server, and holding it still."""

from typing import Any

from batonpass.actors import Ref, System
from batonpass.actors.observe import sys
from tests.actors.oracle.lines import called, oracle
from tests.actors.oracle.subjects import end_of, settled, subject
from tests.actors.servers import Counter


@oracle(":sys.get_state", "7")
async def _(system: System) -> Any:
    return await sys.get_state(await system.start(Counter, 7))


async def suspended(system: System) -> Ref:
    ref = await system.start(Counter, 7)
    await sys.suspend(ref)
    return ref


@oracle("call while suspended", "{:exit, {:timeout, :call}}")
async def _(system: System) -> Any:
    return await called((await suspended(system)).call("get", timeout_s=0.03))


@oracle("after resume", "{:ret, 7}")
async def _(system: System) -> Any:
    ref = await suspended(system)
    await called(ref.call("get", timeout_s=0.03))
    await sys.resume(ref)
    return await called(ref.call("get", timeout_s=0.03))


@oracle(":sys.replace_state", "8")
async def _(system: System) -> Any:
    return await sys.replace_state(await system.start(Counter, 7), lambda state: state + 1)


@oracle("stop while suspended", ":ok")
async def _(system: System) -> Any:
    ref = await suspended(system)
    await ref.stop("normal", timeout_s=0.1)
    assert not ref.alive
    return "ok"


@oracle("exit(:boom) while suspended, not trapping", ":boom")
async def _(system: System) -> Any:
    ref = await suspended(system)
    return await end_of(ref, lambda: ref.exit("boom"))


@oracle(
    "exit(:shutdown) from the parent while suspended, trapping",
    "{:shutdown, [terminated: :shutdown, EXIT: :shutdown]}",
)
async def _(system: System) -> Any:
    heard: list[Any] = []
    parent = await subject(system, trap=True)
    ref = await subject(system, trap=True, heard=heard, link=parent)
    await sys.suspend(ref)
    await parent.call(lambda server: server.exit(ref, "shutdown"))
    await settled()
    ((_, (kind, sender, reason)),) = await parent.call(lambda server: list(server.heard))
    assert sender is ref
    return ref.process.reason, [*heard, (kind, reason)]
