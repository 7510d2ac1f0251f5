"""Ids of entities: every call of vectors/entity_container.json, and the three regimes."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.scene.entity_ids import (
    MAX_VERSION,
    EntityNumbers,
    EntityNumbersUsedUp,
    EntityState,
    Regime,
    entity_id,
    number_of,
    regime_of,
    version_of,
)
from tests.simserver.sync.scene.vector_files import vectors

CONTAINERS: Final = vectors("entity_container")


def step(numbers: EntityNumbers, call: dict[str, Any]) -> object:
    match call["op"]:
        case "generate":
            return numbers.create()
        case "remove":
            return numbers.remove(call["entity"])
        case "release":
            return numbers.release()
        case "updateUsed":
            return numbers.mark_used(call["entity"])
        case "updateRemoved":
            return numbers.mark_removed(call["entity"])
        case "state":
            return numbers.state(call["entity"])
        case _:
            raise ValueError(call)


def test_every_call_is_answered_as_there() -> None:
    for trace in CONTAINERS["traces"]:
        numbers = EntityNumbers(trace["reserved"])
        for at, call in enumerate(trace["steps"]):
            assert step(numbers, call) == call["result"], (trace["reserved"], at, call)
        assert numbers.used == trace["used"]


def test_an_id_is_a_version_and_a_number() -> None:
    for vector in CONTAINERS["ids"]:
        assert entity_id(vector["number"], vector["version"]) == vector["entity"]
        assert [number_of(vector["entity"]), version_of(vector["entity"])] == vector["back"]


def test_numbers_are_used_up_where_they_are_there() -> None:
    numbers = EntityNumbers()
    given_away = [numbers.create() for _ in range(CONTAINERS["exhaustion"]["allocated"])]
    assert given_away[-1] == CONTAINERS["exhaustion"]["lastEntity"]
    with pytest.raises(EntityNumbersUsedUp):
        numbers.create()
    numbers.remove(600)
    with pytest.raises(EntityNumbersUsedUp):
        numbers.create()
    numbers.release()
    assert numbers.create() == entity_id(600, 1)


def test_a_cube_that_is_deleted_and_created_again_has_the_recorded_ids() -> None:
    """D3: the snapshot `cube-deleted` of the SDK. The new cube is created in the tick in which the old one goes."""
    numbers = EntityNumbers()
    ids = [numbers.create(), numbers.create()]
    for _ in range(3):
        numbers.remove(ids[-1])
        ids.append(numbers.create())
        numbers.release()
    assert ids == [0x200, 0x201, 0x202, 0x10201, 0x10202]


def test_a_number_is_not_used_beyond_its_last_version() -> None:
    numbers = EntityNumbers()
    numbers.mark_removed(entity_id(512, MAX_VERSION))
    assert numbers.create() == 513
    assert numbers.state(entity_id(512, MAX_VERSION)) == EntityState.REMOVED


@pytest.mark.parametrize("version", [0, 1, MAX_VERSION])
def test_the_three_regimes_hold_at_every_version(version: int) -> None:
    of = {number: regime_of(entity_id(number, version)) for number in (0, 2, 3, 511, 512, 65535)}
    assert of == {
        0: Regime.NAMED,
        2: Regime.NAMED,
        3: Regime.STREAMED,
        511: Regime.STREAMED,
        512: Regime.SCENE,
        65535: Regime.SCENE,
    }


def test_a_scene_cannot_touch_what_is_reserved() -> None:
    """D14."""
    numbers = EntityNumbers()
    for entity in (0, 3, 511, entity_id(511, 7)):
        assert not numbers.remove(entity)
        assert not numbers.mark_removed(entity)
        assert not numbers.mark_used(entity)
        assert numbers.state(entity) == EntityState.RESERVED
    assert numbers.used == numbers.gone == []


CALLS: Final = st.one_of(
    st.tuples(st.sampled_from(["create", "release"])),
    st.tuples(
        st.sampled_from(["remove", "mark_removed", "mark_used", "state"]),
        st.builds(entity_id, st.integers(0, 7), st.integers(0, 3)),
    ),
)


@given(st.lists(CALLS, max_size=60))
def test_no_id_is_given_twice_and_none_comes_back(calls: list[tuple[Any, ...]]) -> None:
    numbers = EntityNumbers(2)
    given_away: set[int] = set()
    ended: set[int] = set()
    for name, *arguments in calls:
        result = getattr(numbers, name)(*arguments)
        if name == "create":
            assert result not in ended
            assert numbers.state(result) == EntityState.USED
            given_away.add(result)
        elif name == "release":
            ended.update(set(result) - set(numbers.used))
        elif name == "mark_removed" and result:
            ended.add(*arguments)
        elif name == "mark_used" and result:
            ended.discard(*arguments)
        assert not ended & set(numbers.used)
