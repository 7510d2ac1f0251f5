"""Torn writes and flipped bits: damage exactly where it may be, and journals that live up to it."""

import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.scenarios.chaos.tearing import AccountingDisk, UnsyncedWrite, flip_a_bit, read_account, tear
from batonpass.tree.disk.journal import Journal, JournalDamaged, JournalForeign
from tests.scenarios.cluster.test_cluster_processes import stage
from tests.scenarios.fakes import ROOT

SEEDS = st.integers(0, 2**32)


class _DiesHere(Exception):
    """In the place of SIGKILL."""


class _DyingDisk(AccountingDisk):
    """One that raises where the other one kills its process."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))
        self.before: Callable[[], None] = lambda: None

    def before_sync(self) -> None:
        self.before()

    def unsynced(self) -> tuple[UnsyncedWrite, ...]:
        return tuple(write for file in self._open for write in file.unsynced)


def _die() -> None:
    raise _DiesHere


@given(
    synced=st.lists(st.tuples(st.integers(0, 3000), st.binary(min_size=1, max_size=1500)), max_size=4),
    unsynced=st.lists(st.tuples(st.integers(0, 5000), st.binary(min_size=1, max_size=1500)), max_size=4),
    seed=SEEDS,
)
def test_only_what_was_not_synced_is_torn(
    synced: list[tuple[int, bytes]], unsynced: list[tuple[int, bytes]], seed: int
) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "file"
        disk = _DyingDisk()
        file = disk.create(path)
        for offset, data in synced:
            file.write(data, offset)
        file.sync_data()
        durable = path.read_bytes()
        for offset, data in unsynced:
            file.write(data, offset)
        tear(disk.unsynced(), random.Random(seed))

        torn = path.read_bytes()
        written = {place for offset, data in unsynced for place in range(offset, offset + len(data))}
        assert all(torn[place] == byte for place, byte in enumerate(durable) if place not in written)
        file.close()


@given(batches=st.lists(st.lists(st.binary(max_size=700), min_size=1, max_size=4), min_size=1, max_size=4), seed=SEEDS)
def test_a_journal_whose_unsynced_tail_is_torn_recovers_everything_that_was_synced(
    batches: list[list[bytes]], seed: int
) -> None:
    with TemporaryDirectory() as directory:
        path, disk = Path(directory) / "journal", _DyingDisk()
        journal = Journal(path, "owner", disk)
        index, synced = 0, 0
        for number, batch in enumerate(batches, start=1):
            for command in batch:
                index += 1
                journal.append((command, index, 1))
            journal.set_vote(number, "owner")
            if number == len(batches):
                disk.before = _die
                with pytest.raises(_DiesHere):
                    journal.sync()
            else:
                journal.sync()
                synced = index
        tear(disk.unsynced(), random.Random(seed))

        recovered = Journal(path, "owner")
        assert synced <= recovered.last_index <= index
        assert recovered.term in (len(batches) - 1, len(batches))
        commands = [command for batch in batches for command in batch]
        assert [entry[0] for entry in recovered[:]] == commands[: recovered.last_index]
        recovered.close()


@given(batches=st.lists(st.binary(min_size=1, max_size=300), min_size=12, max_size=20), seed=SEEDS)
def test_a_journal_with_a_flipped_bit_refuses_and_names_the_file(batches: list[bytes], seed: int) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "journal"
        journal = Journal(path, "owner")
        for index, command in enumerate(batches, start=1):
            journal.append((command, index, 1))
            journal.sync()
        journal.close()
        flip_a_bit(path.parent, random.Random(seed))

        with pytest.raises((JournalDamaged, JournalForeign), match=str(path)):
            Journal(path, "owner")


async def test_a_process_dies_in_the_sync_that_was_chosen_and_leaves_its_account(tmp_path: Path) -> None:
    program = f"""
import sys; sys.path[:] = {[str(ROOT), *__import__("sys").path]!r}
from pathlib import Path
from batonpass.scenarios.chaos.tearing import AccountingDisk
disk = AccountingDisk(Path({str(tmp_path / "account")!r}))
file = disk.create(Path({str(tmp_path / "file")!r}))
disk.die_in_sync(2)
file.write(b"first", 0)
file.sync_data()
file.write(b"SECOND", 3)
file.sync_data()
"""
    async with stage(tmp_path) as on:
        end = await on.start("dying", program).wait()

    assert end.how == "SIGKILL"
    assert read_account(tmp_path / "account") == (UnsyncedWrite(tmp_path / "file", 3, 6, b"st"),)
    assert (tmp_path / "file").read_bytes() == b"firSECOND"
