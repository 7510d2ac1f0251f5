"""The file of pins: what was once believed is on the disk, whatever happens to it."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from batonpass.crypto.continuity import Published, first_pin
from batonpass.crypto.errors import KeyFileError
from batonpass.crypto.keys import Identity
from batonpass.crypto.pin_file import PinFile, PinRecord

PINS = [first_pin("alpha.s1", Published(1, Identity.generate().public)) for _ in range(5)]


def record(number: int, version: int = 1) -> PinRecord:
    return PinRecord(f"alpha.s{number}", "simserver", PINS[version - 1])


def write(file: PinFile, *records: PinRecord, durable: bool = True) -> None:
    for one in records:
        file.write(one, all_records=records, count=len(records), durable=durable)


def test_pins_are_read_back_and_the_last_word_counts(tmp_path: Path) -> None:
    file = PinFile(tmp_path / "pins")
    assert file.load() == {}
    write(file, record(1), record(2), record(1, 3), durable=False)
    file.forget("alpha.s2")
    assert PinFile(tmp_path / "pins").load() == {"alpha.s1": record(1, 3)}
    assert (tmp_path / "pins").stat().st_mode & 0o777 == 0o600


def test_a_line_that_a_crash_cut_off_is_dropped_and_other_damage_is_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "pins"
    write(PinFile(path), record(1), record(2))
    whole = path.read_bytes()
    for length in range(len(whole) - 1, whole.index(b"\n") + 1, -97):
        for end in (b"", b"\n", bytes(40)):
            path.write_bytes(whole[:length] + (b"" if length == len(whole) - 1 else end))
            file = PinFile(path)
            assert list(file.load()) == ["alpha.s1"]
            assert "not written to its end" in caplog.text
            caplog.clear()
        write(PinFile(path), record(3))
        assert list(PinFile(path).load()) == ["alpha.s1", "alpha.s3"]
    for damaged in (b"{}\n" + whole, whole[10:], whole.replace(b"enc", b"abc"), b"\n" + whole):
        path.write_bytes(damaged)
        with pytest.raises(KeyFileError, match="damaged in line 1"):
            PinFile(path).load()
    path.write_bytes(whole)
    path.chmod(0o640)
    with pytest.raises(KeyFileError, match="chmod 600"):
        PinFile(path).load()


def test_history_is_dropped_when_there_is_much_of_it(tmp_path: Path) -> None:
    file = PinFile(tmp_path / "pins")
    for turn in range(1100):
        only = record(1, 1 + turn % 5)
        file.write(only, all_records=[only], count=1, durable=False)
    assert len((tmp_path / "pins").read_bytes().splitlines()) < 1010
    assert json.loads((tmp_path / "pins").read_bytes().splitlines()[-1])["head"] == PINS[1099 % 5].head


# A disk that is full


@contextmanager
def room_for(path: Path, spare_bytes: int) -> Iterator[None]:
    """The kernel writes what fits, and refuses the rest, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + spare_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("spare_bytes", [0, 1, 300])
def test_what_a_full_disk_took_of_a_line_is_cut_off_and_the_line_is_written_with_the_next(
    tmp_path: Path, spare_bytes: int
) -> None:
    path = tmp_path / "pins"
    file = PinFile(path)
    write(file, record(1))
    whole = path.read_bytes()
    with room_for(path, spare_bytes):
        for number in (2, 3):
            with pytest.raises(KeyFileError, match="cannot be written: File too large"):
                write(file, record(number))
        assert path.read_bytes() == whole
    assert file.waiting == 2
    write(file, record(2, 2))
    assert file.waiting == 0
    records = PinFile(path).load()
    assert records == {"alpha.s1": record(1), "alpha.s3": record(3), "alpha.s2": record(2, 2)}


def test_what_cannot_be_forgotten_on_the_disk_is_not_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "pins"
    file = PinFile(path)
    write(file, record(1))
    with room_for(path, 5):
        with pytest.raises(KeyFileError):
            write(file, record(2))
        for name in ("alpha.s1", "alpha.s2"):
            with pytest.raises(KeyFileError):
                file.forget(name)
    write(file, record(3))
    assert list(PinFile(path).load()) == ["alpha.s1", "alpha.s2", "alpha.s3"]


def test_a_disk_without_room_for_a_second_file_takes_another_line(tmp_path: Path) -> None:
    file = PinFile(tmp_path / "pins")
    only = record(1)
    for _ in range(1003):
        file.write(only, all_records=[only], count=1, durable=False)
    with room_for(tmp_path / "pins", 10_000):
        # The new file would be larger than what there is room for.
        many = [only] * 2000
        file.write(record(2), all_records=many, count=1, durable=False)
    assert list(PinFile(tmp_path / "pins").load()) == ["alpha.s1", "alpha.s2"]
