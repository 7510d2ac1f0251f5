"""The state of a simulation: all that a snapshot holds, and nothing that it does not hold."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import cbor2

from batonpass.simserver.sync.lockstep.acts import StepGuard, TracedXoshiro128
from batonpass.simserver.sync.lockstep.canonical import NotCanonical, decode_untrusted_state, encode
from batonpass.simserver.sync.lockstep.entity import FieldRefused, SimEntity, accept_all, encode_row, fields_of
from batonpass.simserver.sync.lockstep.generator import Xoshiro128

__all__ = ["MAX_SNAPSHOT_BYTES", "Scene", "SnapshotRefused"]

MAX_SNAPSHOT_BYTES: Final = 4 * 1024 * 1024
# In the canonical order.
_FORM: Final = tuple(encode(name) for name in ("Next", "Tick", "Random", "Pending", "Entities"))


class SnapshotRefused(ValueError):
    """Bytes are no snapshot of this game; the sentence says what is wrong with them. Nothing was changed."""


class Scene:
    """Tick, generator, entities, and what was asked for and waits for the end of the tick.

    Args:
        sim: the driver, for entities.
        guard: whether a step is being taken.
        kinds: the classes that may be spawned.
    """

    def __init__(self, sim: Any, guard: StepGuard, kinds: Iterable[type[SimEntity]]) -> None:
        self._sim: Final = sim
        self._guard: Final = guard
        self._kinds: Final = {kind.__name__: kind for kind in kinds}
        for kind in self._kinds.values():
            fields_of(kind)
        self.tick = 0
        self.clear("")

    def clear(self, seed: str) -> None:
        """Remove everything, without a word to it, and seed the generator. The tick stays."""
        state = Xoshiro128.seeded(seed).state
        self.generator: Xoshiro128 = TracedXoshiro128(state, self._guard) if self._guard.traced else Xoshiro128(state)
        self.next_id = 1
        self.entities: dict[int, SimEntity] = {}
        self._spawns: list[tuple[int, type[SimEntity], dict[str, Any]]] = []
        self._removals: dict[int, None] = {}

    def spawn(self, kind: type[SimEntity], values: Mapping[str, Any]) -> int:
        """Ask for an entity at the end of the tick. Returns its id."""
        if self._kinds.get(kind.__name__) is not kind:
            raise FieldRefused(
                f"{kind.__name__} is not among the kinds of {type(self._sim).__name__}: add it to `kinds`"
            )
        id = self.next_id
        self._spawns.append((id, kind, accept_all(kind, values)))
        self.next_id += 1
        return id

    def remove(self, id: int) -> None:
        """Ask for an entity to leave at the end of the tick; asking again changes nothing."""
        if id not in self.entities and all(spawned != id for spawned, *_ in self._spawns):
            raise KeyError(f"there is no entity {id} to be removed")
        self._removals[id] = None

    def flush(self) -> None:
        """Add what was spawned, then remove what was removed; what these ask for waits for the next tick."""
        spawns, self._spawns = self._spawns, []
        removals, self._removals = self._removals, {}
        for id, kind, values in spawns:
            self.entities[id] = entity = kind(self._sim, self._guard, id, values)
            entity.sim_enter()
        for id in removals:
            leaving = self.entities.pop(id)
            # Asked for again meanwhile, by what entered or left before it: it leaves once.
            self._removals.pop(id, None)
            leaving.sim_exit()

    def encoded(self) -> bytes:
        """Return the canonical bytes of the whole state; in trace mode, all of it is encoded afresh."""
        rows = [entity.encoded(afresh=self._guard.traced) for entity in self.entities.values()]
        pending = [encode_row(*spawn) for spawn in self._spawns] + [encode([id]) for id in self._removals]
        parts = (
            encode(self.next_id),
            encode(self.tick),
            encode(self.generator.state),
            _array(pending),
            _array(rows),
        )
        return b"\xa5" + b"".join(name + part for name, part in zip(_FORM, parts, strict=True))

    def restore(self, data: bytes) -> None:
        """Become the state of bytes that may come from any client. Raises `SnapshotRefused`, and is unchanged then."""
        other = Scene(self._sim, self._guard, self._kinds.values())
        try:
            other._read(data)
            same = other.encoded() == data
        except (NotCanonical, FieldRefused, ValueError, TypeError, KeyError) as error:
            raise SnapshotRefused(
                f"these {len(data)} bytes are no snapshot of {type(self._sim).__name__}: {error}"
            ) from error
        if not same:
            raise SnapshotRefused(f"this snapshot has more in it than {type(self._sim).__name__} would write")
        self.__dict__.update(other.__dict__)

    def _read(self, data: bytes) -> None:
        if len(data) > MAX_SNAPSHOT_BYTES:
            raise ValueError(f"a snapshot has at most {MAX_SNAPSHOT_BYTES} bytes")
        state = decode_untrusted_state(data)
        self.tick, self.next_id = _count(state["Tick"]), _count(state["Next"])
        self.generator.state = state["Random"]
        for id, name, values in state["Entities"]:
            kind = self._kind(id, name)
            self.entities[id] = kind(self._sim, self._guard, id, accept_all(kind, values))
        for row in state["Pending"]:
            if len(row) == 1:
                self.remove(row[0])
            else:
                id, name, values = row
                kind = self._kind(id, name)
                self._spawns.append((id, kind, accept_all(kind, values)))

    def _kind(self, id: Any, name: Any) -> type[SimEntity]:
        known = {*self.entities, *(spawned for spawned, *_ in self._spawns)} if self._spawns else self.entities
        if not 0 < _count(id) < self.next_id or id in known:
            raise ValueError(f"{id} is no id of an entity, or of two")
        if name not in self._kinds:
            raise ValueError(f"{name!r} is not among its kinds")
        return self._kinds[name]


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _array(members: list[bytes]) -> bytes:
    """The canonical bytes of an array of encoded members: the head of a length is like that of an integer."""
    head = bytearray(cbor2.dumps(len(members)))
    head[0] |= 0x80
    return bytes(head) + b"".join(members)
