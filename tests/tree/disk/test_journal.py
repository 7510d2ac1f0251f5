"""The journal: what was synced survives any crash, what was not may, and damage is never taken for a crash."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batonpass.tree.disk.journal import Entry, Journal, JournalConflict, JournalDamaged, JournalForeign

OWNER = "homeserver/alpha/h1"


def entry(index: int, term: int = 1, command: bytes = b"c") -> Entry:
    return (command + str(index).encode(), index, term)


def contents(journal: Journal) -> tuple[list[Entry], int, str | None]:
    return (journal[:], journal.term, journal.voted_for)


def crash(journal: Journal) -> None:
    """End as a killed process does: what was not synced was never written."""
    journal.abandon()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def used_bytes(path: Path) -> bytes:
    return path.read_bytes().rstrip(b"\0")


def test_what_was_synced_is_there_after_a_crash_and_what_was_not_is_not(path: Path) -> None:
    journal = Journal(path, OWNER)
    journal.append(entry(1))
    journal.set_vote(3, "h2")
    assert journal.sync()
    journal.append(entry(2))
    journal.set_vote(4, None)
    crash(journal)
    recovered = Journal(path, OWNER)
    assert contents(recovered) == ([entry(1)], 3, "h2")
    recovered.close()


def test_closing_makes_everything_durable(path: Path) -> None:
    journal = Journal(path, OWNER)
    journal.append(entry(1))
    journal.close()
    recovered = Journal(path, OWNER)
    assert recovered[:] == [entry(1)]
    recovered.close()


def test_a_sync_without_changes_touches_nothing(path: Path) -> None:
    journal = Journal(path, OWNER)
    assert not journal.sync()
    journal.set_vote(1, "h1")
    assert journal.sync()
    journal.set_vote(1, "h1")
    assert not journal.sync()
    assert journal.sync_count == 1
    journal.close()


def batches() -> st.SearchStrategy[list[list[bytes]]]:
    return st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=4), min_size=1, max_size=5)


def written(path: Path, drawn: list[list[bytes]]) -> list[int]:
    """Write each list as one batch; the size of the file after each sync."""
    journal = Journal(path, OWNER)
    ends = []
    index = 0
    for commands in drawn:
        for command in commands:
            index += 1
            journal.append((command, index, 1))
        journal.sync()
        ends.append(journal.size_bytes)
    crash(journal)
    return ends


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches(), st.data())
def test_a_write_torn_anywhere_loses_only_what_was_not_synced(tmp_path: Path, drawn: Any, data: Any) -> None:
    path = tmp_path / "journal"
    for left in tmp_path.iterdir():
        left.unlink()
    ends = written(path, drawn)
    whole = path.read_bytes()
    cut = data.draw(st.integers(ends[0] - 1 if len(ends) == 1 else ends[-2], ends[-1]))
    garbage = data.draw(st.binary(max_size=60))
    # What was reserved is durable, so a torn write leaves the file as long as it was.
    path.write_bytes((whole[:cut] + garbage).ljust(len(whole), b"\0"))
    recovered = Journal(path, OWNER)
    survived = [command for command, _, _ in recovered[:]]
    everything = [command for commands in drawn for command in commands]
    synced_before = [command for commands in drawn[:-1] for command in commands]
    assert survived in (synced_before, everything)
    assert survived == everything or cut < ends[-1]
    # And it goes on from there.
    recovered.append((b"next", len(survived) + 1, 2))
    recovered.close()
    again = Journal(path, OWNER)
    assert [command for command, _, _ in again[:]] == [*survived, b"next"]
    again.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches(), st.data())
def test_a_flipped_bit_in_what_was_synced_is_found(tmp_path: Path, drawn: Any, data: Any) -> None:
    path = tmp_path / "journal"
    for left in tmp_path.iterdir():
        left.unlink()
    ends = written(path, drawn)
    damaged = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, ends[-1] - 1))
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(damaged)
    with pytest.raises((JournalDamaged, JournalForeign)) as found:
        Journal(path, OWNER)
    assert str(path) in str(found.value)


def test_every_single_bit_of_a_small_journal_is_protected(path: Path) -> None:
    end = written(path, [[b"a"], [b"b"]])[-1]
    whole = path.read_bytes()
    for position in range(end):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        with pytest.raises((JournalDamaged, JournalForeign)):
            Journal(path, OWNER)


def test_a_command_that_looks_like_a_journal_does_not_confuse_recovery(path: Path) -> None:
    ends = written(path, [[b"first"], [b"second"]])
    lookalike = path.read_bytes()[: ends[-1]]
    for left in path.parent.iterdir():
        left.unlink()
    ends = written(path, [[b"x"], [lookalike]])
    whole = path.read_bytes()
    path.write_bytes(whole[: ends[-1] - 1].ljust(len(whole), b"\0"))
    recovered = Journal(path, OWNER)
    assert [command for command, _, _ in recovered[:]] == [b"x"]
    recovered.close()


def test_the_journal_of_another_member_is_refused(path: Path) -> None:
    Journal(path, OWNER).close()
    with pytest.raises(JournalForeign, match="homeserver/alpha/h1"):
        Journal(path, "homeserver/alpha/h2")


def test_something_else_than_a_journal_is_refused(path: Path) -> None:
    path.write_bytes(b"hello")
    with pytest.raises(JournalForeign):
        Journal(path, OWNER)


def test_entries_sent_again_are_kept_without_touching_the_disk(path: Path) -> None:
    journal = Journal(path, OWNER)
    for index in range(1, 6):
        journal.append(entry(index))
    journal.sync()
    journal.delete_from(2)
    journal.append(entry(3))
    journal.append(entry(4))
    journal.settle()
    assert journal[:] == [entry(index) for index in range(1, 6)]
    assert not journal.dirty
    journal.close()


def test_a_conflicting_entry_removes_what_follows_it_for_good(path: Path) -> None:
    journal = Journal(path, OWNER)
    for index in range(1, 6):
        journal.append(entry(index))
    journal.sync()
    journal.delete_from(2)
    journal.append(entry(3))
    journal.append(entry(4, term=2))
    journal.settle()
    expected = [entry(1), entry(2), entry(3), entry(4, term=2)]
    assert journal[:] == expected
    journal.close()
    recovered = Journal(path, OWNER)
    assert recovered[:] == expected
    recovered.close()


def test_a_committed_entry_is_never_replaced(path: Path) -> None:
    journal = Journal(path, OWNER)
    for index in range(1, 4):
        journal.append(entry(index))
    journal.mark_committed(2)
    journal.delete_from(1)
    with pytest.raises(JournalConflict, match="committed"):
        journal.append(entry(2, term=9))
    crash(journal)


def test_a_gap_is_refused(path: Path) -> None:
    journal = Journal(path, OWNER)
    journal.append(entry(1))
    with pytest.raises(JournalConflict, match="follow"):
        journal.append(entry(3))
    crash(journal)


def test_a_snapshot_from_the_leader_replaces_a_log_that_it_passes(path: Path) -> None:
    journal = Journal(path, OWNER)
    journal.append(entry(1))
    journal.sync()
    journal.clear()
    journal.append(entry(10, term=2))
    journal.append(entry(11, term=2))
    journal.settle()
    journal.sync()
    crash(journal)
    recovered = Journal(path, OWNER)
    assert recovered[:] == [entry(10, term=2), entry(11, term=2)]
    recovered.close()


def test_a_snapshot_from_the_leader_keeps_the_newer_entries_of_a_log_that_contains_it(path: Path) -> None:
    journal = Journal(path, OWNER)
    for index in range(1, 8):
        journal.append(entry(index))
    journal.sync()
    journal.clear()
    journal.append(entry(4))
    journal.append(entry(5))
    journal.settle()
    assert journal[:] == [entry(index) for index in range(4, 8)]
    assert not journal.dirty
    journal.close()


def test_clearing_alone_changes_nothing(path: Path) -> None:
    journal = Journal(path, OWNER)
    journal.append(entry(1))
    journal.clear()
    journal.settle()
    assert journal[:] == [entry(1)]
    journal.close()


def test_compaction_drops_the_beginning_and_keeps_the_rest_and_the_vote(path: Path) -> None:
    journal = Journal(path, OWNER)
    journal.set_vote(7, "h3")
    for index in range(1, 101):
        journal.append(entry(index, command=b"x" * 1000))
    journal.sync()
    before = journal.size_bytes
    journal.begin_part(91)
    journal.end_part(91)
    journal.trim(91, 1000)
    assert journal.size_bytes < before / 5
    journal.append(entry(101))
    journal.sync()
    crash(journal)
    recovered = Journal(path, OWNER)
    assert recovered.first_index == 91
    assert recovered.last_index == 101
    assert (recovered.term, recovered.voted_for) == (7, "h3")
    recovered.close()


@pytest.mark.parametrize(
    ("kept", "expected"),
    [(range(1, 10), range(4, 10)), (range(4, 10), range(4, 10)), (range(1, 3), range(4, 6)), (range(0), range(4, 6))],
    ids=["crash before compaction", "compacted", "snapshot came from the leader", "empty journal"],
)
def test_after_a_restart_the_log_begins_with_the_end_of_the_snapshot(path: Path, kept: range, expected: range) -> None:
    journal = Journal(path, OWNER)
    for index in kept:
        journal.append(entry(index))
    journal.begin_at_snapshot(entry(4), entry(5))
    assert journal[:] == [entry(index) for index in expected]
    journal.close()
    recovered = Journal(path, OWNER)
    recovered.begin_at_snapshot(entry(4), entry(5))
    assert recovered[:] == [entry(index) for index in expected]
    recovered.close()


def test_a_journal_that_begins_after_the_snapshot_is_refused(path: Path) -> None:
    journal = Journal(path, OWNER)
    journal.append(entry(8))
    with pytest.raises(JournalDamaged, match="another time"):
        journal.begin_at_snapshot(entry(4), entry(5))
    journal.close()


class JournalAgainstTwin(RuleBasedStateMachine):
    """Any sequence of Raft's operations, syncs and crashes leaves what a list in memory would have."""

    @initialize(directory=st.just(None))
    def open(self, directory: None) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "journal"
        self.journal = Journal(self.path, OWNER)
        self.entries: list[Entry] = []
        self.vote: tuple[int, str | None] = (0, None)
        self.synced: tuple[list[Entry], tuple[int, str | None]] = ([], (0, None))
        self.first = 1

    @rule(count=st.integers(1, 4), term=st.integers(1, 3))
    def append(self, count: int, term: int) -> None:
        for _ in range(count):
            added = entry(self.first + len(self.entries), term)
            self.journal.append(added)
            self.entries.append(added)

    @rule(term=st.integers(0, 9), name=st.sampled_from([None, "h1", "h2"]))
    def set_vote(self, term: int, name: str | None) -> None:
        self.journal.set_vote(term, name)
        self.vote = (term, name)

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), conflict=st.booleans())
    def receive_again(self, data: Any, conflict: bool) -> None:
        """What PySyncObj does with a message: delete from some position, add what the message has, settle."""
        position = data.draw(st.integers(0, len(self.entries) - 1))
        again = self.entries[position : position + data.draw(st.integers(0, 3))]
        self.journal.delete_from(position)
        for old in again:
            self.journal.append(old)
        if conflict:
            new = entry(self.first + position + len(again), term=77, command=os.urandom(2))
            self.journal.append(new)
            self.entries = [*self.entries[: position + len(again)], new]
        self.journal.settle()

    @precondition(lambda self: len(self.entries) > 2)
    @rule(data=st.data())
    def compact(self, data: Any) -> None:
        position = data.draw(st.integers(0, len(self.entries) - 2))
        self.journal.begin_part(self.first + position)
        self.journal.end_part(self.first + position)
        self.journal.trim(self.first + position, 1000)
        self.entries = self.entries[position:]
        self.first += position
        self.synced = (list(self.entries), self.vote)

    @rule()
    def sync(self) -> None:
        self.journal.sync()
        self.synced = (list(self.entries), self.vote)

    @rule()
    def crash_and_recover(self) -> None:
        crash(self.journal)
        self.journal = Journal(self.path, OWNER)
        self.entries, self.vote = list(self.synced[0]), self.synced[1]

    @invariant()
    def alike(self) -> None:
        if hasattr(self, "journal"):
            assert contents(self.journal) == (self.entries, *self.vote)

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            crash(self.journal)
            self.directory.cleanup()


TestJournalAgainstTwin = JournalAgainstTwin.TestCase
