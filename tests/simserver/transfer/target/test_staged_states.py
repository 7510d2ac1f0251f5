"""States on disk for others: there when it was said so, whatever happened since, and no more than there is room for."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.fence import Fence
from batonpass.simserver.transfer.target import staged_states as module
from batonpass.simserver.transfer.target.staged_states import StagedState, Stages, StagesFull
from batonpass.tree.disk.disk import REAL_DISK, DiskFailed, RealDisk


def stage(number: int = 1, entity: str = "alpha.ball", epoch: int = 1, state: bytes = b"state") -> StagedState:
    return StagedState(f"transfer-{number}", entity, "alpha.s1", epoch, 0, "ball", 7, "0" * 64, state)


def damage(directory: Path) -> None:
    victim = min(directory.glob("*.stage"))
    victim.write_bytes(victim.read_bytes()[:-3])
    (directory / "half.new").write_bytes(b"half")


def suffixes(directory: Path) -> list[str]:
    return sorted(path.suffix for path in directory.iterdir())


class Counting(RealDisk):
    def __init__(self) -> None:
        self.directories = 0

    def sync_directory(self, directory: Path) -> None:
        self.directories += 1
        super().sync_directory(directory)


class Broken(RealDisk):
    def sync_directory(self, directory: Path) -> None:
        raise DiskFailed(directory, "syncing", 5)


class FailsOnce(RealDisk):
    """Fails at one of its operations, and works from then on."""

    def __init__(self, operation: str, nth: int) -> None:
        self.operation = operation
        self.left = nth

    def _count(self, operation: str, path: Path) -> None:
        if operation == self.operation:
            self.left -= 1
            if self.left == 0:
                raise DiskFailed(path, operation, 28)

    def rename(self, old: Path, new: Path) -> None:
        self._count("rename", old)
        super().rename(old, new)

    def sync_directory(self, directory: Path) -> None:
        self._count("sync_directory", directory)
        super().sync_directory(directory)


async def test_failures_row_13_what_is_staged_is_there_after_a_restart(tmp_path: Path) -> None:
    stages = Stages(tmp_path / "stages")
    await stages.put(stage(1))
    await stages.put(stage(2, state=b"x" * 100_000))
    await stages.put(stage(2, state=b"x" * 100_000))
    again = Stages(tmp_path / "stages")
    assert sorted(again, key=lambda found: found.transfer_id) == [stage(1), stage(2, state=b"x" * 100_000)]
    assert again.waiting() == list(again)
    assert again.get("transfer-1") == stage(1)
    assert stage(1).fence == Fence(1)


async def test_failures_row_12_what_is_discarded_is_gone_after_a_restart_too(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    await stages.put(stage(1))
    stages.drop("transfer-1")
    stages.drop("transfer-1")
    assert (len(stages), len(Stages(tmp_path))) == (0, 0)


async def test_those_that_come_together_share_a_sync_of_the_directory(tmp_path: Path) -> None:
    disk = Counting()
    stages = Stages(tmp_path, disk)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(stages.put, stage(number))
    assert len(stages) == 20
    assert disk.directories <= 3


async def test_a_state_whose_sync_failed_was_not_staged(tmp_path: Path) -> None:
    stages = Stages(tmp_path, Broken())
    with pytest.raises(DiskFailed):
        await stages.put(stage(1))
    assert len(stages) == 0


@pytest.mark.parametrize(("operation", "nth"), [("rename", 3), ("sync_directory", 1)])
async def test_everybody_hears_of_a_sync_that_failed_and_may_try_anew(
    tmp_path: Path, autojump_clock: MockClock, operation: str, nth: int
) -> None:
    stages, failed = Stages(tmp_path, FailsOnce(operation, nth)), set[int]()

    async def put(number: int) -> None:
        try:
            await stages.put(stage(number))
        except DiskFailed:
            failed.add(number)

    with trio.fail_after(60.0):
        for expected in ({0, 1, 2, 3, 4}, set()):
            failed.clear()
            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(put, number)
            assert failed == expected
    assert len(stages) == len(Stages(tmp_path)) == 5


async def test_whoever_gives_up_leaves_nobody_waiting_who_came_with_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    stages = Stages(tmp_path)

    with trio.fail_after(60.0):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stages.put, stage(2))
            with trio.CancelScope() as scope:
                scope.cancel()
                # Nothing waits before this: it is the first, and would write for both.
                await stages.put(stage(1))
    assert stages.get("transfer-2") == stage(2)


async def test_a_torn_file_is_set_aside_and_one_that_was_not_finished_is_removed(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    await stages.put(stage(1))
    await stages.put(stage(2))
    damage(tmp_path)
    again = Stages(tmp_path)
    assert len(again) == 1
    assert suffixes(tmp_path) == [".bad", ".stage"]
    assert len(Stages(tmp_path)) == 1


async def test_no_more_is_taken_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STAGES", 3)
    monkeypatch.setattr(module, "MAX_DISK_BYTES", 100)
    stages = Stages(tmp_path, REAL_DISK)
    await stages.put(stage(1, state=b"x" * 60))
    with pytest.raises(StagesFull):
        await stages.put(stage(2, state=b"x" * 60))
    await stages.put(stage(3, entity="alpha.two"))
    await stages.put(stage(4, entity="alpha.three"))
    with pytest.raises(StagesFull):
        await stages.put(stage(5))
    stages.used("transfer-3")
    assert [found.transfer_id for found in stages.waiting()] == ["transfer-1", "transfer-4"]
    await stages.put(stage(5))
    assert stages.get("transfer-3") is None, "what has been begun with makes room first"


async def test_of_an_entity_that_has_begun_only_the_newest_is_kept(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    for number, epoch in ((1, 1), (2, 5)):
        await stages.put(stage(number, epoch=epoch))
        stages.used(f"transfer-{number}")
    stages.used("transfer-9")
    assert [found.transfer_id for found in stages] == ["transfer-2"]
    newest = stages.of("alpha.ball", Fence(6))
    assert newest is not None
    assert (newest.epoch, stages.of("alpha.other", Fence(6))) == (5, None)


async def test_a_state_under_a_fence_that_is_not_yet_given_hides_none_that_is_possible(tmp_path: Path) -> None:
    stages = Stages(tmp_path)
    await stages.put(stage(1, epoch=3))
    await stages.put(stage(2, epoch=999))
    newest = stages.of("alpha.ball", Fence(4))
    assert newest is not None
    assert newest.epoch == 3
    assert stages.of("alpha.ball", Fence(3)) is None
