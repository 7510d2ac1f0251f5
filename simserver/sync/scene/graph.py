"""The graph of a scene: where its entities are, and who wrote what of them."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from batonpass.simserver.sync.scene.component_numbers import CORE_COMPONENTS
from batonpass.simserver.sync.scene.replica import SceneReplica
from batonpass.simserver.sync.scene.rights import MAX_DEPTH
from batonpass.simserver.sync.scene.schemas import (
    TRANSFORM_BYTES,
    TRANSFORM_SCHEMA,
    Quaternion,
    SceneTransform,
    Vector3,
)
from batonpass.simserver.sync.scene.store import TRANSFORM

__all__ = ["scene_graph", "world_places"]

_SHOWN_BYTES: Final = 64
_NAMES: Final[Mapping[int, str]] = MappingProxyType({number: name for name, number in CORE_COMPONENTS.items()})


class _Placed(NamedTuple):
    position: Vector3
    rotation: Quaternion
    scale: Vector3


_ROOT: Final = _Placed(Vector3(), Quaternion(), Vector3(1.0, 1.0, 1.0))


def world_places(transforms: Mapping[int, bytes | None]) -> dict[int, Vector3]:
    """Where entities are, in the scene's metres.

    Who is in a circle of parents, or below more than `MAX_DEPTH` of them, is taken to be below the root (ADR-153).

    Args:
        transforms: the values of Transform, by entity. What is none, or has a NaN, is left out.
    """
    read = {entity: own for entity, data in transforms.items() if (own := _transform(data)) is not None}
    placed: dict[int, _Placed] = {}
    for entity in read:
        path: list[int] = []
        above = entity
        while above in read and above not in placed and above not in path and len(path) < MAX_DEPTH:
            path.append(above)
            above = read[above].parent
        base = placed.get(above, _ROOT)
        for below in reversed(path):
            base = placed[below] = _below(base, read[below])
    return {entity: at.position for entity, at in placed.items() if all(map(math.isfinite, at.position))}


def _transform(data: bytes | None) -> SceneTransform | None:
    if data is None or len(data) != TRANSFORM_BYTES:
        return None
    read: SceneTransform = TRANSFORM_SCHEMA.decode_untrusted(data)
    numbers = (*read.position, *read.rotation, *read.scale)
    return read if all(map(math.isfinite, numbers)) else None


def _below(base: _Placed, own: SceneTransform) -> _Placed:
    scaled = Vector3(*(size * at for size, at in zip(base.scale, own.position, strict=True)))
    turned = _turned(base.rotation, scaled)
    position = Vector3(*(one + other for one, other in zip(base.position, turned, strict=True)))
    scale = Vector3(*(one * other for one, other in zip(base.scale, own.scale, strict=True)))
    return _Placed(position, _product(base.rotation, own.rotation), scale)


def _product(one: Quaternion, other: Quaternion) -> Quaternion:
    ax, ay, az, aw = one
    bx, by, bz, bw = other
    return Quaternion(
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )


def _turned(by: Quaternion, what: Vector3) -> Vector3:
    x, y, z, w = by
    back = Quaternion(-x, -y, -z, w)
    return Vector3(*_product(_product(by, Quaternion(*what, 0.0)), back)[:3])


def scene_graph(scene: SceneReplica, at_most: int = 1_000) -> dict[str, Any]:
    """A scene for people, as JSON data: each entity with its parent, place and components.

    Of very many entities those with the `at_most` lowest ids are there; `all_entities` says how many there are.

    Of a component, `writer` wrote the value in tick `tick` of the replica here, `authority` took it, and `timestamp` is
    that of the write. `owner` of an entity is who may write it; None: all may.
    """
    transforms = scene.elements(TRANSFORM).values
    places = world_places(transforms)
    tables = [scene.elements(number) for number in scene.component_numbers]
    there = {entity for elements in tables for entity, data in elements.values.items() if data is not None}
    entities: dict[int, list[dict[str, Any]]] = {entity: [] for entity in sorted(there)[:at_most]}
    for elements in tables:
        for entity, components in entities.items():
            data = elements.values.get(entity)
            if data is None:
                continue
            writer, tick, authority = elements.origins.get(entity, ("", 0, ""))
            components.append(
                {
                    "component": elements.component,
                    "name": _NAMES.get(elements.component, ""),
                    "bytes": len(data),
                    "data": data[:_SHOWN_BYTES].hex(),
                    "timestamp": elements.timestamp(entity),
                    "writer": writer,
                    "tick": tick,
                    "authority": authority,
                }
            )
    return {
        "scene": scene.name,
        "tick": scene.tick,
        "all_entities": len(there),
        "entities": [
            {
                "entity": entity,
                "parent": 0 if (own := _transform(transforms.get(entity))) is None else own.parent,
                "place": list(places[entity]) if entity in places else None,
                "owner": scene.owner(entity),
                "components": components,
            }
            for entity, components in entities.items()
        ],
    }
