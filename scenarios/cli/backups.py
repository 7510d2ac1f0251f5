"""`baton backup` and `baton restore`: a homeserver's metadata in one file, and a stopped member that begins with it.

A backup is a tar archive of mode 0600: `manifest.json`, the member's log (`raft/journal`, `raft/snapshot`) and its keys
(`keys/...`). docs/guides/backup.md says what it is good for, and what is lost with everything that was decided after
it.
"""

import hashlib
import io
import json
import os
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

import click

from batonpass.authority.node.config import ConfigError
from batonpass.homeserver.config import HomeserverConfig
from batonpass.homeserver.log.backend import KIND
from batonpass.scenarios.common.errors import EnvironmentFailed
from batonpass.tree.disk.disk import REAL_DISK, DiskFailed
from batonpass.tree.disk.journal import JournalDamaged, JournalForeign
from batonpass.tree.disk.lock_file import DirectoryInUse, occupied
from batonpass.tree.disk.log_copy import CopyFailed, LogCopy, begin_with_copy, copy_log
from batonpass.tree.disk.snapshot import SnapshotDamaged

__all__ = ["backup", "restore"]

BACKUP_FORMAT: Final = 1
_MANIFEST: Final = "manifest.json"
_LOG_FILES: Final = ("raft/journal", "raft/snapshot")
_KEY_SUFFIXES: Final = (".pem", ".json", ".jsonl")
_PIECE_BYTES: Final = 1024 * 1024
_MAX_MANIFEST_BYTES: Final = 1024 * 1024
_MAX_FILES: Final = 256
_WHAT_FAILS: Final = (CopyFailed, DiskFailed, JournalDamaged, JournalForeign, SnapshotDamaged, DirectoryInUse)

_config = click.option(
    "--config",
    "config_file",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Of the homeserver: its TOML file.",
)
_as_json = click.option("--json", "json_wanted", is_flag=True, help="What was done, as JSON.")


@dataclass(frozen=True)
class _BackupManifest:
    """What is in a backup."""

    format: int
    name: str
    instance: str
    made_at: str
    last_index: int
    term: int
    files: dict[str, str]
    """SHA-256 of each, by its name."""


@click.command(short_help="Write the metadata of a homeserver into one file, while it runs.")
@click.argument("file", type=click.Path(path_type=Path))
@_config
@_as_json
def backup(file: Path, config_file: Path, json_wanted: bool) -> int:
    """Write the log, the snapshot and the keys of the homeserver with this configuration into FILE.

    The homeserver may run: the copy is consistent, and is read once before it counts. FILE is whole or not there at
    all, has mode 0600 and holds private keys: keep it as you keep those. docs/guides/backup.md says what it is good
    for.

    \b
    Example:
      baton backup --config playground/alpha.h1/config.toml alpha.h1.backup
    """
    config = _homeserver(config_file)
    if file.exists():
        raise EnvironmentFailed(f"{file} is there already: give another name, backups are not overwritten")
    say = _progress(json_wanted)
    with _explained(), _scratch(file.parent, file.name) as scratch:
        (scratch / "raft").mkdir(mode=0o700)
        say(f"copying the log of {config.name} from {config.directory / 'raft'}")
        copy = copy_log(config.directory / "raft", scratch / "raft", KIND, config.instance, config.name)
        say(f"read it as a member would: {copy.entries} entries up to {copy.last_index}, of term {copy.term}")
        names = [name for name in _LOG_FILES if (scratch / name).exists()]
        keys = _copy_keys(config.directory / "keys", scratch / "keys")
        say(f"writing {len(names) + len(keys)} files to {file}")
        manifest = _written(file, scratch, config, copy, [*names, *keys])
    _done(json_wanted, {"file": str(file), "bytes": file.stat().st_size, **_summary(manifest)}, f"{file} is written")
    return 0


@click.command(short_help="Have a stopped homeserver begin with a backup.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_config
@_as_json
def restore(file: Path, config_file: Path, json_wanted: bool) -> int:
    """Put the log of the backup FILE in the place of that of a homeserver which is stopped.

    Stop all homeservers of the instance first. Restore each of them, from its own backup or from one of another member
    of the instance, before any is started. What is there is not deleted, but put aside (`raft.before-1`). Keys come
    back only to the member whose backup it is, and only if it has none: newer ones are better than older ones. What was
    decided after the backup is lost: see docs/guides/backup.md, which says what comes next (`accept-loss`).

    \b
    Example:
      baton restore --config playground/alpha.h1/config.toml alpha.h1.backup
    """
    config = _homeserver(config_file)
    say = _progress(json_wanted)
    raft, keys = config.directory / "raft", config.directory / "keys"
    with _explained():
        config.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _stopped(raft), _scratch(config.directory, "restore") as scratch:
            manifest = _unpacked(file, scratch, say)
            if manifest.instance != config.instance:
                text = f"{file} is of {manifest.name}, and {config.name} is of instance {config.instance}"
                raise EnvironmentFailed(text)
            new = scratch / "new"
            new.mkdir(mode=0o700)
            copy = begin_with_copy(scratch / "raft", new, KIND, config.instance, manifest.name, config.name)
            say(f"read it as a member would: {copy.entries} entries up to {copy.last_index}, of term {copy.term}")
            aside = _put_aside(raft)
            os.rename(new, raft)
            REAL_DISK.sync_directory(config.directory)
            has_keys = manifest.name == config.name and not keys.exists() and (scratch / "keys").exists()
            if has_keys:
                os.rename(scratch / "keys", keys)
                REAL_DISK.sync_directory(config.directory)
    if aside is not None:
        say(f"what was there is in {aside}")
    if not has_keys:
        say("keys are as they were: " + ("they are there" if keys.exists() else f"{config.name} makes new ones"))
    did = {"name": config.name, "aside": None if aside is None else str(aside), "keys": has_keys}
    _done(json_wanted, did | {"from": _summary(manifest)}, f"{config.name} begins with the log of {manifest.made_at}")
    return 0


def _homeserver(config_file: Path) -> HomeserverConfig:
    try:
        config = HomeserverConfig.load(config_file)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    if config.metadata.backend != "raft":
        text = f"{config.name} keeps its metadata in etcd: back that up with etcdctl (docs/guides/etcd.md)"
        raise EnvironmentFailed(text)
    return config


def _progress(json_wanted: bool) -> Callable[[str], None]:
    return lambda text: click.echo(text, err=json_wanted)


def _done(json_wanted: bool, did: dict[str, Any], text: str) -> None:
    click.echo(json.dumps(did) if json_wanted else text)


def _summary(manifest: _BackupManifest) -> dict[str, Any]:
    fields = ("name", "instance", "made_at", "last_index", "term")
    return {field: getattr(manifest, field) for field in fields} | {"files": sorted(manifest.files)}


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except _WHAT_FAILS as error:
        raise EnvironmentFailed(str(error)) from error
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        raise EnvironmentFailed(f"{where}{error.strerror or error}") from error


@contextmanager
def _scratch(parent: Path, name: str) -> Iterator[Path]:
    """A directory of mode 0700 on the same file system, which is gone afterwards: it holds private keys."""
    directory = parent / f".{name}.{os.getpid()}.new"
    directory.mkdir(mode=0o700)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _stopped(raft: Path) -> Iterator[None]:
    """Hold the directory of a member that does not run; raises `DirectoryInUse`."""
    if not raft.exists():
        yield
        return
    with occupied(raft):
        yield


def _copy_keys(source: Path, target: Path) -> list[str]:
    """Copy the key files, none of which is ever changed in place; their names in the archive."""
    if not source.is_dir():
        return []
    target.mkdir(mode=0o700)
    names = []
    # The ring last: it never names files that are not there.
    for path in sorted(source.iterdir(), key=lambda one: (one.suffix == ".pem", one.name)):
        if path.is_file() and path.suffix in _KEY_SUFFIXES:
            with _private(target / path.name) as file:
                file.write(path.read_bytes())
            names.append(f"keys/{path.name}")
    return names


@contextmanager
def _private(path: Path) -> Iterator[IO[bytes]]:
    """A new file of mode 0600, which is durable afterwards."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _written(file: Path, scratch: Path, config: HomeserverConfig, copy: LogCopy, names: list[str]) -> _BackupManifest:
    """Write the archive beside its place, and give it its name when it is durable."""
    made_at = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds")  # noqa: TID251 — for people
    files = {name: _digest(scratch / name) for name in names}
    manifest = _BackupManifest(BACKUP_FORMAT, config.name, config.instance, made_at, copy.last_index, copy.term, files)
    beside = scratch / "archive"
    with _private(beside) as out, tarfile.open(fileobj=out, mode="w") as archive:
        encoded = json.dumps(vars(manifest), indent=1).encode()
        archive.addfile(_entry(_MANIFEST, len(encoded)), io.BytesIO(encoded))
        for name in names:
            with (scratch / name).open("rb") as content:
                archive.addfile(_entry(name, (scratch / name).stat().st_size), content)
    # Unlike a rename, it never takes the place of another file.
    os.link(beside, file)
    REAL_DISK.sync_directory(file.parent)
    return manifest


def _entry(name: str, size_bytes: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size_bytes, 0o600
    return entry


def _unpacked(file: Path, scratch: Path, say: Callable[[str], None]) -> _BackupManifest:
    """Unpack a backup, whose files are named by its manifest alone, and hold each against its digest."""
    try:
        with tarfile.open(file, mode="r:") as archive:
            entries = {entry.name: entry for entry in archive.getmembers()[: _MAX_FILES + 1] if entry.isfile()}
            manifest = _read_manifest(archive, entries, file)
            (scratch / "raft").mkdir(mode=0o700)
            if any(name.startswith("keys/") for name in manifest.files):
                (scratch / "keys").mkdir(mode=0o700)
            for name, digest in manifest.files.items():
                say(f"unpacking {name}")
                content = archive.extractfile(entries[name]) if name in entries else None
                if content is None:
                    raise EnvironmentFailed(f"{file} lacks {name}, which its manifest names: it is damaged")
                with _private(scratch / name) as out:
                    shutil.copyfileobj(content, out, _PIECE_BYTES)
                if _digest(scratch / name) != digest:
                    raise EnvironmentFailed(f"{name} in {file} is not what was backed up: the backup is damaged")
    except tarfile.TarError as error:
        raise EnvironmentFailed(f"{file} is no backup: {error}") from error
    return manifest


def _read_manifest(archive: tarfile.TarFile, entries: dict[str, tarfile.TarInfo], file: Path) -> _BackupManifest:
    entry = entries.get(_MANIFEST)
    content = None if entry is None or entry.size > _MAX_MANIFEST_BYTES else archive.extractfile(entry)
    if content is None:
        raise EnvironmentFailed(f"{file} is no backup: it has no {_MANIFEST}")
    try:
        manifest = _BackupManifest(**json.loads(content.read()))
        is_ours = all(_is_ours(name) for name in manifest.files) and _LOG_FILES[0] in manifest.files
    except (ValueError, TypeError, AttributeError) as error:
        raise EnvironmentFailed(f"the manifest of {file} cannot be read: {error}") from error
    if manifest.format != BACKUP_FORMAT:
        raise EnvironmentFailed(f"{file} is of format {manifest.format}, and this release reads {BACKUP_FORMAT}")
    if not is_ours:
        raise EnvironmentFailed(f"the manifest of {file} names files that are in no backup")
    return manifest


def _is_ours(name: str) -> bool:
    if name in _LOG_FILES:
        return True
    directory, _, local = name.partition("/")
    return directory == "keys" and local == Path(local).name and Path(local).suffix in _KEY_SUFFIXES


def _put_aside(raft: Path) -> Path | None:
    """Rename what is there; where it is now, or None if there was nothing."""
    if not raft.exists():
        return None
    number = 1
    while (aside := raft.with_name(f"{raft.name}.before-{number}")).exists():
        number += 1
    os.rename(raft, aside)
    return aside
