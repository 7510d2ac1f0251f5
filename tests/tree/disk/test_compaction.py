"""Compaction: when it is due, in slices, and without a moment in which a crash could lose something."""

import gc
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.simulation.tree.disk import PowerCut, SimulatedDisk
from batonpass.tree.disk.collector import TreeGrowth, uncollected
from batonpass.tree.disk.compaction import CompactionPolicy, Snapshots
from batonpass.tree.disk.journal import Journal
from batonpass.tree.disk.snapshot import SnapshotDamaged, SnapshotFile
from batonpass.tree.machine.commands import Command, Machine, encode_command
from batonpass.tree.machine.state import FrozenState, LoadedState, StateLoader
from batonpass.tree.store.rows import Remains

HERE = Path("/member")
EAGER = CompactionPolicy(after_entries=6, after_bytes=1 << 30, interval_s=0.0)


def command(index: int) -> bytes:
    path = ["counted", f"node {index % 40}"]
    return encode_command(Command("tree.put", {"path": path, "data": index}, f"client {index % 2}", index))


class Member:
    """A member that is its own majority: what its journal holds after a sync is committed, and applied."""

    def __init__(self, disk: SimulatedDisk, policy: CompactionPolicy = EAGER) -> None:
        self.machine = Machine({})
        self.congested = False
        self.applied = 1
        nonces = random.Random(f"{disk.lives}, {disk.operations}").randbytes
        self.journal = Journal(HERE / "journal", "i/h1", disk, nonces=nonces, allocate_bytes=4096)
        self.snapshots = Snapshots(
            SnapshotFile(HERE / "snapshot", "i", disk), self.journal, self, policy, lambda: self.applied
        )
        self.now_s = 0.0
        self.applied = self.snapshots.restore() or 1
        if not len(self.journal):
            self.journal.append((b"", 1, 1))
        self.apply()

    def apply(self) -> None:
        """Make durable and apply everything in the log; entry 1 is PySyncObj's and no command."""
        self.journal.sync()
        for entry in self.journal[:]:
            if entry[1] > self.applied:
                self.machine.apply(entry[0])
                self.applied = entry[1]

    def submit(self, count: int = 1) -> None:
        for _ in range(count):
            index = self.journal.last_index + 1
            self.journal.append((command(index), index, 1))

    def work(self, slices: int = 1) -> None:
        for _ in range(slices):
            self.now_s += 1.0
            self.snapshots.work(self.now_s)

    def work_until_idle(self) -> int:
        slices = 1
        self.work()
        while self.snapshots.next_work_in_s(self.now_s) is not None:
            self.work()
            slices += 1
        self.work()
        return slices

    def is_congested(self, name: str) -> bool:
        return self.congested

    def freeze(self) -> FrozenState:
        return self.machine.freeze()

    def thaw(self, frozen: FrozenState) -> None:
        self.machine.thaw(frozen)

    def install(self, state: LoadedState) -> Remains | None:
        return self.machine.install(state)


def expected_after(index: int) -> Machine:
    machine = Machine({})
    for applied in range(2, index + 1):
        machine.apply(command(applied))
    return machine


@given(
    st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.integers(0, 4)), min_size=3, max_size=12),
    st.integers(0, 2**16),
)
def test_a_crash_inside_any_step_loses_nothing_that_was_synced(turns: list[Any], seed: int) -> None:
    def run(disk: SimulatedDisk, synced: list[int]) -> None:
        member = Member(disk)
        synced.append(1)
        for submitted, sync, slices in turns:
            member.submit(submitted)
            if sync:
                member.apply()
                synced.append(member.applied)
            member.work(slices)

    undisturbed = SimulatedDisk()
    run(undisturbed, [])
    for moment in range(1 + seed % 3, undisturbed.operations + 1, 3):
        disk = SimulatedDisk()
        disk.crash_at(moment)
        synced = [0]
        with pytest.raises(PowerCut):
            run(disk, synced)
        disk.crash(random.Random(seed + moment) if moment % 2 else None)
        recovered = Member(disk)
        assert recovered.applied >= synced[-1]
        assert recovered.machine.digest() == expected_after(recovered.applied).digest()


def test_a_snapshot_is_taken_in_slices_while_the_member_goes_on() -> None:
    disk = SimulatedDisk()
    member = Member(disk, CompactionPolicy(after_entries=2000, after_bytes=1 << 30, interval_s=0.0))
    member.submit(2100)
    member.apply()
    slices = member.work_until_idle()
    assert slices >= 4
    assert not disk.exists(HERE / "journal.old")
    digest = member.machine.digest()
    disk.crash(None)
    recovered = Member(disk)
    assert recovered.machine.digest() == digest
    assert len(recovered.journal) < 20


def test_writes_during_a_snapshot_are_in_the_log_that_stays() -> None:
    disk = SimulatedDisk()
    member = Member(disk)
    member.submit(30)
    member.apply()
    while member.snapshots.next_work_in_s(member.now_s) is None or disk.exists(HERE / "journal.old"):
        member.submit()
        member.apply()
        member.work()
        if not disk.exists(HERE / "journal.old") and disk.exists(HERE / "snapshot"):
            break
    digest, applied = member.machine.digest(), member.applied
    disk.crash(None)
    recovered = Member(disk)
    assert (recovered.applied, recovered.machine.digest()) == (applied, digest)


def test_some_entries_stay_for_members_that_are_a_little_behind() -> None:
    member = Member(SimulatedDisk(), CompactionPolicy(after_entries=100, after_bytes=1 << 30, interval_s=0.0))
    member.submit(150)
    member.apply()
    member.work_until_idle()
    assert member.journal.first_index == member.applied - 1 - 25
    assert member.journal.last_index == member.applied


def test_an_abandoned_snapshot_leaves_everything_and_the_next_one_ends_both_parts() -> None:
    disk = SimulatedDisk()
    member = Member(disk)
    member.submit(30)
    member.apply()
    member.work(3)
    assert disk.exists(HERE / "journal.old")
    member.snapshots.abandon()
    assert disk.exists(HERE / "journal.old")
    assert member.snapshots.next_work_in_s(member.now_s) is None
    member.submit(1)
    member.apply()
    member.work_until_idle()
    assert not disk.exists(HERE / "journal.old")
    assert Member(disk).machine.digest() == member.machine.digest()


def test_a_log_of_entries_that_wait_for_a_quorum_is_not_compacted() -> None:
    member = Member(SimulatedDisk())
    member.submit(8)
    member.apply()
    member.submit(100)
    member.work()
    assert member.snapshots.next_work_in_s(member.now_s) is None


def test_the_leaders_snapshot_is_installed_also_in_the_middle_of_ones_own() -> None:
    leader, follower_disk = Member(SimulatedDisk()), SimulatedDisk()
    leader.submit(200)
    leader.apply()
    leader.work_until_idle()
    follower = Member(follower_disk)
    follower.submit(20)
    follower.apply()
    follower.work(3)
    to: Any = SimpleNamespace(id="h2")
    while (piece := leader.snapshots.getTransmissionData(to)) is not None:
        leader.snapshots.piece_arrived("h2")
        if follower.snapshots.setTransmissionData(piece):
            break
    nothing, last, previous, members = follower.snapshots.deserialize()
    assert (nothing, members) == (None, [])
    follower.journal.clear()
    follower.journal.append(previous)
    follower.journal.append(last)
    follower.journal.settle()
    follower.applied = last[1]
    follower.work()
    assert follower.snapshots.next_work_in_s(follower.now_s) is None, "what is left of the old tree is gone"
    assert follower.machine.digest() == leader.machine.digest()
    follower.journal.sync()
    follower_disk.crash(None)
    assert Member(follower_disk).machine.digest() == leader.machine.digest()


def test_pieces_wait_for_a_congested_member_and_for_the_others() -> None:
    disk = SimulatedDisk()
    member = Member(disk)
    member.machine.apply(encode_command(Command("tree.put", {"path": ["big"], "data": b"x" * 900_000}, "c", 0)))
    member.submit(30)
    member.apply()
    member.work_until_idle()
    to: Any = SimpleNamespace(id="h2")
    member.congested = True
    assert member.snapshots.getTransmissionData(to) is None
    member.congested = False
    at_once = 0
    while member.snapshots.getTransmissionData(to) is not None:
        at_once += 1
    assert at_once == 4
    assert member.snapshots.piece_arrived("h2")
    assert member.snapshots.getTransmissionData(to) is not None
    assert member.snapshots.getTransmissionData(to) is None
    member.snapshots.cancelTransmisstion(to)
    assert not member.snapshots.piece_arrived("h2")
    assert not member.snapshots.piece_arrived("h3")
    member.snapshots.close()


def test_nothing_received_cannot_be_installed() -> None:
    member = Member(SimulatedDisk())
    assert not member.snapshots.setTransmissionData(None)
    with pytest.raises(SnapshotDamaged):
        member.snapshots.deserialize()
    assert isinstance(member.snapshots.failure, SnapshotDamaged)


@pytest.mark.parametrize(
    ("entries", "size", "snapshot", "rested_s", "due"),
    [
        (101, 0, 0, 60.0, True),
        (100, 0, 0, 60.0, False),
        (0, 1001, 0, 60.0, True),
        (0, 1001, 0, 9.0, False),
        (0, 4001, 0, 9.0, True),
        (401, 0, 0, 0.0, True),
        (0, 1001, 3000, 60.0, False),
        (0, 1501, 3000, 60.0, True),
    ],
    ids=["entries", "few entries", "bytes", "too soon", "too much to wait", "too many to wait", "large", "larger"],
)
def test_when_a_snapshot_is_due(entries: int, size: int, snapshot: int, rested_s: float, due: bool) -> None:
    policy = CompactionPolicy(after_entries=100, after_bytes=1000, interval_s=10.0)
    assert policy.is_due(log_entries=entries, log_bytes=size, snapshot_bytes=snapshot, rested_s=rested_s) is due


def state_of(machine: Machine) -> LoadedState:
    loader = StateLoader()
    loader.take_whole_untrusted(machine.to_data())
    return loader.finish()


@given(st.integers(1, 50))
def test_a_tree_that_was_replaced_is_taken_apart_in_slices(at_most: int) -> None:
    machine = expected_after(60)
    count = machine.store.node_count
    remains = machine.install(state_of(Machine({})))
    assert machine.store.node_count == 0
    slices = 1
    while remains.take_apart(at_most):
        slices += 1
    assert slices >= count // at_most


def test_the_collector_puts_nodes_aside_as_they_become_many() -> None:
    gc.collect()
    growth, before = TreeGrowth(), gc.get_freeze_count()
    try:
        growth.reached(19_999)
        assert gc.get_freeze_count() == before
        growth.reached(20_000)
        assert gc.get_freeze_count() > before
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled()
        growth.reached(100)
        gc.unfreeze()
        growth.reached(20_000)
        assert gc.get_freeze_count() == 0
        growth.reached(20_100)
        assert gc.get_freeze_count() > 0
        gc.unfreeze()
        growth.building(0)
        growth.building(19_999)
        assert gc.get_freeze_count() == 0
        growth.building(40_000)
        assert gc.get_freeze_count() > 0
        growth.building(0)
    finally:
        gc.unfreeze()
