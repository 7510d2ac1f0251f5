"""What an engine writes down of each frame, a line each, so that what a killed one has written can be read. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["APPLIED", "BEGUN", "MISSED", "SENT", "USED", "FrameRecord", "NodeRecord", "line_of", "read_records"]

SENT: Final = "sent"
APPLIED: Final = "applied"
MISSED: Final = "missed"
BEGUN: Final = "begun"
USED: Final = "used"


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """A frame that a node has sent, or applied: when, by the clock that all processes of the machine share.

    Attributes:
        awaited_ns: when the controller's engine was given the frame; 0 of one that was applied.
    """

    frame: int
    digest: str
    at_ns: int
    awaited_ns: int = 0


@dataclass(slots=True)
class NodeRecord:
    """What one engine has written."""

    name: str
    begun_ns: int = 0
    sent: list[FrameRecord] = field(default_factory=list)
    applied: list[FrameRecord] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    # Processor time of its process in seconds, and at which times.
    used: list[tuple[int, float]] = field(default_factory=list)


def line_of(kind: str, *values: object) -> str:
    """One line."""
    return " ".join([kind, *map(str, values)]) + "\n"


def read_records(name: str, lines: Iterable[str]) -> NodeRecord:
    """What the lines say; the last one may have been cut off when its writer was killed."""
    record = NodeRecord(name)
    for line in lines:
        if not line.endswith("\n"):
            break
        kind, *values = line.split()
        match kind, values:
            case "sent", [frame, digest, at_ns, awaited_ns]:
                record.sent.append(FrameRecord(int(frame), digest, int(at_ns), int(awaited_ns)))
            case "applied", [frame, digest, at_ns]:
                record.applied.append(FrameRecord(int(frame), digest, int(at_ns)))
            case "missed", [frame]:
                record.missed.append(int(frame))
            case "begun", [at_ns]:
                record.begun_ns = int(at_ns)
            case "used", [at_ns, used_s]:
                record.used.append((int(at_ns), float(used_s)))
            case _:
                raise ValueError(f"no engine of this release writes {line!r:.80}")
    return record
