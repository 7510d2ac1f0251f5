"""What a server was told to give up: kept on its disk, bounded, found again, and shown."""

import json
import logging
from pathlib import Path

import pytest

from batonpass.authority.fence import MAX_EPOCH, Fence
from batonpass.authority.machines.replica_choice import Copy
from batonpass.authority.model.standing import CopySource
from batonpass.scenarios.cli import main as cli
from batonpass.simserver.durability import put_aside
from batonpass.simserver.durability.put_aside import Aside, PutAside
from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.snapshot import EntitySnapshot, state_hash
from batonpass.simserver.world.step import Carried
from batonpass.tree.disk.disk import DiskFailed
from tests.simserver.stage import BALL

ANY = Fence(MAX_EPOCH, MAX_EPOCH)


def aside(epoch: int, tick: int = 7, entity: str = BALL, at_s: float = 0.0, state: bytes = b"") -> Aside:
    state = state or f"{epoch}.{tick}".encode()
    return Aside.of(
        entity, Copy(Fence(epoch), tick, state, state_hash(state), CopySource.BACKUP_REPLICA), at_s, "a test"
    )


def test_what_was_put_aside_is_found_by_whoever_begins_in_the_same_directory(tmp_path: Path) -> None:
    """The newest of those that are asked for, as what its authority itself had."""
    directory = tmp_path / "put_aside"
    PutAside(directory).keep([aside(2), aside(5), aside(9)])
    again = PutAside(directory)
    assert len(again) == 3
    found = again.of(BALL, 2, Fence(9))
    assert found is not None
    assert (found.fence, found.tick, found.state, found.source) == (Fence(5), 7, b"5.7", CopySource.OWN)
    assert again.of(BALL, 5, Fence(9)) is None
    assert again.of("alpha.other", 0, ANY) is None
    assert again.with_hash(BALL, state_hash(b"2.7")) is not None
    assert again.with_hash(BALL, state_hash(b"3.7")) is None
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_of_one_stay_what_was_put_aside_last_is_kept(tmp_path: Path) -> None:
    kept = PutAside(tmp_path)
    kept.keep([aside(2, 7)])
    kept.keep([aside(2, 8)])
    assert len(kept) == 1
    assert (one := kept.of(BALL, 0, ANY)) is not None
    assert one.tick == 8


def test_the_oldest_make_room_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(put_aside, "MAX_FILES", 2)
    kept = PutAside(tmp_path)
    kept.keep([aside(3, at_s=30.0), aside(2, at_s=20.0), aside(4, at_s=40.0)])
    assert (len(kept), kept.forgotten) == (2, 1)
    assert kept.of(BALL, 0, Fence(3)) is None
    assert "had to make room" in caplog.text
    monkeypatch.setattr(put_aside, "MAX_FILES_BYTES", 10)
    kept.keep([aside(5, at_s=50.0, state=b"12345678")])
    assert [one.epoch for _, one in put_aside.read_aside(tmp_path)] == [5]


def test_a_damaged_file_hides_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    PutAside(tmp_path).keep([aside(2), aside(3)])
    damaged, _ = sorted(tmp_path.iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with caplog.at_level(logging.ERROR):
        assert len(PutAside(tmp_path)) == 1
    assert f"{damaged.name}, which was put aside, cannot be read: it is damaged" in caplog.text


def test_what_cannot_be_put_aside_is_an_error_of_whoever_wants_to_give_it_up(tmp_path: Path) -> None:
    (tmp_path / "put_aside").write_text("a file in the place of the directory")
    with pytest.raises(DiskFailed, match="put_aside"):
        PutAside(tmp_path / "put_aside").keep([aside(2)])


def test_an_operator_sees_what_was_put_aside_and_the_state_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = EntitySnapshot("ball", 7, {"p": [1, 2]}, EntityInbox().to_data(), carried=Carried.of_new(BALL)).encode()
    PutAside(tmp_path / "put_aside").keep([aside(2, state=state), aside(3, entity="alpha.other")])
    assert cli.run_command(["put-aside", "--dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert BALL in out
    assert "alpha.other" in out
    assert cli.run_command(["put-aside", "--dir", str(tmp_path), "--entity", BALL]) == 0
    assert "{'p': [1, 2]}" in capsys.readouterr().out
    assert cli.run_command(["put-aside", "--dir", str(tmp_path), "--entity", BALL, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["entity"], row["epoch"], row["why"], bytes.fromhex(row["state"])) == (BALL, 2, "a test", state)
    assert cli.run_command(["put-aside", "--dir", str(tmp_path), "--entity", "alpha.no"]) != 0
    assert "nothing of alpha.no is put aside" in capsys.readouterr().err
