"""A scene between its renderer and a room, beside `@dcl/ecs` on node: the same dice, and the same bytes in every tick.

Names of entities go to the room, ids to the renderer. Where `@dcl/ecs` is at fault (docs/reference/scene.md) its
messages are put right before they are compared: what it says of an entity that the room has removed is said under ids
that mean others. Nothing is said of a removed entity afterwards, which it would bring back.
"""

from random import Random
from typing import Any, Final

import pytest

from batonpass.simserver.sync.scene.codec import MessageKind, MessageRow, read_chunk_untrusted, write_message
from batonpass.simserver.sync.scene.component_numbers import component_number
from batonpass.simserver.sync.scene.exchange import PeerKind, SetComponent
from batonpass.simserver.sync.scene.network_ids import NetworkId
from batonpass.simserver.sync.scene.replica import SceneReplica
from tests.simserver.sync.scene.ecs import ENVIRONMENT, run_on_ecs

pytestmark = pytest.mark.skipif(ENVIRONMENT is None, reason="needs @dcl/ecs: make ecs")

NAMES: Final = ("one", "two")
SET_NAME: Final = "happened"
MAX_VALUES: Final = 3
COMPONENTS: Final = tuple(map(component_number, NAMES))
SET: Final = component_number(SET_NAME)
PEERS: Final = (("renderer", PeerKind.RENDERER), ("room 1", PeerKind.NETWORK), ("room 2", PeerKind.NETWORK))
TICKS: Final = 400
_UNDER_A_NAME: Final = {
    int(MessageKind.PUT): MessageKind.PUT_NETWORK,
    int(MessageKind.DELETE): MessageKind.DELETE_NETWORK,
}


def messages(hexed: str) -> list[tuple[int, MessageRow]]:
    return [(run.kind, row) for run in read_chunk_untrusted(bytes.fromhex(hexed)).runs for row in run.rows]


class Room:
    """A run: what peers send and what is changed here, thrown while the replica plays along."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.scene = SceneReplica("here", COMPONENTS, [SetComponent(SET, MAX_VALUES, lambda data: data[:1])])
        for peer, kind in PEERS:
            self.scene.connect(peer, kind)
        self.ticks: list[list[list[Any]]] = []
        self.results: list[list[object]] = []
        self.sent: list[list[str]] = []
        # What the room removed in each tick, and the names of it.
        self.removed: list[dict[int, NetworkId]] = []
        self._gone: set[tuple[int, int]] = set()

    def _data(self) -> bytes:
        return self._random.randbytes(self._random.choice((0, 1, 1, 2, 3)))

    def _of_the_room(self, told: set[tuple[int, int]]) -> bytes:
        dice = self._random
        name = entity, network = dice.randrange(512, 524), dice.choice((7, 9))
        if name in self._gone:
            return b""
        component, timestamp, chance = dice.choice(COMPONENTS), dice.randrange(1, 14), dice.random()
        if chance > 0.97 and name not in told:
            self._gone.add(name)
            return write_message(MessageKind.DELETE_ENTITY_NETWORK, (entity, network))
        told.add(name)
        if chance > 0.8:
            return write_message(MessageKind.DELETE_NETWORK, (entity, component, timestamp, network))
        return write_message(MessageKind.PUT_NETWORK, (entity, component, timestamp, network, self._data()))

    def _of_the_renderer(self, entity: int) -> bytes:
        dice = self._random
        return write_message(MessageKind.PUT, (entity, dice.choice(COMPONENTS), dice.randrange(1, 14), self._data()))

    def _change(self, entity: int) -> tuple[list[Any], object]:
        dice, scene = self._random, self.scene
        component, data = dice.choice(COMPONENTS), self._data()
        match dice.choices(("put", "mutate", "delete", "append", "create"), (5, 2, 2, 2, 1))[0]:
            case "put":
                scene.put(entity, component, data)
                return ["put", entity, component, data.hex()], None
            case "mutate":
                return ["mutate", entity, component, data.hex()], scene.mutate(entity, component, data)
            case "delete":
                return ["delete", entity, component], scene.delete(entity, component)
            case "append":
                scene.append(entity, SET, data)
                return ["append", entity, SET, data.hex()], None
            case _:
                return ["create"], scene.create_entity()

    def tick(self) -> None:
        dice, scene = self._random, self.scene
        ops: list[list[Any]] = []
        results: list[object] = []
        told: set[tuple[int, int]] = set()
        for _ in range(dice.randrange(10)):
            chance, used = dice.random(), scene.numbers.used
            if chance < 0.5 or not used:
                at, chunk = dice.choice((1, 2)), b"".join(self._of_the_room(told) for _ in range(dice.randrange(1, 6)))
            elif chance < 0.65:
                at, chunk = 0, b"".join(self._of_the_renderer(dice.choice(used)) for _ in range(dice.randrange(1, 4)))
            else:
                op, result = self._change(dice.choice(used))
                ops.append(op)
                results += [] if result is None else [result]
                continue
            scene.receive(PEERS[at][0], chunk)
            ops.append(["receive", at, chunk.hex()])
        applied = scene.apply()
        removed = [row[0] for run in applied.changes if run.kind == MessageKind.DELETE_ENTITY for row in run.rows]
        self.removed.append({entity: name for entity in removed if (name := scene.name_of(entity)) is not None})
        sent = scene.flush()
        self.ticks.append(ops)
        self.results.append(results)
        self.sent.append([b"".join(sent[peer]).hex() for peer, _ in PEERS])

    def put_right(self, at: int, peer: int, hexed: str) -> str:
        """What `@dcl/ecs` sent to a peer in a tick, without its fault with what the room has removed."""
        removed, put_right = self.removed[at], []
        if not removed:
            return hexed
        here = iter(removed)
        for kind, row in messages(hexed):
            match kind:
                case MessageKind.DELETE_ENTITY if not peer:
                    # It names the entity by the id that this has at its creator's.
                    put_right.append(write_message(kind, (next(here),)))
                case MessageKind.PUT | MessageKind.DELETE if peer and row[0] in removed:
                    name = removed[row[0]]
                    named = (name.entity, *row[1:3], name.network, *row[3:])
                    put_right.append(write_message(_UNDER_A_NAME[kind], named))
                case MessageKind.APPEND if peer and row[0] in removed:
                    continue
                case _:
                    put_right.append(write_message(kind, row))
        return b"".join(put_right).hex()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_renderer_and_a_room_are_told_the_same_bytes_in_every_tick(seed: int) -> None:
    room = Room(seed)
    for _ in range(TICKS):
        room.tick()
    peers = ("renderer", "network", "network")
    run = {"components": NAMES, "set": SET_NAME, "maxValues": MAX_VALUES, "peers": peers, "ticks": room.ticks}
    for at, tick in enumerate(run_on_ecs(run)["log"]):
        chunks = [sent if isinstance(sent, str) else "".join(sent) for sent in tick["sent"]]
        theirs = [room.put_right(at, peer, sent) for peer, sent in enumerate(chunks)]
        assert (room.results[at], room.sent[at]) == (tick["results"], theirs), (seed, at, room.ticks[at])
    assert sum(map(len, room.removed)) > 10
