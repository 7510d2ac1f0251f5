"""The recorded lines about registries and partitions."""

from typing import Any

from batonpass.actors import (
    ActorSpec,
    Agent,
    Entry,
    Keys,
    NotRegistered,
    PartitionSupervisor,
    PartitionSupervisorSpec,
    Ref,
    Registry,
    RegistrySpec,
    System,
)
from tests.actors.oracle.lines import oracle
from tests.actors.oracle.subjects import settled
from tests.actors.servers import Recorder


async def unique(system: System) -> tuple[Registry, Ref, Ref]:
    """A registry, the owner of `a` with value 1, and another actor."""
    registry, owner, other = await _opened(system, Keys.UNIQUE)
    registry.register("a", owner, 1)
    return registry, owner, other


async def duplicate(system: System) -> tuple[Registry, Ref, Ref]:
    """A registry, the owner of `topic` with values 1 and 2, and one with value 3."""
    registry, owner, other = await _opened(system, Keys.DUPLICATE)
    for value, ref in ((1, owner), (2, owner), (3, other)):
        registry.register("topic", ref, value)
    return registry, owner, other


async def _opened(system: System, keys: Keys) -> tuple[Registry, Ref, Ref]:
    registry = Registry("r", keys)
    await system.start_child(RegistrySpec("r", registry))
    return registry, await system.start(Recorder), await system.start(Recorder)


def of(owner: Ref, entries: list[Entry]) -> list[Any]:
    """Entries, with whether they are of `owner`."""
    return [(str(entry.ref is owner).lower(), entry.value) for entry in entries]


def values(registry: Registry) -> list[Any]:
    return sorted(entry.value for entry in registry.lookup("topic"))


@oracle("registry, unique: lookup", "[true: 1]")
async def lookup(system: System) -> Any:
    registry, owner, _ = await unique(system)
    return of(owner, registry.lookup("a"))


@oracle("registry, unique: lookup of a key that nobody has", "[]")
async def lookup_nobody(system: System) -> Any:
    registry, _, _ = await unique(system)
    return registry.lookup("b")


@oracle("registry, unique: update_value", "{2, 1}")
async def update(system: System) -> Any:
    registry, owner, _ = await unique(system)
    return registry.update_value("a", owner, lambda value: value + 1)


@oracle("registry, unique: update_value by another", ":error")
async def update_by_another(system: System) -> Any:
    registry, _, other = await unique(system)
    try:
        return registry.update_value("a", other, lambda value: value + 1)
    except NotRegistered:
        return "error"


@oracle("registry, unique: unregister by another, and lookup", "{:ok, [true: 2]}")
async def unregister_by_another(system: System) -> Any:
    registry, owner, other = await unique(system)
    registry.update_value("a", owner, lambda value: value + 1)
    return "ok" if registry.unregister("a", other) == 0 else "removed", of(owner, registry.lookup("a"))


async def two_keys(system: System) -> tuple[Registry, Ref]:
    registry, owner, _ = await unique(system)
    registry.register("c", owner, 3)
    return registry, owner


@oracle("registry, unique: keys of an owner", "[:a, :c]")
async def keys(system: System) -> Any:
    registry, owner = await two_keys(system)
    return sorted(map(str, registry.keys(owner)))


@oracle("registry, unique: count", "2")
async def count(system: System) -> Any:
    registry, _ = await two_keys(system)
    return registry.count()


@oracle("registry, unique: unregister, and keys", "{:ok, [:c]}")
async def unregister(system: System) -> Any:
    registry, owner = await two_keys(system)
    return "ok" if registry.unregister("a", owner) == 1 else "?", registry.keys(owner)


@oracle("registry, unique: values of 1 and of 1.0", "{[:int], [:float]}")
async def numbers(system: System) -> Any:
    registry, owner, _ = await unique(system)
    registry.register(1, owner, "int")
    registry.register(1.0, owner, "float")
    return registry.values(1, owner), registry.values(1.0, owner)


@oracle("registry, unique: values for one that is not the owner", "[]")
async def values_of_another(system: System) -> Any:
    registry, _, other = await unique(system)
    return registry.values("a", other)


@oracle("registry, duplicate: values of all", "[1, 2, 3]")
async def all_values(system: System) -> Any:
    registry, _, _ = await duplicate(system)
    return values(registry)


@oracle("registry, duplicate: values of one owner", "[1, 2]")
async def values_of_one(system: System) -> Any:
    registry, owner, _ = await duplicate(system)
    return sorted(registry.values("topic", owner))


@oracle("registry, duplicate: keys of an owner", "[:topic, :topic]")
async def duplicate_keys(system: System) -> Any:
    registry, owner, _ = await duplicate(system)
    return registry.keys(owner)


@oracle("registry, duplicate: match", "[true: 2]")
async def match(system: System) -> Any:
    registry, owner, _ = await duplicate(system)
    return of(owner, registry.match("topic", lambda value: value == 2))


@oracle("registry, duplicate: update_value", ":raises")
async def update_duplicate(system: System) -> Any:
    registry, owner, _ = await duplicate(system)
    try:
        return registry.update_value("topic", owner, lambda value: value)
    except ValueError:
        return "raises"


async def without_two(system: System) -> tuple[Registry, Ref, Ref, int]:
    registry, owner, other = await duplicate(system)
    return registry, owner, other, registry.unregister("topic", owner, lambda value: value == 2)


@oracle("registry, duplicate: unregister_match, and values of all", "{:ok, [1, 3]}")
async def unregister_match(system: System) -> Any:
    registry, _, _, removed = await without_two(system)
    return "ok" if removed == 1 else "?", values(registry)


@oracle("registry, duplicate: dispatch, and what came", "[said: 1]")
async def dispatch(system: System) -> Any:
    registry, owner, _, _ = await without_two(system)

    def say(entries: list[Entry]) -> None:
        for entry in entries:
            entry.ref.send(("said", entry.value))

    registry.dispatch("topic", say)
    return await owner.call("all")


@oracle("registry, duplicate: whether dispatch calls for a key that nobody has", "[]")
async def dispatch_nobody(system: System) -> Any:
    registry, _, _ = await duplicate(system)
    called: list[str] = []
    registry.dispatch("none", lambda entries: called.append("called"))
    return called


@oracle("registry, duplicate: values of all after an owner ended", "[1]")
async def ended(system: System) -> Any:
    registry, _, other, _ = await without_two(system)
    other.kill()
    return values(registry)


@oracle("registry, duplicate: unregister, and count", "{:ok, 0}")
async def unregister_all(system: System) -> Any:
    registry, owner, other = await duplicate(system)
    other.kill()
    return "ok" if registry.unregister("topic", owner) == 2 else "?", registry.count()


def meta(registry: Registry) -> Any:
    found = registry.meta("k")
    return "error" if found is None else ("ok", found)


@oracle("registry: meta that is not there, put, and there", "{:error, :ok, {:ok, 1}}")
async def put_meta(system: System) -> Any:
    registry, _, _ = await unique(system)
    before = meta(registry)
    registry.put_meta("k", 1)
    return before, "ok", meta(registry)


@oracle("registry: delete_meta, and meta", "{:ok, :error}")
async def delete_meta(system: System) -> Any:
    registry, _, _ = await unique(system)
    registry.put_meta("k", 1)
    registry.delete_meta("k")
    return "ok", meta(registry)


# Partitions


async def three(system: System) -> dict[Ref, int]:
    """The partitions of "p", by number."""
    await system.start_child(PartitionSupervisorSpec("p", ActorSpec("agent", Agent, lambda: 0), partitions=3, name="p"))
    return await numbered(system)


async def numbered(system: System) -> dict[Ref, int]:
    children = await PartitionSupervisor.which_children(system.named("p"))
    return {child.ref: int(str(child.id)) for child in children if child.ref is not None}


def part(system: System, key: Any) -> Ref:
    found = PartitionSupervisor.via(system.named("p"), key).ref
    assert found is not None
    return found


@oracle("partitions: how many", "3")
async def partitions(system: System) -> Any:
    await three(system)
    return PartitionSupervisor.partitions(system.named("p"))


@oracle("partitions: those of 0, 1, 2, 3, 7, -1 and -5", "[0, 1, 2, 0, 1, 1, 2]")
async def by_number(system: System) -> Any:
    numbers = await three(system)
    return [numbers[part(system, key)] for key in (0, 1, 2, 3, 7, -1, -5)]


@oracle("partitions: equal keys have one", "true")
async def equal_keys(system: System) -> Any:
    await three(system)
    return part(system, "key") is part(system, "".join("key"))


@oracle("partitions: count_children", "{3, 3, 0, 3}")
async def counted(system: System) -> Any:
    await three(system)
    counts = await PartitionSupervisor.count_children(system.named("p"))
    return counts.active, counts.specs, counts.supervisors, counts.workers


@oracle("partitions: one that is killed is another, the next is the same", "{true, true}")
async def killed(system: System) -> Any:
    await three(system)
    lost = part(system, 1)
    lost.kill()
    await settled()
    return part(system, 1) is not lost, (await numbered(system))[part(system, 2)] == 2


@oracle("partitions: states with_arguments", "[0, 10]")
async def with_arguments(system: System) -> Any:
    child = ActorSpec("agent", Agent, lambda: 0)
    await system.start_child(
        PartitionSupervisorSpec(
            "p", child, partitions=2, name="p", with_arguments=lambda _first, number: lambda: number * 10
        )
    )
    return [await Agent.get(PartitionSupervisor.via(system.named("p"), key), lambda state: state) for key in (0, 1)]
