"""Registries against a model too dumb to be wrong: a list of (key, owner, value), searched from end to end."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from batonpass.actors import (
    AlreadyRegistered,
    Entry,
    Keys,
    NoProc,
    NotRegistered,
    Ref,
    Registry,
    RegistrySpec,
    System,
)
from tests.actors.servers import Counter
from tests.budget import examples

OWNERS = 4


@dataclass
class Model:
    unique: bool
    entries: list[tuple[int, int, int]] = field(default_factory=list)

    def under(self, key: int) -> list[tuple[int, int]]:
        return [(owner, value) for k, owner, value in self.entries if k == key]

    def keys(self, owner: int) -> list[int]:
        return sorted(key for key, o, _ in self.entries if o == owner)

    def remove(self, condition: Callable[[int, int, int], bool]) -> int:
        before = len(self.entries)
        self.entries = [entry for entry in self.entries if not condition(*entry)]
        return before - len(self.entries)


Step = tuple[str, int, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["register"] * 4 + ["unregister", "unregister odd", "update", "end owner", "end registry"]),
        st.integers(0, 3),
        st.integers(0, OWNERS - 1),
        st.integers(0, 9),
    ),
    max_size=40,
)


@given(keys=st.sampled_from(Keys), script=steps)
@settings(max_examples=examples(150))
def test_registries_do_what_the_model_does(keys: Keys, script: list[Step]) -> None:
    trio.run(_play, keys, script, clock=trio.testing.MockClock(autojump_threshold=0))


async def _play(keys: Keys, script: list[Step]) -> None:
    model = Model(keys is Keys.UNIQUE)
    registry = Registry("model", keys)
    async with System.open("model", [RegistrySpec("registry", registry, name="registry")], max_restarts=50) as system:
        owners = [await system.start(Counter, 0) for _ in range(OWNERS)]
        for action, key, owner, value in script:
            if action == "end owner":
                owners[owner].kill()
                model.remove(lambda _k, o, _v, owner=owner: o == owner)  # type: ignore[misc] # a default, to bind now
                _compare(model, registry, owners)
                owners[owner] = await system.start(Counter, 0)
            elif action == "end registry":
                await _end_registry(system, model, owners)
            else:
                _change(model, registry, action, key, owner, value, owners[owner])
            _compare(model, registry, owners)


async def _end_registry(system: System, model: Model, owners: list[Ref]) -> None:
    """Whoever was registered ends too, and nobody else."""
    keeper = system.whereis("registry")
    assert keeper is not None
    keeper.kill()
    registered = {owner for _, owner, _ in model.entries}
    assert [ref.alive for ref in owners] == [owner not in registered for owner in range(OWNERS)]
    model.entries = []
    for owner in registered:
        owners[owner] = await system.start(Counter, 0)
    await trio.testing.wait_all_tasks_blocked()


def _change(model: Model, registry: Registry, action: str, key: int, owner: int, value: int, ref: Ref) -> None:
    match action:
        case "register" if model.unique and model.under(key):
            with pytest.raises(AlreadyRegistered):
                registry.register(key, ref, value)
        case "register":
            registry.register(key, ref, value)
            model.entries.append((key, owner, value))
        case "unregister":
            removed = model.remove(lambda k, o, _v: k == key and o == owner)
            assert registry.unregister(key, ref) == removed
        case "unregister odd":
            removed = model.remove(lambda k, o, v: k == key and o == owner and v % 2 == 1)
            assert registry.unregister(key, ref, lambda v: v % 2 == 1) == removed
        case "update" if not model.unique:
            with pytest.raises(ValueError, match="duplicate"):
                registry.update_value(key, ref, lambda v: v + 1)
        case "update" if [o for o, _ in model.under(key)] == [owner]:
            old = model.under(key)[0][1]
            assert registry.update_value(key, ref, lambda v: v + value) == (old + value, old)
            model.remove(lambda k, _o, _v: k == key)
            model.entries.append((key, owner, old + value))
        case _:
            with pytest.raises((NotRegistered, NoProc)):
                registry.update_value(key, ref, lambda v: v + 1)


def _compare(model: Model, registry: Registry, owners: list[Ref]) -> None:
    """Everything that can be asked, for every key and owner."""
    number = {ref: owner for owner, ref in enumerate(owners)}
    assert registry.count() == len(model.entries) == registry.count_select(lambda key, ref, value: True)
    assert sorted((key, number[ref], value) for key, ref, value in registry.select()) == sorted(model.entries)
    for key in range(4):
        found = [(number[ref], value) for ref, value in registry.lookup(key)]
        assert sorted(found) == sorted(model.under(key))
        assert (key in registry) == bool(found)
        assert registry.count_match(key, lambda value: value > 4) == sum(value > 4 for _, value in found)
        if model.unique:
            assert registry.whereis(key) is (owners[found[0][0]] if found else None)
        for owner, ref in enumerate(owners):
            assert sorted(registry.values(key, ref)) == sorted(value for o, value in found if o == owner)
        dispatched: list[list[Entry]] = []
        registry.dispatch(key, dispatched.append)
        assert dispatched == ([registry.lookup(key)] if found else [])
    for owner, ref in enumerate(owners):
        assert sorted(str(key) for key in registry.keys(ref)) == [str(key) for key in model.keys(owner)]
