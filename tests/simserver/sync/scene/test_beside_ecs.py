"""D16: what `@dcl/ecs` 7.28.0 does on node with the same dice, byte for byte in every tick.

The operations that docs/reference/scene.md lists as its faults are not thrown: an entity whose number is used again
elsewhere while it is in use here, one that is removed here and written elsewhere or created again in one tick, and
changes made here of one that is no more.
"""

from random import Random
from typing import Any, Final

import pytest

from batonpass.simserver.sync.scene.codec import MessageKind, write_message
from batonpass.simserver.sync.scene.component_numbers import component_number
from batonpass.simserver.sync.scene.entity_ids import EntityState, entity_id, number_of
from batonpass.simserver.sync.scene.exchange import PeerKind, SetComponent
from batonpass.simserver.sync.scene.replica import SceneReplica
from tests.simserver.sync.scene.ecs import ENVIRONMENT, run_on_ecs

pytestmark = pytest.mark.skipif(ENVIRONMENT is None, reason="needs @dcl/ecs: make ecs")

NAMES: Final = ("one", "two")
SET_NAME: Final = "happened"
MAX_VALUES: Final = 3
COMPONENTS: Final = tuple(map(component_number, NAMES))
SET: Final = component_number(SET_NAME)
UNKNOWN: Final = 4_000_000_000
RESERVED: Final = (0, 1, 2, 3, 100, 511)
PEERS: Final = ("a", "b")
MESSAGES: Final = 10_000


class Dice:
    """A run: what peers send and what is changed here, thrown while the replica plays along."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.scene = SceneReplica("here", COMPONENTS, [SetComponent(SET, MAX_VALUES, lambda data: data[:1])])
        for peer in PEERS:
            self.scene.connect(peer, PeerKind.PLAIN)
        self.ticks: list[list[list[Any]]] = []
        self.log: list[dict[str, Any]] = []
        # By number, the one version of which this tick's messages tell.
        self._told: dict[int, int] = {}
        self._has_removed = False

    def _data(self) -> bytes:
        return self._random.randbytes(self._random.choice((0, 1, 1, 2, 3)))

    def _entity(self) -> int:
        dice = self._random
        if dice.random() < 0.2:
            return dice.choice(RESERVED)
        return entity_id(dice.randrange(512, 536), dice.choice((0, 0, 0, 1, 1, 2)))

    def _told_of(self) -> int:
        """An entity of which a peer tells."""
        while True:
            entity = self._entity()
            number = number_of(entity)
            numbers = self.scene.numbers
            if numbers.earlier(entity) or numbers.is_leaving(entity):
                continue
            if self._told.setdefault(number, entity) == entity:
                return entity

    def _changed(self) -> int | None:
        """An entity that is changed here."""
        entity = self._entity()
        number = number_of(entity)
        alive = self.scene.numbers.state(entity) in {EntityState.USED, EntityState.RESERVED}
        return entity if alive and self._told.get(number, entity) == entity else None

    def _message(self) -> bytes:
        dice, entity = self._random, self._told_of()
        component = dice.choice((*COMPONENTS, *COMPONENTS, UNKNOWN))
        timestamp = dice.randrange(1, 12)
        match dice.choices(("put", "delete", "append", "delete entity"), (12, 3, 3, 1))[0]:
            case "put":
                return write_message(MessageKind.PUT, (entity, component, timestamp, self._data()))
            case "delete":
                return write_message(MessageKind.DELETE, (entity, component, timestamp))
            case "append":
                return write_message(MessageKind.APPEND, (entity, SET, 0, self._data()))
            case _:
                return write_message(MessageKind.DELETE_ENTITY, (entity,))

    def _change(self) -> tuple[list[Any], object] | None:
        """What is changed here, and the result, if it has one."""
        dice, scene = self._random, self.scene
        if dice.random() < 0.15 and not self._has_removed:
            entity = scene.create_entity()
            self._told.setdefault(number_of(entity), entity)
            return ["create"], entity
        changed = self._changed()
        if changed is None:
            return None
        component, data = dice.choice(COMPONENTS), self._data()
        match dice.choices(("put", "mutate", "delete", "append", "remove"), (6, 4, 3, 2, 1))[0]:
            case "put":
                scene.put(changed, component, data)
                return ["put", changed, component, data.hex()], None
            case "mutate":
                return ["mutate", changed, component, data.hex()], scene.mutate(changed, component, data)
            case "delete":
                return ["delete", changed, component], scene.delete(changed, component)
            case "append":
                scene.append(changed, SET, data)
                return ["append", changed, SET, data.hex()], None
            case _:
                if number_of(changed) in self._told:
                    return None
                self._has_removed = True
                return ["remove", changed], scene.remove_entity(changed)

    def tick(self) -> None:
        """Messages of peers and changes made here in any order, and a flush."""
        ops: list[list[Any]] = []
        results: list[object] = []
        self._told = {}
        self._has_removed = False
        for _ in range(self._random.randrange(20)):
            if self._random.random() < 0.5:
                chunk = b"".join(self._message() for _ in range(self._random.randrange(1, 8)))
                at = self._random.randrange(len(PEERS))
                self.scene.receive(PEERS[at], chunk)
                ops.append(["receive", at, chunk.hex()])
            else:
                change = self._change()
                if change is not None:
                    ops.append(change[0])
                    if change[1] is not None:
                        results.append(change[1])
        self.scene.apply()
        sent = self.scene.flush()
        self.ticks.append(ops)
        self.log.append({"results": results, "sent": [sent[peer][0].hex() for peer in PEERS]})


def compare(seed: int, messages: int = MESSAGES) -> None:
    """Throw a run, and run it there."""
    dice = Dice(seed)
    while sum(map(len, dice.ticks)) < messages:
        dice.tick()
    there = run_on_ecs(
        {"components": NAMES, "set": SET_NAME, "maxValues": MAX_VALUES, "peers": PEERS, "ticks": dice.ticks}
    )
    for at, (ours, theirs) in enumerate(zip(dice.log, there["log"], strict=True)):
        assert ours == theirs, (seed, at, dice.ticks[at])
    removed = {int(entity) for entity, state in there["states"].items() if state == EntityState.REMOVED}
    for number, rows in there["values"]:
        values = dice.scene.elements(number).values
        ours_now = {entity: data.hex() for entity, data in values.items() if data is not None}
        assert ours_now == {entity: data for entity, data in rows if entity not in removed}
    for entity, values in there["appended"]:
        if entity not in removed:
            assert [value.data.hex() for value in dice.scene.values(entity, SET)] == values


def test_the_same_dice_send_the_same_bytes_in_every_tick() -> None:
    compare(1)
