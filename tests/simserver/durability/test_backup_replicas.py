"""A follower that has had the entity itself, and hears authorities late and in any order (FAILURES row 44)."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batonpass.authority.fence import Fence
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.recovery import CopyItem
from batonpass.authority.wire.transfer import Copies, CopiesKept
from batonpass.simserver.entity.table import Tombstone
from tests.simserver.durability.test_replication import HERE, Place
from tests.simserver.stage import ADA, BALL

A, B = "alpha.s3", "alpha.s4"
FENCES = (Fence(1), Fence(1).passed(), Fence(2), Fence(2).passed(), Fence(3), Fence(4))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("copy"), st.sampled_from(FENCES), st.integers(0, 9)),
        st.tuples(st.just("comes"), st.sampled_from(FENCES), st.just(0)),
        st.tuples(st.just("leaves"), st.just(Fence(0)), st.just(0)),
        st.tuples(st.just("restart"), st.just(Fence(0)), st.just(0)),
    ),
    max_size=25,
)


class Follower:
    """A server that keeps copies, with what is on its disk: where each entity that left has gone, and what lived."""

    def __init__(self) -> None:
        self._left: tuple[str, Fence] | None = None
        self._lived: Fence | None = None
        self._build()

    def _build(self) -> None:
        # Nothing gets an actor here.
        nobody: Any = None
        self.place = Place(nobody)
        self.place.lease.peers = (HERE, A, B)
        self.replication = self.place.replication()
        self.holdings = self.place.holdings

    def restart(self) -> None:
        """Copies are in memory, and gone; what the ledger has is there again."""
        holding = self.holdings.get(BALL)
        if holding is not None:
            self._left, self._lived = None, holding.fence
        self._build()
        if self._left is not None:
            self.holdings.remember(BALL, Tombstone(*self._left))
        if self._lived is not None:
            self.holdings.remember_lived(BALL, self._lived)

    def comes(self, fence: Fence) -> None:
        self.holdings.spawn(BALL, "ball", {}, fence, Ownership(ADA, 1))

    def leaves(self) -> None:
        holding = self.holdings.get(BALL)
        if holding is not None:
            self._left, self._lived = (B, holding.fence.passed()), None
            self.holdings.leave(BALL, *self._left)

    def hears(self, fence: Fence, tick: int, sender: str = A) -> bool:
        """A copy comes; whether the sender is told that it is kept."""
        self.place.posted.clear()
        item = CopyItem(entity=BALL, epoch=fence.epoch, sub=fence.sub, tick=tick, state=b"%d" % tick)
        self.replication.keep(Copies(items=[item]), sender, ("127.0.0.1", 17000))
        return any(isinstance(message, CopiesKept) for _, message in self.place.posted)

    def kept(self) -> Any:
        copy = self.place.table.get(BALL)
        return None if copy is None else (copy.fence, copy.tick)


async def test_failures_row_44_who_had_it_keeps_no_copy_of_whoever_had_it_before() -> None:
    follower = Follower()
    assert follower.hears(Fence(1), 5, A)
    follower.comes(Fence(2))
    assert not follower.hears(Fence(1), 6, A)
    follower.leaves()
    assert not follower.hears(Fence(1), 7, A), "the last word of the first authority, after it has come and gone"
    assert follower.hears(Fence(2).passed(), 1, B)
    assert not follower.hears(Fence(2), 8, A)
    assert follower.kept() == (Fence(2).passed(), 1)
    follower.restart()
    assert not follower.hears(Fence(1), 9, A), "where it went is on the disk"
    assert follower.kept() is None
    follower.comes(Fence(4))
    follower.restart()
    assert not follower.hears(Fence(3), 9, A), "and that it lived here"


async def test_failures_row_44_a_departure_that_ends_late_does_not_say_that_it_went_where_it_was_before() -> None:
    follower = Follower()
    follower.comes(Fence(3))
    follower.leaves()
    assert follower.holdings.leave(BALL, A, Fence(2)) == []
    gone = follower.holdings.gone(BALL)
    assert gone is not None
    assert (gone.moved_to, gone.fence) == (B, Fence(3).passed())


@given(STEPS)
async def test_failures_row_44_whatever_a_follower_hears_and_has_it_never_goes_back(
    steps: list[tuple[str, Fence, int]],
) -> None:
    follower, highest, had = Follower(), Fence(0), Fence(0)
    before = None
    for what, fence, tick in steps:
        if what == "copy":
            is_told = follower.hears(fence, tick)
            assert fence >= highest or not is_told
            assert is_told or fence < highest or fence == had, "nothing of the newest authority is refused"
            highest = max(highest, fence)
        elif what == "comes" and follower.holdings.get(BALL) is None and fence > highest:
            follower.comes(fence)
            highest = had = fence
        elif what == "leaves" and follower.holdings.get(BALL) is not None:
            follower.leaves()
            highest, had = max(highest, had.passed()), Fence(0)
        elif what == "restart":
            follower.restart()
            # What only copies had told is forgotten with them.
            lived, gone, before = follower.holdings.lived(BALL), follower.holdings.gone(BALL), None
            highest, had = max(lived or Fence(0), Fence(0) if gone is None else gone.fence), lived or Fence(0)
        kept = follower.kept()
        assert before is None or (kept is not None and kept >= before)
        before = kept
