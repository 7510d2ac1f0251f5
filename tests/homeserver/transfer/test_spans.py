"""What a homeserver tells of its decisions: when each began and ended, how, and with how many others."""

from collections import Counter
from typing import Any

import trio
from hypothesis import given, settings

from batonpass.authority.fence import Fence
from batonpass.authority.node.spans import BULK, DECISION, GROUP
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.tree.raft.submissions import NoQuorum
from tests.authority.log import BALL, OTHER, S2, S3
from tests.authority.node.test_spans import Ear
from tests.budget import examples
from tests.homeserver.batched import MESSAGES, THIRD, Home, alone, handoff, log_of_three, together


def stops(ear: Ear, prefix: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Of which transfer, how it ended, and why."""
    told = [metadata for event, _, metadata in ear.heard if event == (*prefix, "stop")]
    return [(one["transfer_id"], one["outcome"], one["reason"]) for one in told]


def unpaired(ear: Ear) -> Counter[Any]:
    starts = Counter(metadata["span"] for event, _, metadata in ear.heard if event[-1] == "start")
    starts.subtract(metadata["span"] for event, _, metadata in ear.heard if event[-1] == "stop")
    return Counter({span: count for span, count in starts.items() if count})


async def test_a_decision_alone_is_told_with_its_fence() -> None:
    ear = Ear()
    home = Home(log_of_three(), ear.spans)
    await alone(home, [handoff("t-000001")])
    (start, (_, measurements, metadata)) = ear.heard
    assert (start[2]["fence"], metadata["fence"]) == (Fence(1), Fence(2)), "frozen under one, led to the next"
    assert (metadata["outcome"], metadata["case"], metadata["target"]) == ("committed", "2", S2)
    assert (start[2]["mode"], metadata["mode"]) == ("", "eager"), "as the log has it"
    assert (measurements["steps"], measurements["rule_s"], measurements["commit_s"]) == (1, 0.0, 0.0)


async def test_decisions_of_one_parcel_share_a_step_and_say_so() -> None:
    ear = Ear()
    home = Home(log_of_three(), ear.spans)
    await together(home, [handoff("t-000001"), handoff("t-000002", OTHER, S3), handoff("t-000003", THIRD, epoch=2)])
    assert [(one, outcome) for one, outcome, _ in stops(ear, DECISION)] == [
        ("t-000001", "committed"),
        ("t-000002", "committed"),
        ("t-000003", "refused"),
    ]
    assert {m["steps"] for event, m, _ in ear.heard if event == (*DECISION, "stop")} == {3}
    assert stops(ear, BULK) == [("", "done", "")]
    assert unpaired(ear) == Counter()


async def test_where_nothing_is_decided_that_is_told_too() -> None:
    ear = Ear()
    home = Home(log_of_three(), ear.spans)
    home.kept.fails = NoQuorum("nobody leads")
    await together(home, [handoff("t-000001"), handoff("t-000002", OTHER)])
    await alone(home, [handoff("t-000003", THIRD)])
    assert stops(ear, DECISION) == [(f"t-00000{number}", "failed", "NoQuorum") for number in (1, 2, 3)]
    assert stops(ear, BULK) == [("", "failed", "NoQuorum")]


async def test_a_group_is_pending_until_its_last_and_then_the_others_are_told() -> None:
    ear = Ear()
    home = Home(log_of_three(), ear.spans)
    home.kept.log.run("group.propose", group="group-001", entities=[BALL, OTHER], target=S2, now_s=0.0)
    await alone(home, [handoff("group-001-0"), handoff("group-001-1", OTHER)])
    assert [outcome for _, outcome, _ in stops(ear, DECISION)] == ["pending", "committed"]
    assert stops(ear, GROUP) == [("group-001-1", "committed", "")]
    assert {one["mode"] for event, _, one in ear.heard if event[:-1] == GROUP} == {"eager"}
    assert [m["members"] for event, m, _ in ear.heard if event == (*GROUP, "start")] == [2]


@settings(max_examples=examples(30))
@given(MESSAGES, MESSAGES)
def test_whatever_comes_each_start_has_one_stop(before: list[OpenedMessage], messages: list[OpenedMessage]) -> None:
    async def decide() -> None:
        ear = Ear()
        home = Home(log_of_three(), ear.spans)
        await alone(home, before)
        await together(home, messages)
        assert (unpaired(ear), ear.spans.open) == (Counter(), 0)

    trio.run(decide)
