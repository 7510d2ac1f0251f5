"""What has left is kept for a while, in memory and in the ledger, until whoever has it has written it down."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.model.standing import CopySource
from batonpass.simserver.durability import retained_states as module
from batonpass.simserver.durability.ledger import ENTITIES, LedgerRows
from batonpass.simserver.durability.retained_states import HANDED_OVER_NS, OF_BEFORE_NS, RetainedStates
from batonpass.simserver.entity.snapshot import Frozen, state_hash

BALL = "alpha.ball"
S = 1_000_000_000
CHECKPOINT_NS = 5 * S


class Now(Clock):
    """A clock that is set by hand."""

    now_ns = 1000 * S

    def monotonic_ns(self) -> int:
        return self.now_ns


class Rows(LedgerRows):
    """A ledger in memory. `writes` are the rows of large states, in the order in which they were written."""

    def __init__(self, *, has_room: bool = True) -> None:
        self.rows: dict[tuple[str, str], Any] = {}
        self.large: dict[str, tuple[Fence, int, bytes]] = {}
        self.writes: list[tuple[str, int]] = []
        self._has_room = has_room

    def handed_over(self, entity: str, fence: Fence, tick: int, state: bytes) -> bool:
        if super().handed_over(entity, fence, tick, state):
            self.large.pop(entity, None)
            return True
        if self._has_room:
            super().let_go(entity)
            self.large[entity] = (fence, tick, state)
            self.writes.append((entity, tick))
        return self._has_room

    def let_go(self, entity: str) -> None:
        super().let_go(entity)
        self.large.pop(entity, None)

    def all_handed_over(self) -> Iterator[tuple[str, Fence, int, bytes]]:
        yield from super().all_handed_over()
        yield from [(entity, *row) for entity, row in self.large.items()]

    def kept(self) -> dict[str, tuple[Fence, int, bytes]]:
        return {entity: (fence, tick, state) for entity, fence, tick, state in self.all_handed_over()}

    def _note(self, entity: str, row: dict[str, Any] | None, table: str = ENTITIES) -> None:
        if row is None:
            self.rows.pop((table, entity), None)
        else:
            self.rows[table, entity] = row

    def _written_row(self, table: str, entity: str) -> dict[str, Any] | None:
        return self.rows.get((table, entity))

    def _written_rows(self, table: str = ENTITIES) -> Iterator[tuple[str, Any]]:
        yield from [(entity, row) for (of, entity), row in self.rows.items() if of == table]


def frozen(epoch: int, tick: int = 7, state: bytes = b"state") -> Frozen:
    return Frozen(Fence(epoch), "ball", tick, state, state_hash(state), 0)


def table(rows: Rows, clock: Now, checkpoint_ns: int = CHECKPOINT_NS) -> RetainedStates:
    return RetainedStates(rows, clock, Counter(), checkpoint_ns=checkpoint_ns)


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def clock() -> Now:
    return Now()


def test_it_is_a_copy_for_a_while_and_on_the_disk_for_as_long(rows: Rows, clock: Now) -> None:
    """Its next authority may be the only one that kept a copy for this one: dead, it takes both along."""
    kept = table(rows, clock)
    kept.keep(BALL, frozen(3))
    copy = kept.of(BALL)
    assert copy is not None
    assert (copy.fence, copy.tick, copy.source) == (Fence(3), 7, CopySource.CHECKPOINT)
    assert rows.kept() == {BALL: (Fence(3), 7, b"state")}
    clock.now_ns += HANDED_OVER_NS
    kept.sweep()
    assert (kept.of(BALL), rows.kept()) == (None, {})


def test_it_is_kept_for_longer_while_the_log_may_not_know_who_has_it(rows: Rows, clock: Now) -> None:
    """Nobody is asked for it before the log does, however soon the server dies that was passed it."""
    kept, other = table(rows, clock), "alpha.other"
    kept.keep(BALL, frozen(3))
    kept.keep(other, frozen(3))
    for _ in range(9):
        clock.now_ns += HANDED_OVER_NS - S
        kept.keep_longer(BALL)
        kept.keep_longer("alpha.never-here")
        kept.sweep()
    assert kept.of(BALL) is not None
    assert (kept.of(other), set(rows.kept())) == (None, {BALL})
    clock.now_ns += HANDED_OVER_NS
    kept.sweep()
    assert (kept.of(BALL), rows.kept()) == (None, {})


def test_what_left_earlier_does_not_take_the_place_of_what_left_later(rows: Rows, clock: Now) -> None:
    kept = table(rows, clock)
    kept.keep(BALL, frozen(4, 9))
    kept.keep(BALL, frozen(3, 7))
    assert rows.kept() == {BALL: (Fence(4), 9, b"state")}


def test_of_very_many_the_oldest_are_forgotten_first(rows: Rows, clock: Now, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HANDED_OVER", 2)
    kept = table(rows, clock)
    for number in range(4):
        kept.keep(f"alpha.e{number}", frozen(3))
    assert [kept.of(f"alpha.e{number}") is not None for number in range(4)] == [False, False, True, True]
    assert set(rows.kept()) == {"alpha.e2", "alpha.e3"}
    monkeypatch.setattr(module, "MAX_HANDED_OVER_BYTES", 1)
    monkeypatch.setattr(module, "MAX_WRITTEN_BYTES", 1)
    kept.keep(BALL, frozen(3))
    assert (kept.of(BALL), rows.kept()) == (None, {}), "it is larger than all that may be kept"


def test_where_no_checkpoints_are_written_it_is_in_memory_only(rows: Rows, clock: Now) -> None:
    kept = table(rows, clock, checkpoint_ns=0)
    kept.keep(BALL, frozen(3))
    assert kept.of(BALL) is not None
    assert rows.kept() == {}


def test_large_states_are_written_no_more_often_than_checkpoints(
    rows: Rows, clock: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonpass.simserver.durability.ledger.MAX_WRITE_BYTES", 8)
    monkeypatch.setattr(module, "MAX_WRITE_BYTES", 8)
    kept = table(rows, clock)
    for tick in range(12):
        kept.keep(BALL, frozen(3 + tick, tick, b"state and more"))
        clock.now_ns += S
    assert rows.writes == [(BALL, 0), (BALL, 5), (BALL, 10)]
    clock.now_ns += HANDED_OVER_NS - S - 1
    kept.sweep()
    assert set(rows.kept()) == {BALL}, "for as long as it is since it left, whenever the file was written"
    clock.now_ns += 1
    kept.sweep()
    assert rows.kept() == {}


def test_what_the_disk_has_no_room_for_is_counted(clock: Now, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batonpass.simserver.durability.ledger.MAX_WRITE_BYTES", 1)
    counts: Counter[str] = Counter()
    kept = RetainedStates(Rows(has_room=False), clock, counts, checkpoint_ns=CHECKPOINT_NS)
    kept.keep(BALL, frozen(3))
    assert counts == {"handed_over_too_large": 1}


def test_what_the_disk_had_room_for_earlier_is_let_go_in_its_time(
    rows: Rows, clock: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batonpass.simserver.durability.ledger.MAX_WRITE_BYTES", 8)
    kept = table(rows, clock)
    kept.keep(BALL, frozen(3))
    rows._has_room = False
    kept.keep(BALL, frozen(5, 9, b"state and more"))
    assert rows.kept() == {BALL: (Fence(3), 7, b"state")}
    clock.now_ns += HANDED_OVER_NS
    kept.sweep()
    assert rows.kept() == {}


def test_what_is_kept_of_all_earlier_lives_is_bounded_too(
    rows: Rows, clock: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is restarted again and again begins the long time anew each time."""
    monkeypatch.setattr(module, "MAX_HANDED_OVER", 3)
    for life in range(5):
        kept = table(rows, clock)
        assert len(list(kept.of_before())) <= 3
        for number in range(2):
            kept.keep(f"alpha.e{life}-{number}", frozen(3))
        assert len(rows.kept()) <= 3
        assert {f"alpha.e{life}-0", f"alpha.e{life}-1"} <= set(rows.kept()), "what has just left goes last"
    monkeypatch.setattr(module, "MAX_WRITTEN_BYTES", 6)
    assert len(list(table(rows, clock).of_before())) == 1
    assert len(rows.kept()) == 1


def test_what_an_earlier_life_kept_is_a_copy_and_is_kept_for_longer(rows: Rows, clock: Now) -> None:
    table(rows, clock).keep(BALL, frozen(3))
    later = table(rows, clock)
    ((entity, copy),) = later.of_before()
    assert (entity, copy.fence, copy.tick, copy.state) == (BALL, Fence(3), 7, b"state")
    assert (copy.state_hash, copy.source) == (state_hash(b"state"), CopySource.CHECKPOINT)
    clock.now_ns += OF_BEFORE_NS - 1
    later.sweep()
    assert set(rows.kept()) == {BALL}
    clock.now_ns += 1
    later.sweep()
    assert rows.kept() == {}


def test_what_leaves_again_after_a_restart_is_kept_as_long_as_everything_else(rows: Rows, clock: Now) -> None:
    table(rows, clock).keep(BALL, frozen(3))
    later = table(rows, clock)
    assert [entity for entity, _ in later.of_before()] == [BALL]
    later.keep(BALL, frozen(9, 70))
    assert rows.kept() == {BALL: (Fence(9), 70, b"state")}
    clock.now_ns += HANDED_OVER_NS
    later.sweep()
    assert rows.kept() == {}


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("leaves"), st.integers(0, 3), st.integers(1, 12)),
            st.tuples(st.just("time"), st.integers(1, 30), st.just(0)),
            st.tuples(st.just("restart"), st.just(0), st.just(0)),
        )
    )
)
def test_whatever_happens_the_last_state_of_what_left_just_now_is_on_the_disk_and_nothing_stays_for_ever(
    steps: list[tuple[str, int, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("batonpass.simserver.durability.ledger.MAX_WRITE_BYTES", 8)
        patch.setattr(module, "MAX_WRITE_BYTES", 8)
        rows, clock = Rows(), Now()
        kept = table(rows, clock)
        left: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for epoch, (step, first, size) in enumerate(steps, start=1):
            match step:
                case "leaves":
                    kept.keep(f"alpha.e{first}", frozen(epoch, epoch, bytes(size)))
                    left[f"alpha.e{first}"].append((clock.now_ns, epoch, size))
                case "time":
                    clock.now_ns += first * S
                    kept.sweep()
                case _:
                    kept = table(rows, clock)
                    assert {entity for entity, _ in kept.of_before()} == set(rows.kept())
            for entity, stays in left.items():
                last_ns, last, last_size = stays[-1]
                if clock.now_ns - last_ns < HANDED_OVER_NS:
                    # A large one may be as old as a checkpoint.
                    recent = {one for since_ns, one, _ in stays if last_ns - since_ns < CHECKPOINT_NS}
                    assert rows.kept()[entity][0].epoch in (recent if last_size > 8 else {last})
        clock.now_ns += OF_BEFORE_NS + HANDED_OVER_NS
        kept.sweep()
        assert rows.kept() == {}
        assert (kept._kept_bytes, kept._written_bytes) == (0, 0)
