"""What a member acknowledged and lost is noticed when it starts; neither a crash nor a new member is taken for that."""

import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.simulation.tree.disk import PowerCut, SimulatedDisk
from batonpass.tree.disk.batches import JournalDamaged
from batonpass.tree.disk.journal import Journal
from batonpass.tree.member.replica import Replica
from tests.tree.instances import running_instance

PATH = Path("/member/journal")
OWNER = "homeserver/alpha/h1"
MARK = PATH.with_name("journal.mark")
OLD = PATH.with_name("journal.old")
RESERVED = 2048
MAGIC = b"batonpass journal 2\n"


def opened(disk: SimulatedDisk, *made_later: str) -> Journal:
    nonces = random.Random(f"{disk.lives}, {disk.operations}").randbytes
    later = [PATH.with_name(name) for name in made_later]
    return Journal(PATH, OWNER, disk, nonces=nonces, allocate_bytes=RESERVED, made_later=later)


def with_entries(disk: SimulatedDisk, count: int, size: int = 10) -> Journal:
    journal = opened(disk)
    for index in range(journal.last_index + 1, journal.last_index + 1 + count):
        journal.append((bytes(size), index, 1))
        journal.sync()
    return journal


def contents(disk: SimulatedDisk, path: Path) -> bytes:
    file = disk.open(path)
    found = file.read(0, file.size())
    file.close()
    return found


def put(disk: SimulatedDisk, path: Path, data: bytes) -> None:
    file = disk.create(path)
    file.write(data, 0)
    file.sync()
    file.close()
    disk.sync_directory(path.parent)


def cut(disk: SimulatedDisk, size: int) -> None:
    file = disk.open(PATH)
    file.truncate(size)
    file.sync()
    file.close()


@given(st.integers(1, 8), st.integers(0, 600), st.data())
def test_a_journal_that_is_shorter_than_what_was_reserved_has_lost_its_end(
    count: int, size: int, data: st.DataObject
) -> None:
    disk = SimulatedDisk()
    with_entries(disk, count, size).close()
    whole = len(contents(disk, PATH))
    cut(disk, data.draw(st.integers(0, whole - 1)))
    with pytest.raises(JournalDamaged, match=r"its end is lost.*baton cluster remove"):
        opened(disk)


@given(st.integers(0, 8), st.booleans(), st.data())
def test_a_journal_that_is_shorter_than_it_was_made_is_refused_also_without_its_mark(
    count: int, compacted: bool, data: st.DataObject
) -> None:
    disk = SimulatedDisk()
    journal = with_entries(disk, count)
    if compacted and count > 2:
        journal.begin_part(count - 1)
        journal.end_part(count - 1)
    journal.close()
    size = data.draw(st.integers(0, len(contents(disk, PATH)) - 1))
    cut(disk, size)
    disk.unlink(MARK)
    with pytest.raises(JournalDamaged, match=rf"journal has {size} bytes.*its end is lost.*baton cluster remove"):
        opened(disk)
    assert len(contents(disk, PATH)) == size, "it is left as it was found"


@pytest.mark.parametrize("with_mark", [True, False])
def test_a_new_journal_has_its_reserve_before_anything_is_written_to_it(with_mark: bool) -> None:
    disk = SimulatedDisk()
    opened(disk).close()
    assert len(contents(disk, PATH)) >= RESERVED
    cut(disk, RESERVED)
    if not with_mark:
        disk.unlink(MARK)
    with pytest.raises(JournalDamaged, match="were reserved: its end is lost"):
        opened(disk)


@pytest.mark.parametrize("also_lost", [(), (OLD,)])
def test_a_journal_that_is_gone_is_known_by_its_mark(also_lost: tuple[Path, ...]) -> None:
    disk = SimulatedDisk()
    journal = with_entries(disk, 5)
    if also_lost:
        journal.begin_part(3)
    journal.close()
    for path in (PATH, *also_lost):
        disk.unlink(path)
    with pytest.raises(JournalDamaged, match=r"journal is gone, but journal\.mark .*forgotten what it acknowledged"):
        opened(disk)


@pytest.mark.parametrize("left", ["snapshot", "member.key.pem"])
def test_a_journal_that_is_gone_with_its_mark_is_known_by_what_was_made_after_it(left: str) -> None:
    disk = SimulatedDisk()
    put(disk, PATH.with_name(left), b"something")
    with pytest.raises(JournalDamaged, match=f"journal is gone, but {left} of this member is there"):
        opened(disk, "snapshot", "member.key.pem")


def test_a_new_member_is_new_also_if_the_power_went_off_while_it_began() -> None:
    undisturbed = SimulatedDisk()
    opened(undisturbed, "member.key.pem").close()
    for moment in range(1, undisturbed.operations + 1):
        for seed in range(8):
            disk = SimulatedDisk()
            disk.crash_at(moment)
            with pytest.raises(PowerCut):
                opened(disk, "member.key.pem").close()
            disk.crash(random.Random(seed) if seed else None)
            journal = opened(disk, "member.key.pem")
            assert len(journal) == 0
            journal.close()


def test_an_older_copy_of_the_journal_is_refused() -> None:
    disk = SimulatedDisk()
    with_entries(disk, 3, 300).close()
    copy = contents(disk, PATH)
    with_entries(disk, 9, 300).close()
    put(disk, PATH, copy)
    with pytest.raises(JournalDamaged, match=r"were reserved|was durable: its end is lost"):
        opened(disk)


def test_a_journal_of_before_the_last_snapshot_is_refused() -> None:
    disk = SimulatedDisk()
    journal = with_entries(disk, 6)
    copy = contents(disk, PATH)
    journal.begin_part(5)
    journal.end_part(5)
    journal.append((b"more", 7, 1))
    journal.close()
    put(disk, PATH, copy)
    with pytest.raises(JournalDamaged, match="is not the journal that this member wrote last but an older one"):
        opened(disk)


def test_zeros_where_batches_were_are_noticed_up_to_the_last_mark() -> None:
    disk = SimulatedDisk()
    with_entries(disk, 9, 400).close()
    whole = contents(disk, PATH)
    put(disk, PATH, whole[:700].ljust(len(whole), b"\0"))
    with pytest.raises(JournalDamaged, match=r"ends after batch 3, but batch \d+ was durable"):
        opened(disk)


def as_an_earlier_release_wrote_it(disk: SimulatedDisk) -> None:
    """Without the number of bytes in its beginning, without a reserve behind its end, and without a mark."""
    journal = opened(disk)
    whole = contents(disk, PATH)[: journal.size_bytes]
    journal.close()
    nonce_end = len(MAGIC) + len(OWNER) + 1 + 8
    start = MAGIC.replace(b"2", b"1") + whole[len(MAGIC) : nonce_end]
    disk.unlink(MARK)
    put(disk, PATH, start + zlib.crc32(start).to_bytes(4, "big") + whole[nonce_end + 8 + 4 :])


def test_a_journal_of_an_earlier_release_gets_a_mark_and_a_reserve() -> None:
    undisturbed = SimulatedDisk()
    with_entries(undisturbed, 4).close()
    as_an_earlier_release_wrote_it(undisturbed)
    before = undisturbed.operations
    opened(undisturbed, "snapshot").close()
    for moment in range(undisturbed.operations - before + 1):
        disk = SimulatedDisk()
        with_entries(disk, 4).close()
        as_an_earlier_release_wrote_it(disk)
        if moment:
            disk.crash_at(disk.operations + moment)
            with pytest.raises(PowerCut):
                opened(disk, "snapshot").close()
            disk.crash(random.Random(moment))
        journal = opened(disk, "snapshot")
        assert [entry[1] for entry in journal[:]] == [1, 2, 3, 4]
        journal.close()
        assert len(contents(disk, PATH)) >= RESERVED
        disk.unlink(PATH)
        with pytest.raises(JournalDamaged, match=r"journal\.mark"):
            opened(disk)


def test_the_mark_names_no_more_parts_than_there_are() -> None:
    disk = SimulatedDisk()
    journal = with_entries(disk, 3)
    copy = contents(disk, PATH)
    for index in range(4, 24):
        journal.begin_part(index - 2)
        journal.append((b"meanwhile", index, 1))
        journal.sync()
        assert len(contents(disk, MARK).splitlines()) == 2 + 2 + 1, "the part before, this one and the check sum"
        journal.end_part(index - 2)
        assert len(contents(disk, MARK).splitlines()) == 2 + 1 + 1
    journal.close()
    put(disk, PATH, copy)
    with pytest.raises(JournalDamaged, match="an older one"):
        opened(disk)


def test_a_mark_that_cannot_be_read_is_no_reason_to_believe_the_journal() -> None:
    disk = SimulatedDisk()
    with_entries(disk, 4).close()
    disk.scribble(MARK, 40, b"?")
    with pytest.raises(JournalDamaged, match=r"journal\.mark cannot be read"):
        opened(disk)


def test_what_was_reserved_is_still_reserved_after_a_restart() -> None:
    disk = SimulatedDisk()
    with_entries(disk, 1).close()
    size = len(contents(disk, PATH))
    disk.capacity_bytes = disk.used_bytes()
    journal = with_entries(disk, 1)  # on a full disk
    journal.close()
    assert len(contents(disk, PATH)) == size


def remove_journal(directory: Path) -> None:
    (directory / "journal").unlink()


def remove_journal_and_mark(directory: Path) -> None:
    remove_journal(directory)
    (directory / "journal.mark").unlink()


def cut_journal(directory: Path) -> None:
    journal = directory / "journal"
    journal.write_bytes(journal.read_bytes()[:200])


def cut_journal_and_remove_mark(directory: Path) -> None:
    cut_journal(directory)
    (directory / "journal.mark").unlink()


@pytest.mark.parametrize("lose", [remove_journal, remove_journal_and_mark, cut_journal, cut_journal_and_remove_mark])
async def test_a_member_that_lost_its_journal_does_not_start(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    async with running_instance(tmp_path, 1) as instance:
        await (await instance.leader()).submit("tree.put", {"path": ["a"], "data": 1})
        await instance.stop("h0")
        lose(instance.configs["h0"].directory)
        with pytest.raises(JournalDamaged, match="add it again"):
            await Replica(instance.configs["h0"], {}).serve()
