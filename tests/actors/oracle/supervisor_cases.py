"""Supervisors, and names."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from batonpass.actors import (
    ActorSpec,
    AlreadyStarted,
    Continue,
    Ok,
    Ref,
    Registry,
    RegistrySpec,
    Restart,
    Server,
    Stop,
    Strategy,
    Supervisor,
    SupervisorSpec,
    System,
)
from batonpass.actors.core.named import AlreadyRegistered
from batonpass.actors.registry.registry import Keys, via
from tests.actors.oracle.lines import inspect, oracle, reason_in_elixir
from tests.actors.oracle.subjects import settled, subject
from tests.actors.servers import Counter


class Crashing(Server[None]):
    """Notes its start, and crashes."""

    def init(self, arg: list[str]) -> Ok[None]:
        arg.append("started")
        return Ok(None, then=Continue(None))

    def handle_continue(self, value: None, state: None) -> Stop[None]:
        return Stop("boom")


async def give_up(system: System, children: int, max_restarts: int) -> Any:
    """How a supervisor of children that always crash ends, and after how many starts."""
    starts: list[str] = []
    sup = await system.start_child(
        SupervisorSpec(
            "sup",
            tuple(ActorSpec(number, Crashing, starts) for number in range(children)),
            restart=Restart.TEMPORARY,
            max_restarts=max_restarts,
        )
    )
    assert sup is not None
    return reason_in_elixir(await sup.exited()), len(starts)


@oracle(
    "one_for_one, 1 child always crashing, max_restarts 3: {supervisor exit, total starts}",
    "{:shutdown, 4}",
)
async def _(system: System) -> Any:
    return await give_up(system, 1, 3)


@oracle("max_restarts 0", "{:shutdown, 1}")
async def _(system: System) -> Any:
    return await give_up(system, 1, 0)


@oracle("3 crashing children, max_restarts 3 (counted per supervisor)", "{:shutdown, 6}")
async def _(system: System) -> Any:
    return await give_up(system, 3, 3)


@dataclass
class Family:
    """Children a, b, c under one supervisor, and who was started since the supervisor was."""

    ups: list[str] = field(default_factory=list)
    sup: Ref | None = None

    async def start(self, system: System, strategy: Strategy, restarts: dict[str, Restart]) -> None:
        specs = tuple(
            ActorSpec(name, Child, (name, self.ups), restart=restart, name=name) for name, restart in restarts.items()
        )
        self.sup = await system.start_child(SupervisorSpec("sup", specs, strategy=strategy))
        self.ups.clear()

    async def alive(self) -> list[str]:
        assert self.sup is not None
        return sorted(str(child.id) for child in await Supervisor.which_children(self.sup) if child.ref is not None)


class Child(Server[None]):
    """Notes its start; ends with the reason it is cast."""

    def init(self, arg: tuple[str, list[str]]) -> None:
        name, ups = arg
        ups.append(name)

    def handle_cast(self, message: object, state: None) -> Stop[None]:
        return Stop(message)


async def b_ends(system: System, strategy: Strategy, restarts: dict[str, Restart], reason: object) -> Any:
    family = Family()
    await family.start(system, strategy, restarts)
    system.named("b").cast(reason)
    await settled()
    return "restarted", sorted(family.ups), "alive", await family.alive()


ALL_PERMANENT = dict.fromkeys("abc", Restart.PERMANENT)

CRASHES: list[tuple[Strategy, str]] = [
    (Strategy.ONE_FOR_ONE, "{:restarted, [:b], :alive, [:a, :b, :c]}"),
    (Strategy.ONE_FOR_ALL, "{:restarted, [:a, :b, :c], :alive, [:a, :b, :c]}"),
    (Strategy.REST_FOR_ONE, "{:restarted, [:b, :c], :alive, [:a, :b, :c]}"),
]


def _every_strategy(strategy: Strategy, expected: str) -> None:
    @oracle(f"{strategy.value} b crashes", expected)
    async def _(system: System) -> Any:
        return await b_ends(system, strategy, ALL_PERMANENT, "boom")


for crash in CRASHES:
    _every_strategy(*crash)


RESTARTS: list[tuple[Restart, object, str]] = [
    (Restart.PERMANENT, "normal", "[:b]"),
    (Restart.PERMANENT, "shutdown", "[:b]"),
    (Restart.PERMANENT, ("shutdown", "x"), "[:b]"),
    (Restart.PERMANENT, "boom", "[:b]"),
    (Restart.TRANSIENT, "normal", "[]"),
    (Restart.TRANSIENT, "shutdown", "[]"),
    (Restart.TRANSIENT, ("shutdown", "x"), "[]"),
    (Restart.TRANSIENT, "boom", "[:b]"),
    (Restart.TEMPORARY, "normal", "[]"),
    (Restart.TEMPORARY, "shutdown", "[]"),
    (Restart.TEMPORARY, ("shutdown", "x"), "[]"),
    (Restart.TEMPORARY, "boom", "[]"),
]


def _every_restart(restart: Restart, reason: object, expected: str) -> None:
    @oracle(f"restart {restart.value} exit {inspect(reason)} -> restarted", expected)
    async def _(system: System) -> Any:
        family = {"a": Restart.PERMANENT, "b": restart}
        return (await b_ends(system, Strategy.ONE_FOR_ONE, family, reason))[1]


for restart_row in RESTARTS:
    _every_restart(*restart_row)


@oracle(
    "one_for_all: temporary sibling a is terminated and NOT restarted",
    "{:restarted, [:b, :c], :alive, [:b, :c]}",
)
async def _(system: System) -> Any:
    family = {"a": Restart.TEMPORARY, "b": Restart.PERMANENT, "c": Restart.TRANSIENT}
    return await b_ends(system, Strategy.ONE_FOR_ALL, family, "boom")


@oracle(
    "rest_for_one: temporary victim b not restarted, c untouched",
    "{:restarted, [], :alive, [:a, :c]}",
)
async def _(system: System) -> Any:
    family = {"a": Restart.PERMANENT, "b": Restart.TEMPORARY, "c": Restart.PERMANENT}
    return await b_ends(system, Strategy.REST_FOR_ONE, family, "boom")


# names


async def rooms(system: System) -> Registry:
    registry = Registry("rooms", Keys.UNIQUE)
    await system.start_child(RegistrySpec("rooms", registry))
    return registry


@oracle("Registry unique second register", "{:ok, :error}")
async def _(system: System) -> Any:
    registry, owner, other = await rooms(system), await subject(system), await subject(system)
    outcomes: list[str] = []
    for ref in (owner, other):
        try:
            registry.register("k", ref)
            outcomes.append("ok")
        except AlreadyRegistered:
            outcomes.append("error")
    return tuple(outcomes)


@oracle("via name taken", "{:error, :already_started}")
async def _(system: System) -> Any:
    registry, owner = await rooms(system), await subject(system)
    registry.register("k", owner)
    with pytest.raises(AlreadyStarted) as caught:
        await system.start(Counter, 1, name=via(registry, "k"))
    assert caught.value.ref is owner
    return "error", str(caught.value.reason).split(":")[0]
