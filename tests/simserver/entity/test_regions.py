"""Which table a server follows, and which of its world's words count."""

from typing import Any

import pytest

from batonpass.authority.fence import Fence
from batonpass.authority.model.regions import RegionTable, divided
from batonpass.simserver.entity.regions import FollowedRegions, follows_regions
from batonpass.simserver.world.demo_balls import Balls
from tests.homeserver.drifters import Drifters
from tests.simserver.stage import ADA, BALL, Stage

pytestmark = pytest.mark.usefixtures("either_kind")

S1, S2 = "alpha.s1", "alpha.s2"
PERIOD_S = 0.05
HALVES = RegionTable(3, 1, divided([S1, S2], (0,), (10,)), hold_s=1.0)


def followed(table: RegionTable = HALVES) -> FollowedRegions:
    regions = FollowedRegions()
    assert regions.told(table, 0)
    return regions


def test_a_later_table_is_followed_and_an_earlier_one_only_if_it_is_known_what_it_replaces() -> None:
    regions, changes = followed(), list[int]()
    regions.listen(lambda: changes.append(regions.digest))
    later, earlier = RegionTable(4, 1, S1), RegionTable(2, 1, S2)
    assert not regions.told(HALVES, HALVES.digest)
    assert not regions.told(earlier, 0)
    assert not regions.told(RegionTable(3, 1, S2), later.digest)
    assert not regions.told(None, 0)
    assert regions.told(later, 0)
    assert regions.told(earlier, later.digest)
    assert regions.told(None, earlier.digest)
    assert changes == [later.digest, earlier.digest, 0]
    assert regions.told(earlier, 0)


def destination(regions: FollowedRegions, at: float, ticks_here: int = 20, here: str = S1) -> str | None:
    return regions.destination(Drifters(), {"at": at}, here, ticks_here, PERIOD_S)


def test_an_entity_goes_where_the_table_says_once_it_was_held() -> None:
    regions = followed()
    assert destination(regions, 4.0) is None
    assert destination(regions, 5.0) == S2
    assert destination(regions, 5.0, ticks_here=19) is None
    assert destination(regions, 5.0, here=S2) is None
    assert destination(regions, -1.0, here=S2) is None, "it is nowhere"
    assert destination(FollowedRegions(), 5.0) is None


def test_a_world_with_a_destination_is_asked_that_and_follows_no_table() -> None:
    class Both(Drifters):
        def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
            return "alpha.s9" if ticks_here else "nonsense"

    regions = followed()
    assert regions.destination(Both(), {"at": 7.0}, S1, 1, PERIOD_S) == "alpha.s9"
    with pytest.raises(ValueError, match="nonsense"):
        regions.destination(Both(), {"at": 7.0}, S1, 0, PERIOD_S)
    assert [follows_regions(world) for world in (Both(), Balls(), Drifters())] == [False, False, True]


@pytest.mark.parametrize("said", [7, object()])
def test_what_is_no_position_is_a_fault_of_the_world(said: Any) -> None:
    class Lost(Drifters):
        def position(self, state: Any) -> Any:
            return said

    with pytest.raises(TypeError):
        followed().destination(Lost(), {}, S1, 99, PERIOD_S)


def test_what_is_held_does_not_sleep_before_it_was_asked_where_it_belongs() -> None:
    """Asleep it would have no tick that asks, and stay."""
    nobody: Any = None
    stage = Stage(nobody, S2, Drifters())
    stage.environment.regions.told(HALVES, 0)
    life = stage.life(Fence(1), stage.fresh("drifter"))
    # It came asleep, which is looked at elsewhere, and an input wakes it.
    life.take_input(ADA, 1, 1, b"", 0, 0)
    for _ in range(round(HALVES.hold_s / PERIOD_S)):
        assert stage.wishes == []
        stage.tick(life)
        assert life.sleep is None
    assert stage.wishes == [(BALL, S1)]
    stage.environment.regions.told(RegionTable(4, 1, S2), 0)
    stage.tick(life)
    assert life.sleep is not None
