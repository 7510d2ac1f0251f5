"""`baton backup` and `baton restore`: consistent, checked, private, and as docs/guides/backup.md says."""

import io
import json
import os
import random
import re
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from batonpass.homeserver.log.backend import KIND
from batonpass.scenarios.cli import main as cli
from batonpass.scenarios.cluster.blueprint import lay_out
from batonpass.scenarios.cluster.ports import PortAllocator
from batonpass.scenarios.cluster.topology import ClusterSpec
from batonpass.tree.disk import log_copy
from batonpass.tree.disk.journal import Journal
from batonpass.tree.disk.lock_file import occupied
from batonpass.tree.disk.log_copy import CopyFailed, copy_log
from tests.scenarios.asked import limited
from tests.scenarios.cluster.test_failover import world
from tests.scenarios.cluster.test_restored_log import (
    BALL,
    HOME,
    SERVERS,
    all_know_the_log,
    coming_up,
    handed_over,
    is_with,
    says,
)
from tests.scenarios.fakes import ROOT

PAGE = ROOT / "docs" / "guides" / "backup.md"
Baton = Callable[..., tuple[int, str, str]]


@pytest.fixture
def baton(capsys: pytest.CaptureFixture[str]) -> Baton:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = cli.run_command(list(arguments))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def journal_of(directory: Path, name: str) -> Journal:
    (directory / "raft").mkdir(parents=True, exist_ok=True)
    return Journal(directory / "raft" / "journal", f"{KIND}/alpha/{name}", allocate_bytes=4096)


@pytest.fixture
def configs(tmp_path: Path) -> dict[str, Path]:
    """Two homeservers that do not run; the first one has a log of three entries, a vote and keys."""
    (tmp_path / "cluster").mkdir()
    with PortAllocator(random.Random(7)) as ports:
        lay_out(ClusterSpec(instances={"alpha": 2}, simservers=0), tmp_path / "cluster", ports)
    found = {name: tmp_path / "cluster" / name / "config.toml" for name in ("alpha.h1", "alpha.h2")}
    state = found["alpha.h1"].parent / "state"
    journal = journal_of(state, "alpha.h1")
    for index in (1, 2, 3):
        journal.append((b"command %d" % index, index, 1))
    journal.set_vote(7, "alpha.h2")
    journal.sync()
    journal.close()
    (state / "keys").mkdir(mode=0o700)
    for name in ("signing.pem", "agreement.pem", "ring.json", "pins.jsonl"):
        (state / "keys" / name).write_text(f"the secret of {name}")
    return found


def entries_of(config: Path) -> tuple[list[bytes], int, str | None]:
    journal = journal_of(config.parent / "state", config.parent.name)
    try:
        return [command for command, _, _ in journal[:]], journal.term, journal.voted_for
    finally:
        journal.close()


def test_a_member_begins_with_what_was_backed_up_and_has_voted_for_nobody(
    configs: dict[str, Path], tmp_path: Path, baton: Baton
) -> None:
    archive, config = tmp_path / "h1.backup", configs["alpha.h1"]
    status, out, _ = baton("backup", "--config", str(config), str(archive))
    assert status == 0, out
    assert archive.stat().st_mode & 0o777 == 0o600
    assert "the secret of" not in out
    journal = journal_of(config.parent / "state", "alpha.h1")
    journal.append((b"later", 4, 1))
    journal.sync()
    journal.close()
    (config.parent / "state" / "keys" / "ring.json").write_text("newer")
    status, out, err = baton("restore", "--config", str(config), str(archive), "--json")
    assert (status, json.loads(out)["keys"]) == (0, False), err
    assert entries_of(config) == ([b"command 1", b"command 2", b"command 3"], 7, None)
    assert (config.parent / "state" / "keys" / "ring.json").read_text() == "newer", "newer keys are better"
    assert (config.parent / "state" / "raft.before-1" / "journal").exists(), "nothing is deleted"
    assert baton("restore", "--config", str(config), str(archive))[0] == 0
    assert (config.parent / "state" / "raft.before-2").exists()
    assert not list(tmp_path.rglob("*.new")), "what was unpacked is gone"


def test_a_member_that_lost_its_disk_has_its_keys_again(configs: dict[str, Path], tmp_path: Path, baton: Baton) -> None:
    archive, config = tmp_path / "h1.backup", configs["alpha.h1"]
    baton("backup", "--config", str(config), str(archive))
    (config.parent / "state").rename(tmp_path / "broken")
    status, out, err = baton("restore", "--config", str(config), str(archive), "--json")
    assert (status, json.loads(out)["keys"]) == (0, True), err
    keys = config.parent / "state" / "keys"
    assert (keys / "signing.pem").read_text() == "the secret of signing.pem"
    assert {path.stat().st_mode & 0o777 for path in keys.iterdir()} == {0o600}
    assert keys.stat().st_mode & 0o777 == 0o700


def test_the_backup_of_one_member_is_enough_for_all_but_its_keys_are_its_own(
    configs: dict[str, Path], tmp_path: Path, baton: Baton
) -> None:
    archive, other = tmp_path / "h1.backup", configs["alpha.h2"]
    baton("backup", "--config", str(configs["alpha.h1"]), str(archive))
    status, out, err = baton("restore", "--config", str(other), str(archive))
    assert status == 0, err
    assert "makes new ones" in out
    assert entries_of(other) == ([b"command 1", b"command 2", b"command 3"], 7, None)
    assert not (other.parent / "state" / "keys").exists()


def test_a_member_that_runs_is_backed_up_and_not_restored(
    configs: dict[str, Path], tmp_path: Path, baton: Baton
) -> None:
    archive, config = tmp_path / "h1.backup", configs["alpha.h1"]
    with occupied(config.parent / "state" / "raft"):
        assert baton("backup", "--config", str(config), str(archive))[0] == 0
        status, _, err = baton("restore", "--config", str(config), str(archive))
    assert status != 0
    assert "another process runs a member" in err
    assert len(entries_of(config)[0]) == 3


def test_a_backup_is_not_written_over_and_without_a_log_there_is_none(
    configs: dict[str, Path], tmp_path: Path, baton: Baton
) -> None:
    archive = tmp_path / "h1.backup"
    archive.write_text("precious")
    status, _, err = baton("backup", "--config", str(configs["alpha.h1"]), str(archive))
    assert (status, archive.read_text()) == (3, "precious")
    assert "is there already" in err
    status, _, err = baton("backup", "--config", str(configs["alpha.h2"]), str(tmp_path / "h2.backup"))
    assert status == 3
    assert "there is no journal in" in err
    assert not (tmp_path / "h2.backup").exists()


def changed(archive: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    with tarfile.open(archive) as old:
        files = {entry.name: old.extractfile(entry).read() for entry in old.getmembers()}  # type: ignore[union-attr]
    change(files)
    with tarfile.open(archive, "w") as new:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            new.addfile(entry, io.BytesIO(data))


def manifest(**changes: Any) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        files["manifest.json"] = json.dumps(json.loads(files["manifest.json"]) | changes).encode()

    return change


def damage(files: dict[str, bytes]) -> None:
    files["raft/journal"] = files["raft/journal"][:-1] + b"x"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (damage, "is not what was backed up"),
        (lambda files: files.pop("raft/journal"), "lacks raft/journal"),
        (lambda files: files.pop("manifest.json"), "is no backup: it has no manifest.json"),
        (lambda files: files.update({"manifest.json": b"{"}), "cannot be read"),
        (manifest(format=2), "is of format 2"),
        (manifest(files=[]), "cannot be read|names files"),
        (manifest(files={"../../evil.pem": "", "raft/journal": ""}), "names files that are in no backup"),
        (manifest(files={"keys/../evil.pem": "", "raft/journal": ""}), "names files that are in no backup"),
        (manifest(instance="beta"), "is of instance alpha"),
        (manifest(name="alpha.h2"), "alpha.h1"),
    ],
)
def test_what_is_no_backup_of_this_instance_changes_nothing(
    configs: dict[str, Path], tmp_path: Path, baton: Baton, change: Callable[[dict[str, bytes]], None], sentence: str
) -> None:
    archive, config = tmp_path / "h1.backup", configs["alpha.h1"]
    baton("backup", "--config", str(config), str(archive))
    changed(archive, change)
    status, _, err = baton("restore", "--config", str(config), str(archive))
    assert status == 3
    assert re.search(sentence, err), err
    assert sorted(os.listdir(config.parent / "state")) == ["keys", "raft"]


def test_a_log_whose_files_are_replaced_while_they_are_copied_is_copied_again(
    configs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a compaction: a snapshot of one time beside a journal of another would be no log."""
    raft, to = configs["alpha.h1"].parent / "state" / "raft", tmp_path / "copy"
    to.mkdir()
    copied: list[Path] = []
    whole = log_copy._copy

    def replaced_twice(source: Path, target: Path) -> None:
        whole(source, target)
        copied.append(source)
        if source.name == "journal" and len(copied) < 7:
            beside = source.with_name("beside")
            beside.write_bytes(source.read_bytes())
            beside.rename(source)

    monkeypatch.setattr(log_copy, "_copy", replaced_twice)
    assert copy_log(raft, to, KIND, "alpha", "alpha.h1").last_index == 3
    assert len(copied) == 9
    monkeypatch.setattr(log_copy, "_identities", lambda _: [object()])
    with pytest.raises(CopyFailed, match="changed each time"):
        copy_log(raft, to, KIND, "alpha", "alpha.h1")


def commands(marker: str) -> list[list[str]]:
    """The commands under a marker of the page."""
    block = PAGE.read_text().partition(f"<!-- {marker} -->\n```console\n")[2].partition("```")[0]
    found = [line.removeprefix("$ baton ").split() for line in block.splitlines()]
    assert found, marker
    return found


@limited
async def test_what_the_page_says_brings_an_instance_back_with_all_that_moved_since(
    baton: Baton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(simservers=2) as running:
        cluster = running.cluster
        monkeypatch.chdir(tmp_path)
        (tmp_path / "playground").symlink_to(cluster.directory)
        monkeypatch.setenv("BATON_URL", cluster.server(HOME).rest_url)
        monkeypatch.setenv("BATON_OPERATOR_TOKEN_FILE", str(cluster.operator_token_file("alpha")))
        told: list[str] = []

        async def execute(marker: str) -> None:
            for command in commands(marker):
                status, out, err = await trio.to_thread.run_sync(partial(baton, *command))
                assert status == 0, (command, out, err)
                told.append(out)

        await running.spawn(1, "alpha.s1")
        await execute("while it runs")
        await running.push(10)
        await handed_over(running, "alpha.s2")
        assert (await running.here("alpha.s2", BALL))["epoch"] >= 2
        await running.push(10)
        await running.everything_durable()
        await all_know_the_log(running)
        await cluster.stop(HOME)
        await execute("while it is stopped")
        async with coming_up(running, HOME):
            await says(running, "log_went_back", HOME)
            await execute("when nothing is simulated")
            await says(running, "ok", HOME, *SERVERS)
            record = (await running.until(partial(is_with, "alpha.s2")))[BALL]
        assert record["standing"] == "simulated"
        await running.push(10)
        await running.exactly_once()
        await execute("afterwards")
        assert "This log knows 1 entities" in "".join(told)
        assert BALL in told[-1]
