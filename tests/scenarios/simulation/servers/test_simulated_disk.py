"""The simulated disk: what was synced stays, what was not may go, and faults come where they were armed."""

import errno
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.simulation.tree.disk import PowerCut, SimulatedDisk
from batonpass.tree.disk.disk import REAL_DISK, Disk, DiskFailed, DiskFile, replace_file, replacing_file

HERE = Path("/member")
FILE = HERE / "file"


def durable_file(disk: SimulatedDisk, contents: bytes) -> DiskFile:
    replace_file(FILE, contents, disk=disk)
    return disk.open(FILE)


def contents(disk: SimulatedDisk, path: Path = FILE) -> bytes:
    file = disk.open(path)
    return file.read(0, file.size())


def test_a_power_cut_forgets_what_was_not_synced() -> None:
    disk = SimulatedDisk()
    file = durable_file(disk, b"durable")
    file.write(b"DURABLE and more", 0)
    assert contents(disk) == b"DURABLE and more"
    disk.crash(None)
    assert contents(disk) == b"durable"


@pytest.mark.parametrize("kind", ["simulated", "real"])
def test_a_file_that_a_crash_left_under_two_names_is_not_emptied_when_one_is_made_anew(
    kind: str, tmp_path: Path
) -> None:
    disk: Disk = REAL_DISK if kind == "real" else SimulatedDisk()
    path = tmp_path / "journal"
    replace_file(path, b"durable", disk=disk)
    disk.link(path, path.with_name("journal.new"))  # as by a crash in the renaming
    with replacing_file(path, disk=disk) as file:
        file.write(b"next", 0)
        before = disk.open(path)
        assert before.read(0, 100) == b"durable"
        before.close()
    after = disk.open(path)
    assert after.read(0, 100) == b"next"
    after.close()


@given(st.integers(0, 2**32), st.binary(max_size=3000), st.integers(0, 2000))
def test_of_a_write_that_was_not_synced_any_part_may_be_left(seed: int, data: bytes, offset: int) -> None:
    disk = SimulatedDisk()
    before = bytes(2500)
    durable_file(disk, before).write(data, offset)
    disk.crash(random.Random(seed))
    after = contents(disk)
    written = max(len(before), offset + len(data))
    assert len(before) <= len(after) <= written
    for position, byte in enumerate(after):
        whole = data[position - offset] if offset <= position < offset + len(data) else 0
        assert byte in (whole, 0)


def test_the_dice_reach_every_kind_of_outcome() -> None:
    outcomes = set()
    for seed in range(200):
        disk = SimulatedDisk()
        durable_file(disk, b"").write(b"x" * 1536, 0)
        disk.crash(random.Random(seed))
        outcomes.add(contents(disk))
    sectors = {outcome for outcome in outcomes if outcome.startswith(b"\0" * 512)}
    assert {b"", b"x" * 1536} <= outcomes
    assert sectors, "a later sector without the first one"
    assert any(len(outcome) % 512 for outcome in outcomes), "a sector torn in the middle"


@pytest.mark.parametrize("seed", range(20))
def test_a_name_is_certain_after_its_directory_was_synced(seed: int) -> None:
    disk = SimulatedDisk()
    durable_file(disk, b"old")
    disk.create(HERE / "temporary").write(b"new", 0)
    disk.open(HERE / "temporary").sync()
    disk.rename(HERE / "temporary", FILE)
    disk.crash(random.Random(seed))
    assert contents(disk) in (b"old", b"new")
    replace_file(FILE, b"newest", disk=disk)
    disk.crash(random.Random(seed))
    assert contents(disk) == b"newest"


def test_a_link_is_the_same_file_under_two_names() -> None:
    disk = SimulatedDisk()
    durable_file(disk, b"contents")
    disk.link(FILE, HERE / "second")
    disk.open(FILE).write(b"CONT", 0)
    assert contents(disk, HERE / "second") == b"CONTents"
    with pytest.raises(DiskFailed, match="exists"):
        disk.link(FILE, HERE / "second")
    disk.unlink(FILE)
    assert not disk.exists(FILE)
    with pytest.raises(FileNotFoundError):
        disk.open(FILE)


def test_the_power_goes_off_inside_the_chosen_operation_and_stays_off() -> None:
    disk = SimulatedDisk()
    file = durable_file(disk, b"old")
    disk.crash_at(disk.operations + 2)
    file.write(b"new", 0)
    with pytest.raises(PowerCut):
        file.sync()
    for action in (file.size, lambda: disk.exists(FILE), lambda: disk.unlink(FILE), file.sync_data):
        with pytest.raises(PowerCut):
            action()
    disk.crash(None)
    with pytest.raises(PowerCut):
        file.size()
    assert contents(disk) == b"old"


def test_a_failed_sync_loses_what_a_later_sync_seems_to_save() -> None:
    disk = SimulatedDisk()
    file = durable_file(disk, b"old")
    file.write(b"new", 0)
    disk.fail_at(disk.operations + 1, errno.EIO)
    with pytest.raises(DiskFailed, match="syncing /member/file failed: Input/output error"):
        file.sync_data()
    file.sync_data()
    assert contents(disk) == b"new"
    disk.crash(random.Random(1))
    assert contents(disk) == b"old"


def test_a_full_disk_refuses_to_grow_files() -> None:
    disk = SimulatedDisk(capacity_bytes=1000)
    file = durable_file(disk, b"x" * 600)
    file.write(b"y" * 600, 0)
    with pytest.raises(DiskFailed, match="Free space"):
        file.write(b"y" * 500, 600)
    with pytest.raises(DiskFailed, match=r"reserving space for .* No space left"):
        file.allocate(600, 500)
    file.truncate(100)
    file.allocate(100, 900)
    assert disk.used_bytes() == 1000


def test_a_read_only_disk_is_read() -> None:
    disk = SimulatedDisk()
    file = durable_file(disk, b"old")
    disk.read_only = True
    with pytest.raises(DiskFailed, match="read-only"):
        file.write(b"new", 0)
    assert contents(disk) == b"old"
    disk.scribble(FILE, 1, b"X")
    assert contents(disk) == b"oXd"
