"""Names: unique, gone with the actor, the same after a restart."""

import pytest
import trio.testing

from batonpass.actors import ActorSpec, AlreadyRegistered, NoProc, System
from tests.actors.servers import Counter


async def test_a_registered_name_finds_its_actor(system: System) -> None:
    ref = await system.start(Counter, 0, name=("entity", 7))
    assert system.whereis(("entity", 7)) is ref
    assert ("entity", 7) in system.registry


async def test_registry_unique_second_register(system: System) -> None:
    first, second = await system.start(Counter, 0), await system.start(Counter, 0)
    system.registry.register("n", first)
    with pytest.raises(AlreadyRegistered) as caught:
        system.registry.register("n", second)
    assert caught.value.ref is first


async def test_registering_the_same_actor_again_changes_nothing(system: System) -> None:
    ref = await system.start(Counter, 0, name="n")
    system.registry.register("n", ref)
    assert system.whereis("n") is ref


async def test_an_actor_may_have_several_names_and_all_go_when_it_ends(system: System) -> None:
    ref = await system.start(Counter, 0)
    for name in ("a", "b", "c"):
        system.registry.register(name, ref)
    assert system.registry.names() == ["root", "a", "b", "c"]
    ref.kill()
    assert system.registry.names() == ["root"], "in the same moment: no lookup finds a dead actor"
    assert len(system.registry) == 1


async def test_a_name_can_be_taken_again_after_the_end(system: System) -> None:
    ref = await system.start(Counter, 0, name="n")
    ref.kill()
    again = await system.start(Counter, 1, name="n")
    assert system.whereis("n") is again


async def test_unregister_frees_the_name_and_not_the_actor(system: System) -> None:
    ref = await system.start(Counter, 0, name="n")
    system.registry.unregister("n")
    system.registry.unregister("n")
    other = await system.start(Counter, 0, name="n")
    ref.kill()
    assert system.whereis("n") is other, "the end of the former holder does not take the name from the new one"


async def test_the_dead_cannot_be_registered(system: System) -> None:
    ref = await system.start(Counter, 0)
    ref.kill()
    with pytest.raises(NoProc):
        system.registry.register("n", ref)


async def test_none_is_not_a_name(system: System) -> None:
    ref = await system.start(Counter, 0)
    with pytest.raises(ValueError, match="not a name"):
        system.registry.register(None, ref)


async def test_named_is_nobody_until_somebody_takes_the_name(system: System) -> None:
    counter = system.named("counter")
    assert not counter.alive
    assert counter.ref is None


async def test_named_goes_on_working_after_a_restart(system: System) -> None:
    counter = system.named("counter")
    await system.start_child(ActorSpec("counter", Counter, 10, name="counter"))
    before = counter.ref
    counter.cast(1)
    assert await counter.call("get") == 11
    counter.cast("boom")
    await trio.testing.wait_all_tasks_blocked()
    assert counter.alive
    assert counter.ref is not before
    assert await counter.call("get") == 10
