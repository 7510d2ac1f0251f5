"""The course: which shows are measured, and the rows of each."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from batonpass.scenarios.bench.comparison import OURS, ComparisonRow
from batonpass.scenarios.bench.rows import RowUnit
from batonpass.scenarios.bench.side_by_side import Course

__all__ = ["FAN_OUT", "FIGURES", "TREE", "UDP", "ShowShape", "course_of", "shape_of", "size_text"]

UDP: Final = "udp"
TREE: Final = "tree"
FAN_OUT: Final = 4
"""Children of a node in the tree."""

FIGURES: Final = {
    "p50": ("send to applied, p50", RowUnit.MS),
    "p99": ("p99", RowUnit.MS),
    "sent": ("sent", RowUnit.PER_SECOND),
    "frames": ("applied by all", RowUnit.PER_SECOND),
    "late": ("late", RowUnit.FRAMES),
    "lost": ("lost", RowUnit.FRAMES),
    "controller": ("controller", RowUnit.MICROSECONDS),
    "follower": ("a follower", RowUnit.MICROSECONDS),
    "controller-memory": ("peak, controller", RowUnit.MEGABYTES),
    "follower-memory": ("peak, follower", RowUnit.MEGABYTES),
}
"""Headings and units, in the order of the table; `figures.show_figures` says what each is."""

_SHAPE: Final = re.compile(r"(\d+)x(\d+)@(\d+)(?:/(\d+))?")


@dataclass(frozen=True, slots=True)
class ShowShape:
    """A show: how large its state is, how many followers it has, its frames a second; `fan_out` 0: no tree."""

    state_bytes: int
    followers: int
    rate: int
    fan_out: int = 0

    def __str__(self) -> str:
        """As `shape_of` reads it."""
        return f"{self.state_bytes}x{self.followers}@{self.rate}" + (f"/{self.fan_out}" if self.fan_out else "")


def shape_of(text: str) -> ShowShape:
    """Read the text of a shape. Raises ValueError: it is none."""
    if (matched := _SHAPE.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is no show: write BYTESxFOLLOWERS@RATE or BYTESxFOLLOWERS@RATE/FAN_OUT")
    return ShowShape(*(int(part or 0) for part in matched.groups()))


def size_text(size_bytes: int) -> str:
    """A size for people, in the largest unit in which it is whole."""
    for unit, factor in (("MiB", 1024**2), ("KiB", 1024)):
        if size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} bytes"


def course_of(followers: Sequence[int], states: Sequence[int], rate: int) -> Course:
    """Every state with every number of followers; with a tree, too, if it would have a second level."""
    rows: list[ComparisonRow] = []
    work: dict[tuple[str, str], str] = {}
    for state_bytes in states:
        for count in followers:
            shape = ShowShape(state_bytes, count, rate)
            subjects = (UDP, TREE) if count > FAN_OUT else (UDP,)
            works = {OURS: shape, UDP: shape, TREE: ShowShape(state_bytes, count, rate, FAN_OUT)}
            for figure, (heading, unit) in FIGURES.items():
                name = f"{shape}:{figure}"
                title = f"{size_text(state_bytes)} to {count}: {heading}"
                rows.append(ComparisonRow(name, title, unit, subjects))
                work |= {(subject, name): f"{works[subject]}:{figure}" for subject in (OURS, *subjects)}
    return Course(
        title=f"followers: {rate} frames a second on loopback, a process for each node: median (ours : theirs)",
        rows=tuple(rows),
        package="batonpass.scenarios.bench.followers.workers",
        workers={OURS: "on_batonpass", TREE: "on_batonpass", UDP: "on_udp"},
        peers=(),
        work=work,
        versions=("batonpass", "trio", "cryptography"),
        one_core=False,
        # Of very many followers with very large states a machine may be too small.
        bears_failures=True,
    )
