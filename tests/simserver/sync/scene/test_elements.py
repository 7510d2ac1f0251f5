"""Which write wins: vectors/data_compare.json, lww_traces.json, lww_convergence.json, and the other profiles."""

from typing import Any, Final

import pytest

from batonpass.simserver.sync.scene.codec import MAX_U32, MessageKind, SceneRun
from batonpass.simserver.sync.scene.elements import (
    MAX_TIMESTAMP,
    LwwElements,
    MergeOutcome,
    TimestampsUsedUp,
)
from batonpass.simserver.sync.scene.profiles import HAMMURABI, PROFILES, SDK_7_28, UNITY_EXPLORER_2026_08, TieBreak
from tests.simserver.sync.scene.vector_files import vectors

HERE: Final = ("here", 0, "here")
THERE: Final = ("there", 0, "there")
ENTITIES: Final = (512, 513)


def is_any(_entity: int) -> bool:
    return True


def unhexed(data: str | None) -> bytes | None:
    return None if data is None else bytes.fromhex(data)


def as_recorded(kind: int, row: tuple[Any, ...]) -> dict[str, Any]:
    message = dict(zip(("entityId", "componentId", "timestamp"), row, strict=False))
    return {"type": kind, **message} | ({"data": row[3].hex()} if kind == MessageKind.PUT else {})


def receive(elements: LwwElements, message: dict[str, Any]) -> MergeOutcome:
    return elements.merge(message["entityId"], message["timestamp"], unhexed(message.get("data")), THERE)


def flushed(runs: list[SceneRun]) -> list[dict[str, Any]]:
    return [as_recorded(run.kind, row) for run in runs for row in run.rows]


def correction(elements: LwwElements, entity: int) -> dict[str, Any]:
    """What upstream would tell the sender of a write that lost."""
    message = elements.state_message(entity)
    assert message is not None
    return as_recorded(*message)


def test_values_at_equal_timestamps_are_compared_as_there() -> None:
    for case in vectors("data_compare")["cases"]:
        one, other = unhexed(case["a"]), unhexed(case["b"])
        assert TieBreak.LONGEST.wins(one, other) - TieBreak.LONGEST.wins(other, one) == case["cmp"], case


def test_every_recorded_history_goes_as_there() -> None:
    for trace in vectors("lww_traces")["traces"]:
        elements = LwwElements(1)
        for step in trace["steps"]:
            match step["op"]:
                case "recv":
                    outcome = receive(elements, step["msg"])
                    assert (outcome is MergeOutcome.OUTDATED) == (step["correction"] is not None), step
                    if step["correction"] is not None:
                        assert correction(elements, step["msg"]["entityId"]) == step["correction"]
                case "set":
                    elements.put(step["entityId"], bytes.fromhex(step["data"]), HERE)
                case "mutate":
                    elements.mutate(step["entityId"], bytes.fromhex(step["data"]), HERE)
                case "delete":
                    elements.delete(step["entityId"], HERE)
                case "flush":
                    assert flushed(elements.flush(is_any)) == step["sent"], step
                case _:
                    raise ValueError(step)
            assert [elements.values.get(entity) for entity in ENTITIES] == [*map(unhexed, step["state"])], step
        assert elements.snapshot().hex() == trace["dump"]


def test_the_order_of_delivery_and_duplicates_make_no_difference() -> None:
    for case in vectors("lww_convergence")["cases"]:
        for order in case["deliveryOrders"]:
            elements = LwwElements(1)
            for at in order:
                receive(elements, case["log"][at])
            assert [elements.values.get(entity) for entity in ENTITIES] == [*map(unhexed, case["final"])]


@pytest.mark.parametrize(
    ("profile", "winner"), [(SDK_7_28, b"aa"), (UNITY_EXPLORER_2026_08, b"b"), (HAMMURABI, b"b")], ids=str
)
def test_the_profile_says_whether_the_longer_or_the_greater_value_wins(profile: Any, winner: bytes) -> None:
    for order in ([b"b", b"aa"], [b"aa", b"b"]):
        elements = LwwElements(1, profile)
        for data in order:
            elements.merge(512, 7, data, THERE)
        assert elements.values[512] == winner


def test_the_profiles_are_these() -> None:
    """What others do is a fact of its date: a change here needs a new name."""
    facts = {
        name: (profile.tie_break.value, profile.max_values, profile.overflow.value, profile.first_timestamp)
        for name, profile in PROFILES.items()
    }
    assert facts == {
        "sdk-7.28": ("longest", 100, "drop oldest", 1),
        "unity-explorer-2026-08": ("lexicographic", 100, "empty", 0),
        "hammurabi": ("lexicographic", 10, "drop oldest", 1),
    }
    assert [name for name, profile in PROFILES.items() if profile.knows_authoritative_put] == ["unity-explorer-2026-08"]
    assert all(profile.comms == (1, 2, 3) for profile in PROFILES.values())
    assert all(profile.reserved == 512 for profile in PROFILES.values())


def test_the_first_timestamp_is_the_profiles() -> None:
    for profile in PROFILES.values():
        elements = LwwElements(1, profile)
        elements.put(512, b"", HERE)
        assert list(elements.flush(is_any)[0].rows) == [(512, 1, profile.first_timestamp, b"")]


def test_a_change_back_to_what_was_received_is_sent_unless_the_profile_suppresses_it() -> None:
    sent = {}
    for profile in PROFILES.values():
        elements = LwwElements(1, profile)
        elements.merge(512, 7, b"same", THERE)
        elements.mutate(512, b"same", HERE)
        sent[profile.name] = len(elements.flush(is_any))
    assert sent == {"sdk-7.28": 0, "unity-explorer-2026-08": 1, "hammurabi": 1}


def test_a_write_that_leaves_no_timestamp_above_it_is_refused() -> None:
    elements = LwwElements(1)
    elements.merge(512, 1, b"good", THERE)
    assert elements.merge(512, MAX_TIMESTAMP + 1, b"bad", THERE) is MergeOutcome.REFUSED
    assert elements.merge(512, MAX_TIMESTAMP, b"last", THERE) is MergeOutcome.UPDATED
    elements.put(512, b"mine", HERE)
    assert list(elements.flush(is_any)[0].rows) == [(512, 1, MAX_TIMESTAMP + 1, b"mine")]


def test_timestamps_do_not_begin_again() -> None:
    elements = LwwElements(1)
    elements.force(512, MAX_U32, b"last", THERE)
    for change in (lambda: elements.put(512, b"mine", HERE), lambda: elements.delete(512, HERE)):
        with pytest.raises(TimestampsUsedUp):
            change()
    assert elements.values == {512: b"last"}
    elements.entity_removed(512, HERE)
    assert elements.values == {512: None}
    assert elements.flush(is_any) == []


def test_a_forced_write_holds_even_below_the_timestamp_that_is_there() -> None:
    elements = LwwElements(1)
    elements.merge(512, 9, b"mine", HERE)
    elements.force(512, 4, b"authority's", THERE)
    assert elements.state_message(512) == (MessageKind.PUT, (512, 1, 4, b"authority's"))
    assert elements.origins[512] == THERE


def test_who_is_outbid_does_not_lose_what_was_on_its_way() -> None:
    elements = LwwElements(1)
    elements.merge(512, 5, b"five", THERE)
    elements.outbid(512, 40, HERE)
    assert flushed(elements.flush(is_any)) == [as_recorded(MessageKind.PUT, (512, 1, 41, b"five"))]
    assert elements.merge(512, 5, b"FIVE", THERE) is MergeOutcome.OUTDATED, "it is none that was on its way"
    # Two writes that were made before word of 41 came, the second a deletion.
    assert elements.merge(512, 6, b"six", THERE) is MergeOutcome.UPDATED
    assert elements.merge(512, 6, b"SIX", THERE) is MergeOutcome.OUTDATED
    assert elements.merge(512, 7, None, THERE) is MergeOutcome.UPDATED
    assert flushed(elements.flush(is_any)) == [as_recorded(MessageKind.DELETE, (512, 1, 42))]
    # Who has heard of it goes on from there, and nothing of before counts any more.
    assert elements.merge(512, 43, b"later", THERE) is MergeOutcome.UPDATED
    assert elements.merge(512, 8, b"eight", THERE) is MergeOutcome.OUTDATED
    elements.outbid(512, 50, HERE)
    elements.put(512, b"mine", HERE)
    assert flushed(elements.flush(is_any)) == [as_recorded(MessageKind.PUT, (512, 1, 51, b"mine"))]
    assert elements.merge(512, 44, b"on its way", THERE) is MergeOutcome.OUTDATED, "what is changed here wins"
