"""What a promise needs of the real disk: the files of this machine, and the order of what is asked of them.

Elsewhere a simulated disk forgets what was not synced. Here the system's own calls are counted, on real files, so that
no layer between a promise and the disk can leave one out; and each of them fails once, so that nothing is said to be
durable that is not.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from batonpass.crypto import key_files
from batonpass.crypto.continuity import Pin, first_head
from batonpass.crypto.errors import KeyFileError
from batonpass.crypto.key_store import KeyStore
from batonpass.crypto.keys import Identity
from batonpass.crypto.pin_file import PinFile, PinRecord
from batonpass.simserver.durability.large_checkpoints import LargeCheckpoints
from batonpass.simserver.durability.put_aside import Aside, PutAside
from batonpass.simserver.lease.keeper import Nonces
from batonpass.simserver.transfer.target.staged_states import StagedState, Stages
from batonpass.tree.disk.disk import DiskFailed, replace_file
from batonpass.tree.disk.journal import Journal
from batonpass.tree.disk.snapshot import SnapshotFile

STATE: Final = b"state" * 1000
HASH: Final = "a" * 64


@dataclass(frozen=True)
class Call:
    """One call of the system: what it was, of which file, and how large that was; a name may have become another."""

    what: str
    path: Path
    size: int = 0
    to: Path | None = None


class Calls:
    """All syncs and changes of names, in their order; the sync of number `fails` is refused by the disk."""

    def __init__(self, fails: int | None = None) -> None:
        self.made: list[Call] = []
        self._fails = fails

    @property
    def syncs(self) -> list[Call]:
        return [call for call in self.made if call.what == "sync"]

    @contextmanager
    def recorded(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("fsync", "fdatasync"):
                patch.setattr(os, name, self._syncing(getattr(os, name)))
            for name in ("rename", "replace", "link"):
                patch.setattr(os, name, self._naming(getattr(os, name)))
            yield

    def _syncing(self, call: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if self._fails == len(self.syncs):
                self._fails = None
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.made.append(Call("sync", path, os.fstat(descriptor).st_size))
            call(descriptor)

        return sync

    def _naming(self, call: Callable[..., None]) -> Callable[..., None]:
        def named(old: Any, new: Any, **more: Any) -> None:
            call(old, new, **more)
            self.made.append(Call("name", Path(old), to=Path(new)))

        return named

    def is_durable(self, path: Path) -> bool:
        """Whether this file would be there after a power cut, whole: by what was synced, and in which order."""
        names = {path}
        for call in reversed(self.made):
            if call.to in names:
                names.add(call.path)
        contents = [at for at, call in enumerate(self.made) if call.what == "sync" and call.path in names]
        named = [at for at, call in enumerate(self.made) if call.to == path]
        directories = [at for at, call in enumerate(self.made) if call.what == "sync" and call.path == path.parent]
        if not contents or self.made[contents[-1]].size != path.stat().st_size:
            return False
        # The contents before the name, the name before its directory is synced; one that is made in place has its name
        # from the beginning, and that is not durable either.
        return any(at > named[-1] for at in directories) and contents[0] < named[-1] if named else bool(directories)


def _journal(directory: Path) -> Path:
    journal = Journal(directory / "journal", "alpha/h1")
    journal.append((b"entry", 1, 1))
    journal.set_vote(1, "h1")
    assert journal.sync()
    journal.close()
    return directory / "journal"


def _snapshot(directory: Path) -> Path:
    snapshot = SnapshotFile(directory / "snapshot", "alpha")
    writer = snapshot.begin((b"previous", 4, 1), (b"last", 5, 1))
    writer.append([STATE])
    writer.finish()
    snapshot.commit(writer)
    snapshot.close()
    return directory / "snapshot"


def _stage(directory: Path) -> Path:
    stages = Stages(directory)
    trio.run(stages.put, StagedState("transfer-1", "alpha.ball", "alpha.s2", 1, 0, "ball", 7, HASH, STATE))
    (path,) = directory.glob("*.stage")
    return path


def _checkpoint(directory: Path) -> Path:
    LargeCheckpoints(directory).write("alpha.ball", {"state": STATE})
    (path,) = [one for one in directory.iterdir() if one.is_file()]
    return path


def _put_aside(directory: Path) -> Path:
    PutAside(directory).keep([Aside("alpha.ball", 1, 0, 7, HASH, STATE, 1.0, "the log went back")])
    (path,) = [one for one in directory.iterdir() if one.is_file()]
    return path


def _nonce(directory: Path) -> Path:
    Nonces(directory / "lease.json").write({1: "0" * 32})
    return directory / "lease.json"


def _file(directory: Path) -> Path:
    replace_file(directory / "file", STATE)
    return directory / "file"


def _pin(directory: Path) -> Path:
    keys = Identity.generate().public
    record = PinRecord("alpha.s1", "simserver", Pin(1, first_head("alpha.s1", keys), keys))
    PinFile(directory / "pins").write(record, all_records=[record], count=1, durable=True)
    return directory / "pins"


def _forgotten_pin(directory: Path) -> Path:
    PinFile(directory / "pins").forget("alpha.s1")
    return directory / "pins"


def _keys(directory: Path) -> Path:
    KeyStore(directory / "keys").load_or_create()
    return next(iter(sorted((directory / "keys").glob("*.pem"))))


def _replaced_key_file(directory: Path) -> Path:
    key_files.replace(directory / "ring.json", STATE)
    return directory / "ring.json"


PROMISES: Final = {
    "an entry and a vote in the journal": _journal,
    "a snapshot": _snapshot,
    "a staged state": _stage,
    "a large checkpoint": _checkpoint,
    "a state that is put aside": _put_aside,
    "the nonce of an incarnation": _nonce,
    "a file that is replaced": _file,
    "a pin": _pin,
    "a pin that is taken back": _forgotten_pin,
    "a private key": _keys,
    "a ring of keys": _replaced_key_file,
}
promises: Final = pytest.mark.parametrize("promised", PROMISES.values(), ids=PROMISES)


@promises
def test_what_is_promised_is_on_the_disk_when_the_promise_is_given(
    promised: Callable[[Path], Any], tmp_path: Path
) -> None:
    calls = Calls()
    with calls.recorded():
        path = promised(tmp_path)
    assert calls.is_durable(path), calls.made


@promises
def test_no_promise_is_given_when_a_sync_fails(promised: Callable[[Path], Any], tmp_path: Path) -> None:
    """Each sync fails once, in a directory of its own; what was asked for raises, whichever it is."""
    counted = Calls()
    with counted.recorded():
        promised(_new(tmp_path, "counted"))
    assert counted.syncs
    for number in range(len(counted.syncs)):
        calls = Calls(fails=number)
        with calls.recorded(), pytest.raises((DiskFailed, KeyFileError)):
            promised(_new(tmp_path, f"fails-{number}"))


def _new(directory: Path, name: str) -> Path:
    (directory / name).mkdir()
    return directory / name


def test_a_sync_that_is_left_out_is_missed(tmp_path: Path) -> None:
    """The check itself: contents alone, or the name before the contents, are not durable."""
    path, draft = tmp_path / "file", tmp_path / "draft"
    path.write_bytes(STATE)
    for made in (
        [],
        [Call("sync", draft, len(STATE)), Call("name", draft, to=path)],
        [Call("name", draft, to=path), Call("sync", path, len(STATE)), Call("sync", tmp_path)],
        [Call("sync", draft, 3), Call("name", draft, to=path), Call("sync", tmp_path)],
        [Call("sync", draft, len(STATE)), Call("sync", tmp_path), Call("name", draft, to=path)],
    ):
        calls = Calls()
        calls.made = made
        assert not calls.is_durable(path), made
