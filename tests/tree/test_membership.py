"""Who the members are: the rules of changing it, and where it is remembered."""

from pathlib import Path

from tree.commands import Machine
from tree.data import decode, encode
from tree.journal import Journal

OWNER = "homeserver/alpha/h1"


def test_a_recorded_commit_survives_a_crash_and_a_compaction_once_it_is_synced(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", OWNER)
    for index in range(1, 6):
        journal.append((b"\0a", index, 1))
    journal.record_commit(4)
    journal.sync()
    journal.record_commit(5)
    journal.record_commit(2)
    journal.abandon()
    recovered = Journal(tmp_path / "journal", OWNER)
    assert recovered.recorded_commit == 4
    recovered.begin_part(4)
    recovered.end_part(4)
    recovered.close()
    again = Journal(tmp_path / "journal", OWNER)
    assert (again.recorded_commit, again.first_index) == (4, 4)
    again.close()


def test_the_members_are_part_of_the_state_once_they_were_changed() -> None:
    never_changed, changed = Machine({}), Machine({})
    changed.configuration = {"index": 7, "members": [["h1", "127.0.0.1", 7101, "voter", None]]}
    assert never_changed.digest() != changed.digest()
    restored = Machine({})
    restored.restore(decode(encode(changed.to_data())))
    assert restored.configuration == changed.configuration
    assert restored.digest() == changed.digest()
    restored.restore(never_changed.to_data())
    assert restored.configuration is None
