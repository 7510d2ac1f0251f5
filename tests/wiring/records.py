"""What is written down of servers, one line for each thing, to hold what they are now against."""

from pathlib import Path

WRITE = "python -m tests.wiring.test_wiring, if that is meant"


def same_as_record(record: Path, now: set[str]) -> None:
    """Raises AssertionError: a line is new, or gone."""
    then = set(record.read_text(encoding="utf-8").splitlines())
    assert now - then == set(), WRITE
    assert then - now == set(), WRITE
    assert len(now) > 100


def write_record(record: Path, now: set[str]) -> None:
    record.write_text("".join(f"{line}\n" for line in sorted(now)), encoding="utf-8")
