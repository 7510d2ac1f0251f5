"""Registries: unique and duplicate keys, values, via names, listeners, and what the end of owner or registry means."""

from typing import Any

import pytest
import trio.testing

from batonpass.actors import (
    ActorSpec,
    AlreadyRegistered,
    AlreadyStarted,
    Entry,
    ExitSignal,
    Keys,
    NoProc,
    NotRegistered,
    Ref,
    Registered,
    Registry,
    RegistrySpec,
    Restart,
    Row,
    Server,
    ServiceSpec,
    StartError,
    Supervisor,
    System,
    Unregistered,
    via,
)
from tests.actors.servers import Counter, Recorder, Trapper


@pytest.fixture
async def rooms(system: System) -> Registry:
    registry = Registry("rooms", Keys.UNIQUE, meta={"city": "Ghent"})
    await system.start_child(RegistrySpec("rooms", registry, restart=Restart.TEMPORARY, name="rooms"))
    return registry


@pytest.fixture
async def topics(system: System) -> Registry:
    registry = Registry("topics", Keys.DUPLICATE)
    await system.start_child(RegistrySpec("topics", registry))
    return registry


# Unique keys


async def test_a_unique_key_has_one_owner_and_a_value(system: System, rooms: Registry) -> None:
    ref = await system.start(Counter, 0)
    rooms.register("lobby", ref, {"seats": 8})
    assert rooms.lookup("lobby") == [Entry(ref, {"seats": 8})]
    assert rooms.whereis("lobby") is ref
    assert rooms.values("lobby", ref) == [{"seats": 8}]
    assert rooms.keys(ref) == ["lobby"]
    assert rooms.count() == len(rooms) == 1
    assert "lobby" in rooms
    assert rooms.lookup("cellar") == []
    assert rooms.whereis("cellar") is None


async def test_a_taken_unique_key_is_refused_also_to_its_owner(system: System, rooms: Registry) -> None:
    first, second = await system.start(Counter, 0), await system.start(Counter, 0)
    rooms.register("lobby", first, 1)
    for ref in (first, second):
        with pytest.raises(AlreadyRegistered) as caught:
            rooms.register("lobby", ref, 2)
        assert caught.value.ref is first
    assert rooms.lookup("lobby") == [Entry(first, 1)]


async def test_one_actor_may_have_the_same_key_in_several_registries_and_as_a_name(
    system: System, rooms: Registry, topics: Registry
) -> None:
    ref = await system.start(Counter, 0, name="lobby")
    rooms.register("lobby", ref)
    topics.register("lobby", ref)
    rooms.unregister("lobby", ref)
    assert system.whereis("lobby") is ref
    assert topics.keys(ref) == ["lobby"]
    ref.kill()
    assert system.whereis("lobby") is None
    assert topics.count() == 0


async def test_unregister_takes_only_the_owners_own_entry(system: System, rooms: Registry) -> None:
    owner, other = await system.start(Counter, 0), await system.start(Counter, 0)
    rooms.register("lobby", owner, 8)
    assert rooms.unregister("lobby", other) == 0
    assert rooms.unregister("lobby", owner, lambda value: value > 8) == 0
    assert rooms.unregister("lobby", owner, lambda value: value == 8) == 1
    assert rooms.unregister("lobby", owner) == 0
    rooms.register("lobby", other)
    owner.kill()
    assert rooms.whereis("lobby") is other


async def test_a_value_is_updated_by_a_function_of_the_old_one(system: System, rooms: Registry) -> None:
    owner, other = await system.start(Counter, 0), await system.start(Counter, 0)
    rooms.register("lobby", owner, 8)
    assert rooms.update_value("lobby", owner, lambda seats: seats + 1) == (9, 8)
    for key, ref in (("lobby", other), ("cellar", owner)):
        with pytest.raises(NotRegistered):
            rooms.update_value(key, ref, lambda seats: seats + 1)
    with pytest.raises(ZeroDivisionError):
        rooms.update_value("lobby", owner, lambda seats: seats / 0)
    assert rooms.values("lobby", owner) == [9]


# Duplicate keys


async def test_a_duplicate_key_has_any_number_of_entries(system: System, topics: Registry) -> None:
    a, b = await system.start(Counter, 0), await system.start(Counter, 0)
    topics.register("news", a, 1)
    topics.register("news", a, 1)
    topics.register("news", b, 2)
    topics.register("sport", b, 3)
    assert topics.lookup("news") == [Entry(a, 1), Entry(a, 1), Entry(b, 2)]
    assert topics.keys(a) == ["news", "news"]
    assert topics.values("news", a) == [1, 1]
    assert topics.count() == 4
    assert topics.unregister("news", a) == 2
    assert topics.keys(a) == []
    assert topics.lookup("news") == [Entry(b, 2)]


async def test_entries_are_filtered_by_value_or_by_anything(system: System, topics: Registry) -> None:
    a, b = await system.start(Counter, 0), await system.start(Counter, 0)
    for ref, value in ((a, 1), (a, 2), (b, 3)):
        topics.register("news", ref, value)
    topics.register("sport", b, 4)
    assert topics.match("news", lambda value: value > 1) == [Entry(a, 2), Entry(b, 3)]
    assert topics.count_match("news", lambda value: value > 1) == 2
    assert topics.select(lambda key, ref, value: ref is b) == [Row("news", b, 3), Row("sport", b, 4)]
    assert topics.count_select(lambda key, ref, value: key == "sport") == 1
    assert len(topics.select()) == 4
    assert topics.unregister("news", a, lambda value: value == 1) == 1
    assert topics.values("news", a) == [2]


@pytest.mark.parametrize(
    "use",
    [
        lambda registry, ref: registry.whereis("k"),
        lambda registry, ref: registry.update_value("k", ref, str),
        lambda registry, ref: via(registry, "k"),
    ],
    ids=["whereis", "update_value", "via"],
)
async def test_what_needs_one_owner_is_refused_for_duplicate_keys(system: System, topics: Registry, use: Any) -> None:
    ref = await system.start(Counter, 0)
    topics.register("k", ref)
    with pytest.raises(ValueError, match="duplicate keys"):
        use(topics, ref)


async def test_dispatch_calls_once_with_all_entries_or_not_at_all(system: System, topics: Registry) -> None:
    counters = [await system.start(Counter, 0) for _ in range(3)]
    for add, ref in enumerate(counters):
        topics.register("add", ref, add)

    def publish(entries: list[Entry]) -> None:
        for ref, add in entries:
            ref.cast(add)
            topics.unregister("add", ref)

    topics.dispatch("add", publish)
    topics.dispatch("add", lambda entries: pytest.fail("nobody is left, so nothing is called"))
    assert [await ref.call("get") for ref in counters] == [0, 1, 2]


# Via names


async def test_via_starts_under_a_key_and_addresses_it(system: System, rooms: Registry) -> None:
    lobby = via(rooms, "lobby", {"seats": 8})
    ref = await system.start(Counter, 40, name=lobby)
    assert rooms.lookup("lobby") == [Entry(ref, {"seats": 8})]
    via(rooms, "lobby").cast(2)
    assert await via(rooms, "lobby").call("get") == 42
    assert system.whereis(lobby) is ref
    assert await system.named(lobby).call("get") == 42
    assert system.whereis("lobby") is None, "the registry's keys are not the system's names"
    assert lobby == via(rooms, "lobby")
    assert len({lobby, via(rooms, "lobby"), via(rooms, "cellar")}) == 2


async def test_via_name_taken(system: System, rooms: Registry) -> None:
    ref = await system.start(Counter, 0, name=via(rooms, "lobby"))
    with pytest.raises(AlreadyStarted) as caught:
        await system.start(Counter, 0, name=via(rooms, "lobby"))
    assert caught.value.ref is ref


async def test_via_of_nobody_refuses_calls_and_drops_casts(rooms: Registry) -> None:
    via(rooms, "lobby").cast(1)
    with pytest.raises(NoProc):
        await via(rooms, "lobby").call("get")


async def test_via_survives_the_restart_of_its_owner(system: System, rooms: Registry) -> None:
    lobby = via(rooms, "lobby", "value")
    await system.start_child(ActorSpec("lobby", Counter, 10, name=lobby))
    lobby.cast("boom")
    await trio.testing.wait_all_tasks_blocked()
    assert await lobby.call("get") == 10
    assert rooms.values("lobby", rooms.lookup("lobby")[0].ref) == ["value"]


async def test_supervisors_and_services_may_have_via_names(system: System, rooms: Registry) -> None:
    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()

    ref = await system.start_child(ServiceSpec("s", serve, name=via(rooms, "service")))
    assert rooms.whereis("service") is ref


# Ends


async def test_all_entries_of_an_owner_go_with_it(system: System, rooms: Registry, topics: Registry) -> None:
    ref, other = await system.start(Counter, 0), await system.start(Counter, 0)
    rooms.register("a", ref)
    rooms.register("b", other)
    topics.register("t", ref)
    topics.register("t", ref)
    topics.register("t", other)
    ref.kill()
    assert rooms.select() == [Row("b", other, None)], "in the same moment: no lookup finds a dead actor"
    assert topics.lookup("t") == [Entry(other, None)]
    assert rooms.keys(ref) == topics.keys(ref) == []
    with pytest.raises(NoProc):
        rooms.register("a", ref)


async def test_many_owners_end_in_linear_time(system: System, rooms: Registry, topics: Registry) -> None:
    """All under one key, each with a name of its own: a scan for each would be 10^10 steps, and time out."""
    refs = [system.start_nowait(Counter, 0, name=number) for number in range(100_000)]
    for number, ref in enumerate(refs):
        rooms.register(number, ref)
        topics.register("everybody", ref)
    for ref in refs:
        ref.kill()
    assert rooms.count() == topics.count() == 0
    assert system.registry.names() == ["root", "rooms"]


async def test_the_end_of_the_registry_ends_those_who_could_not_be_found_any_more(
    system: System, rooms: Registry
) -> None:
    seen: list[Any] = []
    plain = await system.start(Counter, 0, name=via(rooms, "plain"))
    trapping = await system.start(Trapper, seen, name=via(rooms, "trapping"))
    keeper = system.whereis("rooms")
    assert keeper is not None
    keeper.kill()
    assert await plain.exited() == "killed"
    await trio.testing.wait_all_tasks_blocked()
    assert trapping.alive
    assert seen == [("info", "killed")]
    assert rooms.count() == 0
    assert not rooms.running
    with pytest.raises(NoProc):
        rooms.register("trapping", trapping)
    trapping.kill()
    assert rooms.select() == []


async def test_an_orderly_stop_of_the_registry_shuts_its_owners_down(system: System, rooms: Registry) -> None:
    owner = await system.start(Counter, 0, name=via(rooms, "lobby"))
    keeper = system.whereis("rooms")
    assert keeper is not None
    await keeper.stop()
    assert await owner.exited() == "shutdown"


async def test_a_restarted_registry_is_the_same_object_empty_and_its_owners_come_back(system: System) -> None:
    rooms = Registry("rooms", meta={"city": "Ghent"})
    keeper = await system.start_child(RegistrySpec("rooms", rooms))
    lobby = via(rooms, "lobby")
    await system.start_child(ActorSpec("lobby", Counter, 7, name=lobby))
    rooms.put_meta("city", "Bruges")
    assert keeper is not None
    keeper.kill()
    await trio.testing.wait_all_tasks_blocked()
    assert await lobby.call("get") == 7
    assert rooms.meta("city") == "Ghent"


async def test_a_start_under_a_registry_that_does_not_run_fails(system: System) -> None:
    with pytest.raises(StartError) as caught:
        await system.start(Counter, 0, name=via(Registry("nowhere"), "lobby"))
    assert isinstance(caught.value.reason, NoProc)


async def test_one_registry_cannot_run_twice(system: System, rooms: Registry) -> None:
    with pytest.raises(StartError, match="is run by"):
        await system.start_child(RegistrySpec("again", rooms))
    assert rooms.running


async def test_actors_of_another_system_cannot_be_registered(system: System, rooms: Registry) -> None:
    async with System.open("elsewhere") as elsewhere:
        stranger = await elsewhere.start(Counter, 0)
        with pytest.raises(ValueError, match="local"):
            rooms.register("lobby", stranger)


async def test_the_actor_of_a_registry_hands_it_out_and_survives_stray_messages(
    system: System, rooms: Registry
) -> None:
    keeper = system.named("rooms")
    keeper.cast("what?")
    keeper.send("what?")
    assert await keeper.call("who are you?") is rooms


# Meta and listeners


async def test_meta_belongs_to_the_registry(rooms: Registry) -> None:
    assert rooms.meta("city") == "Ghent"
    rooms.put_meta(("a", 1), [1])
    assert rooms.meta(("a", 1)) == [1]
    rooms.delete_meta(("a", 1))
    rooms.delete_meta(("a", 1))
    assert rooms.meta(("a", 1), "nothing") == "nothing"
    with pytest.raises(NoProc):
        Registry("nowhere").put_meta("a", 1)


async def test_listeners_are_told_of_every_entry_that_comes_or_goes(system: System, rooms: Registry) -> None:
    topics = Registry("topics", Keys.DUPLICATE, listeners=["listener", "nobody", via(rooms, "listener")])
    await system.start_child(RegistrySpec("topics", topics))
    listeners = [await system.start(Recorder, name=name) for name in ("listener", via(rooms, "listener"))]
    a = await system.start(Counter, 0)
    topics.register("k", a, 1)
    topics.register("k", a, 2)
    topics.unregister("k", a, lambda value: value == 2)
    topics.unregister("k", a, lambda value: value == 2)
    topics.register("j", a)
    a.kill()
    for listener in listeners:
        assert await listener.call("what came?") == [
            Registered(topics, "k", a, 1),
            Registered(topics, "k", a, 2),
            Unregistered(topics, "k", a),
            Registered(topics, "j", a, None),
            Unregistered(topics, "k", a),
            Unregistered(topics, "j", a),
        ]


class Subscriber(Server[list[Any]]):
    """Registers itself in `init`, as actors do."""

    def init(self, arg: Registry) -> list[Any]:
        arg.register("news", self.ref, "subscriber")
        return []


async def test_an_actor_registers_itself_from_its_callbacks(system: System, topics: Registry) -> None:
    ref: Ref = await system.start(Subscriber, topics)
    assert topics.lookup("news") == [Entry(ref, "subscriber")]


async def test_a_failed_start_leaves_no_entry(system: System, rooms: Registry) -> None:
    class Failing(Server[None]):
        def init(self, arg: Registry) -> None:
            arg.register("second", self.ref)
            raise ValueError("boom")

    with pytest.raises(StartError):
        await system.start(Failing, rooms, name=via(rooms, "first"))
    assert rooms.count() == 0


async def test_a_trapping_owner_learns_who_ended(system: System) -> None:
    rooms = Registry("rooms")
    keeper = await system.start_child(RegistrySpec("rooms", rooms, restart=Restart.TEMPORARY))

    class Owner(Recorder):
        trap_exit = True

    owner = await system.start(Owner, name=via(rooms, "owner"))
    await Supervisor.terminate_child(system.root, "rooms")
    assert await owner.call("what came?") == [ExitSignal("shutdown", keeper)]


async def test_a_lock_of_a_registry_lets_one_in_at_a_time(
    system: System, autojump_clock: trio.testing.MockClock
) -> None:
    registry = Registry("locks")
    log: list[tuple[Any, str, float]] = []

    async def work(key: Any, who: str) -> None:
        async with registry.lock(key):
            await trio.sleep(1.0)
            log.append((key, who, trio.current_time()))

    async with trio.open_nursery() as nursery:
        for key, who in ((1, "a"), (1, "b"), (True, "c")):
            nursery.start_soon(work, key, who)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0.5):
            await work(1, "gives up")
    assert sorted(who for _, who, _ in log) == ["a", "b", "c"]
    assert sorted(at_s for _, _, at_s in log) == [1.0, 1.0, 2.0], "True and 1 are two keys"
    assert registry._locks == {}
