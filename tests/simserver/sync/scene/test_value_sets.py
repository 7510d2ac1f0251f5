"""Sets that only grow: every history of vectors/gos_traces.json, and what the profiles do with a full set."""

import struct
from typing import Any, Final

from batonpass.simserver.sync.scene.profiles import HAMMURABI, SDK_7_28, UNITY_EXPLORER_2026_08, InteropProfile
from batonpass.simserver.sync.scene.value_sets import GrowOnlySets
from tests.simserver.sync.scene.vector_files import vectors

HERE: Final = ("here", 0, "here")
ENTITY: Final = 512
COMPONENT: Final = 1063


def order(data: bytes) -> int:
    return struct.unpack_from("<I", data)[0] if len(data) >= 4 else 0


def data_of(value: dict[str, int]) -> bytes:
    return struct.pack("<2I", value["t"], value["v"])


def test_every_recorded_history_goes_as_there() -> None:
    for trace in vectors("gos_traces")["traces"]:
        sets = GrowOnlySets(COMPONENT, max_values=trace["maxElements"], order=order)
        for step in trace["steps"]:
            match step["op"]:
                case "add":
                    sets.add(ENTITY, data_of(step["value"]), HERE)
                case "recv":
                    sets.merge(ENTITY, data_of(step["value"]), HERE)
                case "flush":
                    sent = [row for run in sets.flush() for row in run.rows]
                    recorded = [
                        (row["entityId"], row["componentId"], row["timestamp"], bytes.fromhex(row["data"]))
                        for row in step["sent"]
                    ]
                    assert sent == recorded, step
                case _:
                    raise ValueError(step)
            state: list[Any] = [list(struct.unpack("<2I", value.data)) for value in sets.values(ENTITY)]
            assert state == step["state"], step
        assert sets.snapshot().hex() == trace["dump"]


def filled(profile: InteropProfile) -> list[int]:
    sets = GrowOnlySets(COMPONENT, profile)
    for number in [0, 0, *range(1, 101)]:
        sets.merge(ENTITY, struct.pack("<I", number), HERE)
    return [order(value.data) for value in sets.values(ENTITY)]


def test_a_set_that_is_full_loses_the_oldest_or_all_as_the_profile_says() -> None:
    assert filled(SDK_7_28) == list(range(1, 101))
    assert filled(UNITY_EXPLORER_2026_08) == [100]
    assert filled(HAMMURABI) == list(range(91, 101))


def test_a_value_that_is_older_than_all_of_a_full_set_is_not_taken() -> None:
    sets = GrowOnlySets(COMPONENT, max_values=1, order=order)
    assert sets.merge(ENTITY, struct.pack("<I", 5), HERE)
    assert not sets.merge(ENTITY, struct.pack("<I", 4), HERE)
    assert sets.merge(ENTITY, struct.pack("<I", 5), HERE)
