"""What bytes of components mean: vectors/schemas.json, and bytes that mean nothing."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.simserver.sync.scene import schemas
from batonpass.simserver.sync.scene.component_numbers import CORE_COMPONENTS, MAX_STATIC_COMPONENT, component_number
from batonpass.simserver.sync.scene.schemas import BadValue, Color4, Quaternion, SceneSchema, SceneTransform, Vector3
from tests.simserver.sync.scene.vector_files import vectors

VECTORS: Final = vectors("schemas")
SCHEMAS: Final[dict[str, SceneSchema]] = {
    "Boolean": schemas.BOOLEAN,
    "Byte": schemas.BYTE,
    "Short": schemas.SHORT,
    "Int": schemas.INT,
    "Int64": schemas.INT64,
    "Number": schemas.FLOAT,
    "Float": schemas.FLOAT,
    "Double": schemas.DOUBLE,
    "String": schemas.STRING,
    "Vector3": schemas.VECTOR3,
    "Quaternion": schemas.QUATERNION,
    "Entity": schemas.ENTITY,
    "Color4": schemas.COLOR4,
    "Array(Int)": schemas.array_of(schemas.INT),
    "Optional(Int) present": schemas.optional(schemas.INT),
    "Optional(Int) absent": schemas.optional(schemas.INT),
    "Map{a:Int,b:String}": schemas.map_of({"a": schemas.INT, "b": schemas.STRING}),
}
TUPLES: Final[dict[str, Any]] = {"Vector3": Vector3, "Quaternion": Quaternion, "Color4": Color4}


@pytest.mark.parametrize(
    "vector", VECTORS["primitives"], ids=lambda vector: f"{vector['schema']} {vector.get('value')}"
)
def test_a_value_is_the_bytes_that_it_is_there(vector: dict[str, Any]) -> None:
    schema, value = SCHEMAS[vector["schema"]], vector.get("value")
    if vector["schema"] in TUPLES:
        value = TUPLES[vector["schema"]](**vector["value"])
    assert schema.encode(value).hex() == vector["hex"]
    read = schema.decode_untrusted(bytes.fromhex(vector["hex"]))
    assert read == (pytest.approx(value) if isinstance(value, float) else value)


def test_a_transform_is_44_bytes_as_there() -> None:
    for vector in VECTORS["transform"]:
        value = vector["value"]
        transform = SceneTransform(
            Vector3(**value["position"]), Quaternion(**value["rotation"]), Vector3(**value["scale"]), value["parent"]
        )
        data = schemas.TRANSFORM_SCHEMA.encode(transform)
        assert data.hex() == vector["hex"]
        assert len(data) == schemas.TRANSFORM_BYTES == 44
        assert schemas.TRANSFORM_SCHEMA.encode(schemas.TRANSFORM_SCHEMA.decode_untrusted(data)) == data


def test_a_component_has_the_number_that_its_name_has_there() -> None:
    for vector in VECTORS["componentNumberFromName"]:
        assert component_number(vector["name"]) == vector["number"]
    assert all(number < MAX_STATIC_COMPONENT for number in CORE_COMPONENTS.values())
    assert len(set(CORE_COMPONENTS.values())) == len(CORE_COMPONENTS)


def test_a_name_that_is_longer_than_what_is_hashed_has_no_number() -> None:
    assert component_number("x" * 128)
    with pytest.raises(ValueError, match="129 bytes"):
        component_number("x" * 129)


@given(st.sampled_from([*SCHEMAS.values(), schemas.TRANSFORM_SCHEMA]), st.binary(max_size=60))
def test_bytes_are_a_value_or_refused(schema: SceneSchema, data: bytes) -> None:
    try:
        value = schema.decode_untrusted(data)
    except BadValue:
        return
    # By their bytes: a NaN equals nothing.
    assert schema.encode(schema.decode_untrusted(schema.encode(value))) == schema.encode(value)


def test_an_array_of_nothing_does_not_take_for_ever() -> None:
    nothing = schemas.array_of(schemas.map_of({}))
    assert nothing.decode_untrusted(bytes.fromhex("03000000")) == [{}, {}, {}]
    with pytest.raises(BadValue, match="take no bytes"):
        nothing.decode_untrusted(bytes.fromhex("ffffffff"))


@pytest.mark.parametrize("data", ["05000000616263", "01000000ff", "ffffffff"])
def test_a_text_that_is_none_is_refused(data: str) -> None:
    with pytest.raises(BadValue):
        schemas.STRING.decode_untrusted(bytes.fromhex(data))
