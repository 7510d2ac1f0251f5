"""The world of scenes: an entity of kind `scene` is one scene, and the server that has it is the scene's authority.

The server applies what members write, and gives the entity what that has changed as inputs of its own. So a scene is in
copies, and is handed over, as any other state. What members were told and no copy has is lost with a failover. The next
authority has another fence, so its generation is another one, and members take its state.

A state is `{"parts": [bytes, ...]}`: a snapshot, and what has changed since, in order. Each part is CBOR of messages by
ids, and of rows of an entity and its owner, or "" for none. What a tick costs goes by what has changed in it: parts are
put together once those after the first are a quarter of it.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from batonpass.simserver.entity.own_inputs import OWN_SOURCE
from batonpass.simserver.sync.scene.codec import MessageKind, read_chunk_untrusted, write_run
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.folding import folded
from batonpass.simserver.sync.scene.limits import NETWORK_CHUNK_BYTES, VALUE_COST_BYTES, SceneLimits
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.rights import WriteRights
from batonpass.simserver.world.pending_input import PendingInput
from batonpass.simserver.world.step import Step
from batonpass.tree.data.data import decode_untrusted, encode
from batonpass.tree.data.errors import BadData

__all__ = [
    "HOSTED_SCENE_LIMITS",
    "KIND",
    "SCENES",
    "SERVER",
    "HeldScene",
    "SceneEntities",
    "change_inputs",
    "held_scene",
    "is_scene",
    "scenes_of",
]

SCENES: Final = "batonpass.simserver.sync.scenes.world:SceneEntities"
"""How a configuration names this world."""

KIND: Final = "scene"
SERVER: Final = "server"
"""The name of the server's replica, which owns what no member does."""

# A state is in each copy of its entity, with a quarter more and what waits in its inbox (`authority.limits`). A message
# must fit a chunk after it got the four bytes of a name.
HOSTED_SCENE_LIMITS: Final = SceneLimits(
    max_message_bytes=NETWORK_CHUNK_BYTES - 4,
    max_queued_bytes=256 * 1024,
    max_state_bytes=2 * 1024 * 1024,
    max_components=64,
    max_gone_ids=4_096,
)

_PART_BYTES: Final = 32 * 1024
"""Of one input: several have to wait in the inbox of the entity, beside those of others."""
_LENGTH: Final = struct.Struct("<I")
_OWNER_ROWS: Final = 256
_LEAST_TAIL_BYTES: Final = 16 * 1024
_MAX_PARTS: Final = 256


class HeldScene(NamedTuple):
    """A scene of a state, and the owners of its entities."""

    scene: SceneReplica
    rights: WriteRights


def is_scene(state: Mapping[str, Any]) -> bool:
    """Whether the state of an entity is that of a scene."""
    return "parts" in state


def _read(parts: Iterable[bytes]) -> tuple[bytes, dict[int, str]]:
    """The messages of all parts, and who owns what after them. Raises BadData, TypeError, ValueError: it is none."""
    owners: dict[int, str] = {}
    messages: list[bytes] = []
    for part in parts:
        changed, rows = decode_untrusted(part)
        messages.append(changed)
        owners.update(rows)
    return b"".join(messages), {entity: owner for entity, owner in owners.items() if owner}


def _part(messages: bytes, owners: Mapping[int, str]) -> bytes:
    return encode([messages, [list(row) for row in owners.items()]])


def held_scene(state: Mapping[str, Any]) -> HeldScene:
    """The scene of an entity's state. Raises BadData, SceneRefusal, TypeError, ValueError: it is none."""
    rights = WriteRights(SERVER)
    messages, owners = _read(state["parts"])
    for entity, owner in owners.items():
        rights.give(entity, owner)
    scene = SceneReplica(SERVER, limits=HOSTED_SCENE_LIMITS, keep_unknown=True, rights=rights)
    scene.hydrate(messages)
    rights.take_changed()
    return HeldScene(scene, rights)


def change_inputs(held: HeldScene, changes: bytes) -> list[bytes]:
    """The inputs by which an entity has what has changed in a tick; none if nothing has.

    Args:
        held: the scene; which owners have changed is asked of it once.
        changes: as of `SceneAuthority`.
    """
    rows = held.rights.take_changed()
    pieces = _pieces(changes if len(changes) <= _PART_BYTES else folded(changes))
    # Owners go first: without the messages they say nothing.
    inputs = [_part(b"", dict(rows[at : at + _OWNER_ROWS])) for at in range(0, len(rows), _OWNER_ROWS)]
    return inputs + [_part(piece, {}) for piece in pieces]


def _pieces(messages: bytes) -> Iterator[bytes]:
    """Whole messages, of `_PART_BYTES` at most unless one is longer by itself."""
    began = at = 0
    while at < len(messages):
        (length,) = _LENGTH.unpack_from(messages, at)
        if at + length - began > _PART_BYTES and at > began:
            yield messages[began:at]
            began = at
        at += length
    if at > began:
        yield messages[began:at]


class SceneEntities:
    """A world whose entities are scenes."""

    kinds = (KIND,)

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        """A new scene; `params["main"]` may have the messages of its `main.crdt` in hexadecimal digits."""
        if kind != KIND:
            raise ValueError(f"this world has scenes, no {kind!r:.40}")
        main = params.get("main", "")
        if not isinstance(main, str):
            raise ValueError(f"main is {main!r:.40}: give the bytes of main.crdt in hexadecimal digits")
        messages = bytes.fromhex(main)
        try:
            held = held_scene({"parts": [_part(messages, {})]})
        except SceneRefusal as refusal:
            raise ValueError(f"main is no scene: {refusal}") from refusal
        most = HOSTED_SCENE_LIMITS.max_state_bytes
        if (cost_bytes := held.scene.cost_bytes()) > most:
            raise ValueError(
                f"main takes {cost_bytes} bytes, with {VALUE_COST_BYTES} for each value: {most} at most are hosted"
            )
        gone = write_run(MessageKind.DELETE_ENTITY, [held.scene.gone()])
        return {"parts": [_part(held.scene.snapshot() + gone, {})]}

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        """A scene has no place of its own: operators and balance move it."""
        return None

    def may_sleep(self, state: Any) -> bool:
        """A scene sleeps while nothing is written."""
        return True

    def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
        """One tick: the scene with what its server has given."""
        given = [item.data for item in inputs if item.source == OWN_SOURCE and _is_part(item.data)]
        if not given:
            return state
        first, *rest = parts = [*state["parts"], *given]
        tail_bytes = sum(map(len, rest))
        if len(parts) > _MAX_PARTS or tail_bytes > max(_LEAST_TAIL_BYTES, len(first) // 4):
            messages, owners = _read(parts)
            parts = [_part(folded(messages), owners)]
        return {"parts": parts}


def _is_part(data: bytes) -> bool:
    """Whether it is what `change_inputs` wrote; it may be anything else, as from a server of another release."""
    try:
        messages, owners = decode_untrusted(data)
        is_owner = all(type(entity) is int and type(owner) is str for entity, owner in owners)
        read = read_chunk_untrusted(messages, HOSTED_SCENE_LIMITS.max_message_bytes)
    except (BadData, TypeError, ValueError):
        return False
    return is_owner and not read.refusal and not read.skipped and read.used_bytes == len(messages)


def scenes_of(world: object) -> SceneEntities | None:
    """The scenes of a server's world: the world itself, or its `scenes`, if some of its entities are scenes."""
    found = world if isinstance(world, SceneEntities) else getattr(world, "scenes", None)
    return found if isinstance(found, SceneEntities) else None
