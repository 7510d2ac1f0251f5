"""What is watched and no door shows: gone if home says so, or if it has left an area; else it is on its way."""

from dataclasses import replace
from typing import Any

import pytest

from batonpass.authority.wire.door import DoorRefusal
from batonpass.client.mirror import WatchedEntity
from batonpass.client.subscription import subscription
from batonpass.client.tick_clock import TickClock
from batonpass.client.watch import GRACE_S, EntityWatch

BALL = WatchedEntity("alpha.ball-1", "ball", "alpha.ada", (1, 0), 7, 40, {"p": [0, 0]})
NOTHING: dict[str, Any] = {
    "entity": "",
    "owner": "",
    "pattern": "",
    "centre": None,
    "around": "",
    "radius": None,
    "rate_hz": 20.0,
}


class Watched:
    def __init__(self, **asked: Any) -> None:
        self.now_s = 0.0
        self.watch = EntityWatch(subscription(**NOTHING | asked), lambda: self.now_s, lambda watch: None)
        self.clock = TickClock(20.0)
        self.watch.show("alpha.s1", [BALL], self.clock)

    def look(self, *, after_s: float, is_complete: bool = True) -> list[str]:
        self.now_s += after_s
        return self.watch.look(is_complete=is_complete)


@pytest.mark.parametrize("asked", [{"pattern": "alpha.*"}, {"owner": "alpha.ada"}])
async def test_what_no_door_shows_is_asked_for_at_home_again_and_again_and_stays_known(asked: dict[str, Any]) -> None:
    seen = Watched(**asked)
    assert seen.look(after_s=10 * GRACE_S) == []
    seen.watch.lose_all("alpha.s1")
    assert seen.look(after_s=GRACE_S / 2) == []
    assert seen.look(after_s=GRACE_S, is_complete=False) == []
    assert seen.look(after_s=GRACE_S) == ["alpha.ball-1"]
    assert seen.look(after_s=GRACE_S / 2) == []
    assert seen.look(after_s=GRACE_S) == ["alpha.ball-1"]
    assert list(seen.watch.entities) == ["alpha.ball-1"]
    seen.watch.show("alpha.s2", [BALL], seen.clock)
    assert seen.look(after_s=10 * GRACE_S) == []
    change = await anext(seen.watch)
    assert (change.is_gone, change.server) == (False, "alpha.s2")
    seen.watch.deleted("alpha.ball-1")
    assert (await anext(seen.watch)).is_gone
    assert seen.watch.entities == {}


async def test_what_no_door_shows_has_left_an_area() -> None:
    seen = Watched(centre=(0.0, 0.0), radius=9.0)
    seen.watch.lose_all("alpha.s1")
    assert seen.look(after_s=2 * GRACE_S, is_complete=False) == []
    assert list(seen.watch.entities) == ["alpha.ball-1"]
    assert seen.look(after_s=2 * GRACE_S) == []
    assert (await anext(seen.watch)).is_gone
    assert seen.watch.entities == {}


async def test_a_word_of_the_past_is_not_shown() -> None:
    seen = Watched(pattern="alpha.*")
    await anext(seen.watch)
    later = WatchedEntity("alpha.ball-1", "ball", "alpha.ada", (2, 0), 5, 90, {"p": [1, 0]})
    seen.watch.show("alpha.s2", [later], seen.clock)
    seen.watch.show("alpha.s1", [BALL], seen.clock)
    change = await anext(seen.watch)
    # After a failover ticks may be fewer: those that died with their server.
    assert (change.entity, change.ticks, change.server) == (later, -2, "alpha.s2")


@pytest.mark.parametrize("asked", [{"pattern": "alpha.*"}, {"centre": (0.0, 0.0), "radius": 9.0}])
async def test_a_watch_that_is_closed_ends_its_loop_at_once_whatever_has_come(asked: dict[str, Any]) -> None:
    seen = Watched(**asked)
    seen.watch.deleted("alpha.ball-1")
    seen.watch.show("alpha.s1", [BALL, replace(BALL, name="alpha.ball-2")], seen.clock)
    seen.watch.close()
    assert [change async for change in seen.watch] == []


async def test_a_refusal_is_there_for_who_reads_no_changes() -> None:
    seen = Watched(centre=(0.0, 0.0), radius=9.0)
    before = seen.watch.refused
    seen.watch.refuse("alpha.s1", DoorRefusal(id=1, code="area_too_large", message="at most 256 cells"))
    after = seen.watch.refused
    assert before is None
    assert after is not None
    assert (after.code, str(after)) == ("area_too_large", "alpha.s1: at most 256 cells")
