"""The world of scenes: an entity of kind `scene` is one scene, and the server that has it is the scene's authority.

The server applies what members write, and gives the entity the whole scene that comes out of it as an input of its own.
So a scene is in copies, and is handed over, as any other state. What members were told and no copy has is lost with a
failover; the next authority has another fence, so its generation is another one, and members take its state.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from batonpass.simserver.entity.own_inputs import OWN_SOURCE
from batonpass.simserver.sync.scene.codec import MessageKind, write_run
from batonpass.simserver.sync.scene.exchange import SceneRefusal
from batonpass.simserver.sync.scene.limits import SceneLimits
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
    "held_scene",
    "scenes_of",
    "state_input",
]

SCENES: Final = "batonpass.simserver.sync.scenes.world:SceneEntities"
"""How a configuration names this world."""

KIND: Final = "scene"
SERVER: Final = "server"
"""The name of the server's replica, which owns what no member does."""

# The whole of a scene is one input of its entity, beside others (`entity.inputs.MAX_PENDING_BYTES`).
HOSTED_SCENE_LIMITS: Final = SceneLimits(
    max_message_bytes=12 * 1024,
    max_queued_bytes=256 * 1024,
    max_state_bytes=96 * 1024,
    max_components=64,
    max_gone_ids=4_096,
)


class HeldScene(NamedTuple):
    """A scene of a state, and the owners of its entities."""

    scene: SceneReplica
    rights: WriteRights


def held_scene(state: Mapping[str, Any]) -> HeldScene:
    """The scene of an entity's state. Raises SceneRefusal, ValueError: it is none."""
    rights = WriteRights(SERVER)
    for entity, owner in state["owners"]:
        rights.give(entity, owner)
    scene = SceneReplica(SERVER, limits=HOSTED_SCENE_LIMITS, keep_unknown=True, rights=rights)
    scene.hydrate(state["messages"])
    return HeldScene(scene, rights)


def state_input(held: HeldScene) -> bytes:
    """The input by which an entity has this scene."""
    scene, rights = held
    messages = scene.snapshot() + write_run(MessageKind.DELETE_ENTITY, [scene.gone()])
    return encode([messages, [list(row) for row in rights.owners.items()]])


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
        state = {"messages": bytes.fromhex(main), "owners": []}
        try:
            held = held_scene(state)
        except SceneRefusal as refusal:
            raise ValueError(f"main is no scene: {refusal}") from refusal
        if len(state_input(held)) > HOSTED_SCENE_LIMITS.max_state_bytes:
            most = HOSTED_SCENE_LIMITS.max_state_bytes
            raise ValueError(f"main has {len(state['messages'])} bytes: a scene of at most {most} is hosted")
        return state

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        """A scene has no place of its own: operators and balance move it."""
        return None

    def may_sleep(self, state: Any) -> bool:
        """A scene sleeps while nothing is written."""
        return True

    def advance(self, state: Any, inputs: Sequence[PendingInput], dt_s: float, step: Step) -> Any:
        """One tick: the scene that its server has given last."""
        for item in reversed(inputs):
            given = _read(item.data) if item.source == OWN_SOURCE else None
            if given is not None:
                return given
        return state


def _read(data: bytes) -> dict[str, Any] | None:
    """The state that `state_input` wrote; None if it is anything else, as from a server of another release."""
    try:
        messages, owners = decode_untrusted(data)
        state = {"messages": messages, "owners": [[int(entity), str(owner)] for entity, owner in owners]}
        held_scene(state)
    except (BadData, KeyError, TypeError, ValueError, SceneRefusal):
        return None
    return state


def scenes_of(world: object) -> SceneEntities | None:
    """The scenes of a server's world: the world itself, or its `scenes`, if some of its entities are scenes."""
    found = world if isinstance(world, SceneEntities) else getattr(world, "scenes", None)
    return found if isinstance(found, SceneEntities) else None
