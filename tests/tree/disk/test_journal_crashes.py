"""The journal on a disk that crashes inside every operation: what was synced is there, nothing else ever appears.

Each example runs some operations of Raft on a simulated disk, once for every disk operation that they make, with the
power going off inside that one. Recovery may be cut short in the same way. What comes back must be exactly the state at
the last sync that returned, or at the one under way: a batch is there whole or not at all.
"""

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.simulation.tree.disk import PowerCut, SimulatedDisk
from batonpass.tree.disk.disk import DiskFailed
from batonpass.tree.disk.journal import Entry, Journal, JournalDamaged, JournalForeign

PATH = Path("/member/journal")
OWNER = "homeserver/alpha/h1"
State = tuple[tuple[Entry, ...], int, str | None, int]

operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3), st.integers(0, 900)),
        st.tuples(st.just("vote"), st.integers(0, 2), st.sampled_from([None, "h1", "h2"])),
        st.tuples(st.just("replace"), st.integers(0, 5), st.integers(0, 2)),
        st.tuples(st.just("install"), st.integers(1, 9), st.none()),
        st.tuples(st.just("commit"), st.integers(0, 9), st.none()),
        st.tuples(st.just("begin_part"), st.integers(0, 5), st.none()),
        st.tuples(st.just("end_part"), st.none(), st.none()),
        st.tuples(st.just("reopen"), st.none(), st.none()),
        st.tuples(st.just("sync"), st.none(), st.none()),
        st.tuples(st.just("sync"), st.none(), st.none()),
    ),
    max_size=14,
)


def opened(disk: SimulatedDisk) -> Journal:
    # Others than any earlier file had, of this life or one before.
    nonces = random.Random(f"{disk.lives}, {disk.operations}").randbytes
    return Journal(PATH, OWNER, disk, nonces=nonces, allocate_bytes=2048)


def state(journal: Journal) -> State:
    return (tuple(journal[:]), journal.term, journal.voted_for, journal.recorded_commit)


@dataclass
class Life:
    """One member's journal until the power goes off, and what may be on its disk at any moment."""

    disk: SimulatedDisk
    synced: State = ((), 0, None, 0)
    under_way: State = ((), 0, None, 0)
    needed_from: int = 0  # a durable snapshot has what is before this index
    written: set[Entry] = field(default_factory=set)
    journal: Journal = field(init=False)

    def begin(self) -> None:
        self.journal = opened(self.disk)

    def run(self, drawn: list[Any]) -> None:
        self.begin()
        for name, *arguments in drawn:
            getattr(self, name)(*arguments)
        self.sync()

    def append(self, count: int, size: int) -> None:
        for _ in range(count):
            self._add((bytes(size), self.journal.last_index + 1, max(1, self.journal.term)))

    def vote(self, more: int, name: str | None) -> None:
        self.journal.set_vote(self.journal.term + more, name)

    def commit(self, index: int, _: None) -> None:
        self.journal.record_commit(index)

    def replace(self, position: int, count: int) -> None:
        """A leader's message conflicts with the end of the log."""
        if position < len(self.journal):
            index = self.journal.first_index + position
            self.journal.set_vote(self.journal.term + 1, None)
            self.journal.delete_from(position)
            for new in range(count):
                self._add((b"new", index + new, self.journal.term))
            self.journal.settle()

    def install(self, beyond: int, _: None) -> None:
        """A snapshot of the leader takes the place of the log."""
        last = self.journal.last_index + 1 + beyond
        self.journal.clear()
        self._add((b"previous", last - 1, self.journal.term))
        self._add((b"last", last, self.journal.term))
        self.journal.settle()
        self.needed_from = last - 1
        self.sync()

    def begin_part(self, position: int, _: None) -> None:
        if position < len(self.journal):
            index = self.journal.first_index + position
            self.under_way = state(self.journal)
            self.journal.begin_part(index)
            self.synced = self.under_way
            self.part = index

    def end_part(self, *_: None) -> None:
        """The snapshot that was begun with the part is durable now."""
        index = getattr(self, "part", 0)
        if index and index >= self.journal.first_index:
            self.needed_from = max(self.needed_from, index)
            self.journal.end_part(index)
            self.journal.trim(index, 100)

    def reopen(self, *_: None) -> None:
        self.under_way = state(self.journal)
        self.journal.close()
        self.synced = self.under_way
        self.begin()

    def sync(self, *_: None) -> None:
        self.under_way = state(self.journal)
        self.journal.sync()
        self.synced = self.under_way

    def _add(self, entry: Entry) -> None:
        self.written.add(entry)
        self.journal.append(entry)

    def check_recovered(self, journal: Journal) -> None:
        found = state(journal)
        assert self._needed(found) in (self._needed(self.synced), self._needed(self.under_way))
        assert set(found[0]) <= self.written
        assert [entry[1] for entry in found[0]] == list(range(journal.first_index, journal.first_index + len(found[0])))

    def _needed(self, known: State) -> tuple[Any, ...]:
        entries, *rest = known
        return (tuple(entry for entry in entries if entry[1] >= self.needed_from), *rest)


def dice_or_none(seed: int) -> random.Random | None:
    """Every other crash is a power cut that leaves nothing but what was synced."""
    return random.Random(seed) if seed % 2 else None


@given(operations, st.integers(0, 2**16))
def test_a_crash_inside_any_disk_operation_leaves_one_of_two_states(drawn: list[Any], seed: int) -> None:
    undisturbed = Life(SimulatedDisk())
    undisturbed.run(drawn)
    for moment in range(1, undisturbed.disk.operations + 1):
        life = Life(SimulatedDisk())
        life.disk.crash_at(moment)
        with pytest.raises(PowerCut):
            life.run(drawn)
        life.disk.crash(dice_or_none(seed + moment))
        recovered = opened(life.disk)
        life.check_recovered(recovered)
        # And it goes on from there.
        recovered.set_vote(recovered.term + 1, "h3")
        recovered.append((b"next", recovered.last_index + 1, recovered.term))
        expected = state(recovered)
        recovered.sync()
        life.disk.crash(dice_or_none(seed))
        assert state(opened(life.disk)) == expected


@given(operations, st.integers(0, 2**16), st.data())
def test_recovery_may_crash_as_often_as_it_likes(drawn: list[Any], seed: int, data: Any) -> None:
    undisturbed = Life(SimulatedDisk())
    undisturbed.run(drawn)
    life = Life(SimulatedDisk())
    life.disk.crash_at(data.draw(st.integers(1, undisturbed.disk.operations)))
    with pytest.raises(PowerCut):
        life.run(drawn)
    life.disk.crash(dice_or_none(seed))
    for attempt in range(1, 30):
        life.disk.crash_at(life.disk.operations + attempt)
        try:
            recovered = opened(life.disk)
        except PowerCut:
            life.disk.crash(dice_or_none(seed + attempt))
        else:
            life.check_recovered(recovered)
            return
    pytest.fail("a recovery makes fewer than 30 disk operations")


@given(operations, st.sampled_from([errno.ENOSPC, errno.EIO, errno.EROFS]), st.integers(0, 2**16))
def test_a_refused_operation_raises_and_what_was_synced_is_there_after_a_restart(
    drawn: list[Any], reason: int, seed: int
) -> None:
    undisturbed = Life(SimulatedDisk())
    undisturbed.run(drawn)
    for moment in range(1, undisturbed.disk.operations + 1):
        life = Life(SimulatedDisk())
        life.disk.fail_at(moment, reason)
        with pytest.raises(DiskFailed) as failed:
            life.run(drawn)
        assert failed.value.reason == reason
        # The member stops: nothing is written any more, and the process is gone; perhaps the machine as well.
        life.disk.crash(dice_or_none(seed + moment))
        life.check_recovered(opened(life.disk))


@given(operations, st.data())
def test_damage_of_what_was_synced_is_refused_or_harmless(drawn: list[Any], data: Any) -> None:
    life = Life(SimulatedDisk())
    life.run(drawn)
    intact = state(life.journal)
    file = life.disk.open(PATH)
    position = data.draw(st.integers(0, life.journal.size_bytes - 1))
    life.disk.scribble(PATH, position, bytes([file.read(position, 1)[0] ^ 0x40]))
    with pytest.raises((JournalDamaged, JournalForeign)):
        opened(life.disk)
    life.disk.scribble(PATH, position, bytes([file.read(position, 1)[0] ^ 0x40]))
    assert state(opened(life.disk))[1:] == intact[1:]


def full_after(bytes_more: int) -> Callable[[SimulatedDisk], None]:
    def fill(disk: SimulatedDisk) -> None:
        disk.capacity_bytes = disk.used_bytes() + bytes_more

    return fill


@pytest.mark.parametrize("bytes_more", [0, 100, 1000])
def test_a_full_disk_is_noticed_where_space_is_reserved(bytes_more: int) -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    journal.append((b"one", 1, 1))
    journal.sync()
    full_after(bytes_more)(disk)
    journal.append((b"two" * 500, 2, 1))
    journal.sync()  # fits in what was reserved with the first
    journal.append((b"three" * 300, 3, 1))
    with pytest.raises(DiskFailed, match=r"reserving space for /member/journal failed: No space left .* Free space"):
        journal.sync()
    disk.crash(random.Random(0))
    assert [entry[1] for entry in opened(disk)[:]] == [1, 2]


def test_an_old_part_without_the_new_one_is_refused() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    journal.append((b"one", 1, 1))
    journal.begin_part(1)
    disk.unlink(PATH)
    with pytest.raises(JournalDamaged, match="Put it back"):
        opened(disk)


def test_a_second_part_waits_until_the_first_has_ended() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    for index in range(1, 10):
        journal.append((b"entry", index, 1))
    journal.begin_part(4)
    journal.append((b"entry", 10, 1))
    journal.begin_part(8)
    journal.end_part(3)
    assert disk.exists(PATH.with_name("journal.old"))
    journal.end_part(8)
    assert not disk.exists(PATH.with_name("journal.old"))
    assert len(opened(disk)) == 7


def test_after_a_failed_sync_the_disk_is_not_touched_again() -> None:
    disk = SimulatedDisk()
    journal = opened(disk)
    journal.append((b"one", 1, 1))
    disk.fail_next("syncing", errno.EIO)
    with pytest.raises(DiskFailed, match="Input/output error"):
        journal.sync()
    operations = disk.operations
    with pytest.raises(DiskFailed, match="Input/output error"):
        journal.sync()
    journal.close()
    assert disk.operations == operations
    disk.crash(None)
    assert opened(disk)[:] == []
