"""The worlds on a timeline: as a naive replay has them, to the byte, and nothing passes through anything (T4, T5)."""

from collections.abc import Callable
from itertools import combinations
from math import dist
from typing import Any, NamedTuple

import pytest

from batonpass.scenarios.timeline import circles, collisions, handshakes
from batonpass.simserver.sync.timeline.audit import AuditedSteward
from batonpass.simserver.sync.timeline.events import Accessor, TimelineEvent
from batonpass.simserver.sync.timeline.ids import id_of
from batonpass.simserver.sync.timeline.persistence import PersistentTypes, dump, load_untrusted
from batonpass.simserver.sync.timeline.replay import FiatEvent, PlainReplay
from batonpass.simserver.sync.timeline.snapshot import TimelineSnapshot
from batonpass.simserver.sync.timeline.steward import TimeSteward


class Example(NamedTuple):
    make: Callable[[Accessor], Any]
    types: PersistentTypes
    end: int
    event: Callable[[int], TimelineEvent]


EXAMPLES = {
    "handshakes": Example(
        handshakes.make_philosophers,
        PersistentTypes(handshakes.TYPES),
        2_000,
        lambda number: handshakes.Tweak(number % 7),
    ),
    "circles": Example(
        circles.make_circles,
        PersistentTypes(circles.TYPES),
        2_000,
        lambda number: circles.Throw(number, (100 * number - 300, 200)),
    ),
    "collisions": Example(
        lambda now: collisions.make_collisions(now, 20),
        PersistentTypes(collisions.TYPES),
        600,
        lambda number: collisions.Kick(number, (number - 3, 5)),
    ),
}


def before(steward: TimeSteward, base: int) -> TimelineSnapshot:
    snapshot = steward.snapshot_before(base)
    assert snapshot is not None
    return snapshot


@pytest.mark.parametrize("name", EXAMPLES)
def test_t4_inputs_that_are_put_into_the_past_and_taken_away_again_leave_no_trace(name: str) -> None:
    make, types, end, event = EXAMPLES[name]
    steward = TimeSteward(make)
    was = dump(before(steward, end), types)
    count = 20 if name == "handshakes" else 3
    fiats = [FiatEvent(end * (number + 1) // (count + 2), id_of(number), event(number)) for number in range(count)]
    for fiat in fiats:
        steward.insert_fiat_event(*fiat)
    changed = dump(before(steward, end), types)
    replay = PlainReplay(make, fiats)
    replay.run_until(end)
    assert changed == dump(replay, types) != was
    for fiat in fiats[::-1]:
        steward.remove_fiat_event(fiat.base, fiat.id)
    assert dump(before(steward, end), types) == was


@pytest.mark.parametrize("name", EXAMPLES)
def test_t5_what_is_saved_and_loaded_on_the_way_ends_as_what_was_not(name: str) -> None:
    make, types, end, event = EXAMPLES[name]
    steward = TimeSteward(make)
    steward.insert_fiat_event(end - 5, 1, event(0))
    loaded = steward
    for base in range(100, end, max(100, end // 6)):
        saved = dump(before(steward, base), types)
        assert dump(before(loaded, base), types) == saved
        loaded = load_untrusted(saved, types)
        loaded.insert_fiat_event(end - 5, 1, event(0))
    assert dump(before(loaded, end), types) == dump(before(steward, end), types)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_auditor_finds_no_fault(name: str) -> None:
    make, _, end, event = EXAMPLES[name]
    steward = AuditedSteward(make)
    steward.run_until(end // 8)
    steward.insert_fiat_event(end // 16, 1, event(0))
    before(steward, end // 10)
    steward.audit(end // 8)


def test_circles_pass_neither_through_each_other_nor_through_the_ring() -> None:
    steward = TimeSteward(circles.make_circles)
    steward.run_until(3_000)
    moved: set[int] = set()
    # Rounded towards not yet, and at least one unit on: what two circles move towards each other in one unit.
    closest = 4 * circles.SPEED
    for base in range(1, 3_000, 37):
        snapshot = before(steward, base)
        now: list[circles.Circle] = [snapshot.read(circle) for circle in steward.globals]
        for one, other in combinations(now, 2):
            assert distance(one.motion.at(base), other.motion.at(base)) > one.radius + other.radius - closest
        for one in now:
            assert distance(one.motion.at(base), (0, 0)) < circles.RING - one.radius + closest
        moved.update(now[0].motion.at(base))
    assert len(moved) > 50
    assert sum(isinstance(record.event, circles.Meet) for record in steward.history()) > 10


def test_a_kick_in_a_wide_world_concerns_few() -> None:
    steward = TimeSteward(collisions.make_collisions)
    steward.run_until(1_000)
    everything, steward.executed = steward.executed, 0
    steward.insert_fiat_event(900, 1, collisions.Kick(7, (5, 4)))
    steward.run_until(1_000)
    assert steward.executed < everything / 20


def distance(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    return dist(one, other)
