"""A member whose disk fails stops with a sentence, and has lost nothing that it acknowledged when it starts again."""

import errno
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from batonpass.scenarios.simulation.tree.disk import SimulatedDisk
from batonpass.tree import DiskFailed, NoQuorum, OutcomeUnknown, Replica, ReplicaConfig
from batonpass.tree.disk.journal import JournalDamaged
from tests.tree.instances import PROCEDURES, configs


class Life:
    """A member that is written to until its disk fails."""

    def __init__(self, config: ReplicaConfig, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.replica = Replica(config, PROCEDURES, disk=disk)
        self.acknowledged: list[str] = []
        self.failure: DiskFailed | None = None

    async def run(self, fault: Callable[[SimulatedDisk], None]) -> None:
        with trio.fail_after(90):
            async with trio.open_nursery() as nursery:
                await nursery.start(self._serve)
                await self._write(20)
                fault(self.disk)
                await self._write(3000)

    async def _serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        try:
            await self.replica.serve(task_status=task_status)
        except DiskFailed as failure:
            self.failure = failure

    async def _write(self, count: int) -> None:
        for _ in range(count):
            mark = f"mark {len(self.acknowledged)}"
            try:
                await self.replica.submit("tree.put", {"path": ["marks", mark], "data": "x" * 2000})
            except (NoQuorum, OutcomeUnknown):
                return
            self.acknowledged.append(mark)


def fill_up(disk: SimulatedDisk) -> None:
    disk.capacity_bytes = disk.used_bytes() + 1_000_000


def break_syncs(disk: SimulatedDisk) -> None:
    disk.fail_next("syncing", errno.EIO)


def make_read_only(disk: SimulatedDisk) -> None:
    disk.read_only = True


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (fill_up, "No space left on device. Free space on this file system"),
        (break_syncs, "syncing .*journal failed: Input/output error. The disk reported an error"),
        (make_read_only, "Read-only file system. The file system is read-only"),
    ],
)
async def test_a_member_on_a_failing_disk_stops_and_has_lost_nothing_after_a_restart(
    tmp_path: Path, fault: Callable[[SimulatedDisk], None], words: str
) -> None:
    (config,) = configs(tmp_path, 1, compact_after_bytes=200_000)
    disk = SimulatedDisk()
    life = Life(config, disk)
    await life.run(fault)
    assert life.failure is not None
    assert re.search(words, str(life.failure))
    # The operator did what the sentence says; to be sure, the machine went down as well.
    disk.crash(None)
    disk.capacity_bytes, disk.read_only = None, False
    replica = Replica(config, PROCEDURES, disk=disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(replica.serve)
        await replica.read_barrier()
        for mark in life.acknowledged:
            assert replica.store.exists(("marks", mark))
        nursery.cancel_scope.cancel()


async def test_a_member_with_a_damaged_journal_does_not_start_and_names_the_file(tmp_path: Path) -> None:
    (config,) = configs(tmp_path, 1)
    disk = SimulatedDisk()
    life = Life(config, disk)
    await life.run(lambda disk: disk.fail_next("syncing", errno.EIO))
    journal = config.directory / "journal"
    disk.scribble(journal, 3000, b"\0\0\0")
    with pytest.raises(JournalDamaged, match=f"{journal} is damaged at byte .* remove this member"):
        await Replica(config, PROCEDURES, disk=disk).serve()


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "h0").write_text("a file where the directory should be")
    (config,) = configs(tmp_path, 1)
    with pytest.raises(DiskFailed, match=r"creating .*h0/lock failed: .*xists"):
        await Replica(config, PROCEDURES).serve()
