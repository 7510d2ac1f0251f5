"""batonpass: messages (`call`, `call-queued`, `cast`, `cast-state`, `machine`, `pool`), lives (`spawn`, `idle`, ...).

And what is measured by `broadcasts`, `pipelines` and `remote`.
"""

import gc
import os
import time
from typing import Any

import trio

from batonpass.actors import (
    ActorSpec,
    DynamicSupervisor,
    DynamicSupervisorSpec,
    From,
    NoReply,
    Pool,
    PoolSettings,
    Ref,
    Reply,
    Restart,
    Server,
    System,
)
from batonpass.actors.machines import (
    CallEvent,
    CastEvent,
    FirstState,
    KeepState,
    MachineEvent,
    NextState,
    ReplyTo,
    StateMachine,
    Transition,
)
from batonpass.scenarios.bench.actors.workers.broadcasts import measure_broadcasts
from batonpass.scenarios.bench.actors.workers.counting import CountingServer
from batonpass.scenarios.bench.actors.workers.pipelines import DEMANDS, measure_events
from batonpass.scenarios.bench.actors.workers.remote import measure_remote
from batonpass.scenarios.bench.loops import CHUNK, FLOOD, arguments, async_rate, expect, tell
from batonpass.scenarios.bench.process_facts import resident_bytes

MANY = 100_000


class CountingState(Server[int]):
    """Counts in its state, OTP's way: every cast returns the next one."""

    def handle_call(self, request: int, from_: From, state: int) -> Reply[int]:
        """How many casts there were."""
        return Reply(state)

    def handle_cast(self, message: int, state: int) -> NoReply[int]:
        """One more."""
        return NoReply(state + message)


class Switch(StateMachine[str, int]):
    """Goes from one of two states to the other with every cast, and counts."""

    def init(self, arg: int) -> FirstState[str, int]:
        """Begin."""
        return FirstState("on", arg)

    def handle_event(self, event: MachineEvent, state: str, data: int) -> Transition[str, int]:
        """One more, in the other state."""
        match state, event:
            case "on", CastEvent():
                return NextState("off", data + 1)
            case "off", CastEvent():
                return NextState("on", data + 1)
            case _, CallEvent(_, from_):
                return KeepState(actions=[ReplyTo(from_, data)])
            case _:
                return None


async def calls(ref: Ref) -> int:
    """To an idle actor, which answers at once."""
    for _ in range(CHUNK):
        await ref.call(1)
    return CHUNK


async def queued_calls(ref: Ref) -> int:
    """To an actor that has something to do already: the call waits in the mailbox, the caller for its answer."""
    for _ in range(CHUNK):
        ref.cast(0)
        await ref.call(1)
    return CHUNK


async def checkouts(ref: Ref) -> int:
    """Of a pool that has an idle resource."""
    for _ in range(CHUNK):
        async with Pool.checkout(ref):
            pass
    return CHUNK


class BatonpassCasts:
    """Floods of casts."""

    def __init__(self, ref: Ref) -> None:
        self.ref = ref
        self.sent = 0

    async def __call__(self) -> int:
        """One flood, and a call to make sure that it has arrived."""
        for _ in range(FLOOD):
            self.ref.cast(1)
        self.sent += FLOOD
        expect(await self.ref.call(1), self.sent)
        return FLOOD


async def measure_messages(work: str, seconds: float) -> float:
    """Calls or casts per second."""
    async with System.open("bench") as system:
        if work == "pool":
            pool = await system.start(Pool, PoolSettings(object))
            return await async_rate(lambda: checkouts(pool), seconds)
        kinds: dict[str, type[Server[Any]]] = {"cast-state": CountingState, "machine": Switch}
        ref = await system.start(kinds.get(work, CountingServer), 0)
        match work:
            case "call":
                return await async_rate(lambda: calls(ref), seconds)
            case "call-queued":
                return await async_rate(lambda: queued_calls(ref), seconds)
            case _:
                return await async_rate(BatonpassCasts(ref), seconds)


async def measure_many(work: str) -> float:
    """Spawns per second, megabytes, or seconds, with 100,000 idle actors under one supervisor."""
    gc.collect()
    before_bytes = resident_bytes(os.getpid())
    async with System.open("bench", [DynamicSupervisorSpec("many", name="many")]) as system:
        supervisor = system.named("many")
        spec = ActorSpec("idle", CountingServer, 0, restart=Restart.TEMPORARY)
        began_s = time.perf_counter()
        for _ in range(MANY):
            await DynamicSupervisor.start_child(supervisor, spec)
        spawned_s = time.perf_counter() - began_s
        expect((await DynamicSupervisor.count_children(supervisor)).active, MANY)
        gc.collect()
        taken_bytes = resident_bytes(os.getpid()) - before_bytes
        began_s = time.perf_counter()
    ended_s = time.perf_counter() - began_s
    return {"spawn": MANY / spawned_s, "idle": taken_bytes / 1e6, "teardown": ended_s}[work]


if __name__ == "__main__":
    todo, duration_s = arguments("batonpass")
    if todo in {"spawn", "idle", "teardown"}:
        tell(trio.run(measure_many, todo))
    elif todo.startswith("remote-"):
        tell(measure_remote(todo, duration_s))
    elif todo.startswith("groups"):
        tell(trio.run(measure_broadcasts, todo, duration_s))
    elif todo in DEMANDS:
        tell(trio.run(measure_events, todo, duration_s))
    else:
        tell(trio.run(measure_messages, todo, duration_s))
