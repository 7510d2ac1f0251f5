"""Home hears that a new entity lives when a follower and the own disk have it, and not before."""

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.simserver.durability.creation_barrier import MAX_ASKERS, PATIENCE_NS, CreationBarrier
from batonpass.simserver.durability.replication import Kept

BALL, HOME = "alpha.ball", "alpha.h1"
PATIENCE_S = PATIENCE_NS / 1e9


class TrioClock(Clock):
    """Trio's time, which a test lets pass."""

    @staticmethod
    def monotonic_ns() -> int:
        return round(trio.current_time() * 1e9)


class Place:
    """Holdings, a copier and a disk, of which a test says what they do."""

    def __init__(self, *, by_copy: bool = True, by_disk: bool = True) -> None:
        self.awaited = (by_copy, by_disk)
        self.has_room = True
        self.disk = trio.Event()
        self.disk.set()
        self.written: set[str] = set()
        self.living: dict[str, Any] = {}
        self.left: dict[str, Any] = {}
        self.copied: list[list[str]] = []
        self.hurried: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()
        this: Any = self
        self.creation_barrier = CreationBarrier(this, this, this, TrioClock(), self.counts)

    # As `Holdings`, `Replication` and `Ledger`.

    def get(self, entity: str) -> Any:
        return self.living.get(entity)

    def gone(self, entity: str) -> Any:
        return self.left.get(entity)

    def first_of(self, entity: str) -> None:
        self.hurried.append(entity)

    def awaited_of(self, _entity: str) -> tuple[bool, bool]:
        return self.awaited

    def tell_of_kept(self, kept: Kept) -> None:
        self._told_of_kept = kept

    def kept(self, entity: str, fence: Fence) -> None:
        """All followers have a copy."""
        self._told_of_kept(entity, fence, 0, {})

    async def copy_now(self, due: list[Any]) -> None:
        await trio.lowlevel.checkpoint()
        self.copied.append([holding.id for holding in due])

    def replicas_of(self, _entity: str) -> tuple[str, ...]:
        return ()

    def learn_replicas(self, then: Callable[[], None]) -> None:
        then()

    def owes_checkpoint(self, _entity: str) -> bool:
        return not self.has_room

    async def flush(self) -> None:
        noted = {name for some in self.copied for name in some}
        await self.disk.wait()
        self.written |= noted

    # What a test does.

    def spawn(self, entity: str = BALL, *askers: str) -> None:
        self.living[entity] = SimpleNamespace(id=entity, life=SimpleNamespace(over=False))
        self.creation_barrier.born(entity, Fence(1))
        for asker in askers or (HOME,):
            self.ask(entity, asker)

    def ask(self, entity: str = BALL, asker: str = HOME) -> None:
        self.creation_barrier.when_kept(entity, asker, lambda: self.told.append((entity, asker)))


async def served(place: Place, test: Callable[[], Any]) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(place.creation_barrier.serve)
        await test()
        nursery.cancel_scope.cancel()


async def test_failures_row_8_it_is_said_to_live_when_follower_and_disk_have_it(autojump_clock: MockClock) -> None:
    for first in ("disk", "follower"):
        place = Place()
        if first == "follower":
            place.disk = trio.Event()

        async def test(place: Place = place, first: str = first) -> None:
            place.spawn()
            await trio.sleep(0.1)
            assert place.copied == [[BALL]]
            assert place.told == []
            if first == "follower":
                place.kept(BALL, Fence(1))
                assert place.told == [], "it is on no disk yet"
                place.disk.set()
                await trio.sleep(0.01)
            else:
                place.kept(BALL, Fence(1))
            assert place.told == [(BALL, HOME)]
            assert len(place.creation_barrier) == 0

        await served(place, test)


async def test_what_is_born_together_is_copied_together(autojump_clock: MockClock) -> None:
    place = Place()

    async def test() -> None:
        names = [f"alpha.e{number}" for number in range(200)]
        for name in names:
            place.spawn(name)
        await trio.sleep(0.1)
        assert [len(some) for some in place.copied] == [128, 72]
        assert place.hurried == names
        for name in names:
            place.kept(name, Fence(1))
        assert place.told == [(name, HOME) for name in names]

    await served(place, test)


async def test_a_follower_that_says_nothing_is_not_waited_for_beyond_patience_and_that_is_counted(
    autojump_clock: MockClock,
) -> None:
    place = Place()

    async def test() -> None:
        place.spawn()
        await trio.sleep(PATIENCE_S - 0.1)
        assert place.told == []
        await trio.sleep(0.4)
        assert place.told == [(BALL, HOME)]
        assert place.counts["born_without_copy"] == 1

    await served(place, test)


async def test_without_room_on_the_disk_it_is_tried_again_and_nobody_is_told_meanwhile(
    autojump_clock: MockClock,
) -> None:
    place = Place()
    place.has_room = False

    async def test() -> None:
        place.spawn()
        place.kept(BALL, Fence(1))
        await trio.sleep(10 * PATIENCE_S)
        assert place.told == []
        place.has_room = True
        await trio.sleep(1.0)
        assert place.told == [(BALL, HOME)]

    await served(place, test)


def test_where_nothing_is_kept_it_is_said_at_once() -> None:
    place = Place(by_copy=False, by_disk=False)
    place.spawn()
    assert place.told == [(BALL, HOME)]


async def test_each_who_asks_is_told_once_and_of_too_many_the_first(autojump_clock: MockClock) -> None:
    place = Place(by_disk=False)
    askers = [f"alpha.h{number}" for number in range(MAX_ASKERS + 5)]
    place.spawn(BALL, *askers, *askers)
    place.kept(BALL, Fence(1))
    assert place.told == [(BALL, asker) for asker in askers[:MAX_ASKERS]]
    place.ask(BALL, "alpha.late")
    assert place.told[-1] == (BALL, "alpha.late")


async def test_of_one_that_was_handed_over_it_is_said_and_of_one_that_is_nowhere_it_is_not(
    autojump_clock: MockClock,
) -> None:
    place = Place()

    async def test() -> None:
        for entity, moved_to in (("alpha.moved", "alpha.s2"), ("alpha.ended", "")):
            place.spawn(entity)
            del place.living[entity]
            place.left[entity] = SimpleNamespace(moved_to=moved_to)
        place.spawn("alpha.taken")
        del place.living["alpha.taken"]
        await trio.sleep(1.0)
        assert place.told == [("alpha.moved", HOME)]
        assert len(place.creation_barrier) == 0

    await served(place, test)


async def test_a_copy_of_an_earlier_entity_of_this_name_is_none_of_this_one() -> None:
    place = Place(by_disk=False)
    place.living[BALL] = SimpleNamespace(id=BALL, life=SimpleNamespace(over=False))
    place.creation_barrier.born(BALL, Fence(3))
    place.ask()
    place.kept(BALL, Fence(1))
    assert place.told == []
    place.kept(BALL, Fence(4))
    assert place.told == [(BALL, HOME)], "it stood still for a hand-over that was refused meanwhile"


STEPS = st.lists(
    st.tuples(st.sampled_from(["spawn", "kept", "disk", "leave", "wait"]), st.integers(0, 3)), min_size=1, max_size=30
)


@given(STEPS)
def test_nobody_hears_that_something_lives_before_the_disk_has_it(steps: list[tuple[str, int]]) -> None:
    """Whatever comes in whatever order, with a disk that writes only now and then."""

    async def run() -> None:
        place = Place()
        place.disk = trio.Event()
        born: set[str] = set()

        async def test() -> None:
            for step, number in [*steps, ("wait", 0), ("disk", 0), ("wait", 0), ("disk", 0), ("wait", 0)]:
                entity = f"alpha.e{number}"
                match step:
                    case "spawn" if entity not in born:
                        born.add(entity)
                        place.spawn(entity)
                    case "kept":
                        place.kept(entity, Fence(1))
                    case "disk":
                        # What was noted until now is written; what is noted from now on is not.
                        place.disk.set()
                        await trio.testing.wait_all_tasks_blocked()
                        place.disk = trio.Event()
                    case "leave":
                        place.living.pop(entity, None)
                    case _:
                        await trio.sleep(2 * PATIENCE_S)
                assert {name for name, _ in place.told} <= place.written
            assert {name for name, _ in place.told} >= place.living.keys()

        await served(place, test)

    trio.run(run, clock=MockClock(autojump_threshold=0))
