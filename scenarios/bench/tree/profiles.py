"""Where a member's time goes: self time per function, and per layer. Pure.

There are two sources. The collapsed stacks of py-spy (https://github.com/benfred/py-spy) are sampled from outside,
which distorts nothing. The standard library's cProfile costs the more the more calls there are.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["WAITING", "WAITING_FOR_DISK", "Profile", "from_collapsed", "from_cprofile", "is_waiting", "layer_of"]

# The first one that is found in a file's path is its layer.
_LAYERS: Final = (
    ("pysyncobj/", "raft: PySyncObj"),
    ("tree/raft/submissions", "replica: submissions"),
    ("tree/raft/reads", "replica: reads"),
    ("tree/raft/", "raft: the fence"),
    ("tree/disk/snapshot", "snapshots"),
    ("tree/disk/", "journal: encoding and writing"),
    ("tree/net/tls", "TLS"),
    ("tree/net/frames", "messages: CBOR and checks"),
    ("tree/net/", "connections"),
    ("tree/data/data", "CBOR of commands, values and messages"),
    ("tree/member/patience", "replica: submissions"),
    ("tree/member/deadlines", "replica: submissions"),
    ("tree/member/read_index", "replica: reads"),
    ("tree/member/local_tree", "replica: reads"),
    ("tree/member/", "replica: the driver"),
    ("tree/", "applying: commands and store"),
    ("trio/", "trio: scheduling and sockets"),
    ("scenarios/bench/", "the benchmark's clients"),
)
_OTHER: Final = "other"
_NO_FRAME: Final = "no Python function"
WAITING: Final = "waiting for others"
WAITING_FOR_DISK: Final = "waiting for the disk (fdatasync)"
# The functions in which a thread waits, and takes no processor time. py-spy takes some of that for activity.
_WAITING: Final = {
    "EpollIOManager.get_events": WAITING,
    "WorkerThread._work": WAITING,
    "<method 'poll' of 'select.epoll' objects>": WAITING,
    "_RealFile.sync_data": WAITING_FOR_DISK,
    "<built-in method posix.fdatasync>": WAITING_FOR_DISK,
}
_FRAME: Final = re.compile(r"^(?P<function>.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)$")


@dataclass(frozen=True)
class Profile:
    """Seconds of self time by function (`name (file)`) and by layer, waiting included."""

    by_function: dict[str, float]
    by_layer: dict[str, float]

    @property
    def active_s(self) -> float:
        """All of it but the waiting."""
        return sum(spent_s for layer, spent_s in self.by_layer.items() if not is_waiting(layer))

    def top(self, count: int) -> list[tuple[str, float]]:
        """The functions that took most, without those that wait, and their seconds."""
        return [(name, spent_s) for name, spent_s in _most(self.by_function) if not _waits(name)][:count]

    def layers(self) -> list[tuple[str, float]]:
        """The layers, and their seconds, the largest first."""
        return _most(self.by_layer)


def layer_of(file: str) -> str:
    """The layer that a source file belongs to."""
    return next((layer for part, layer in _LAYERS if part in file), _OTHER)


def is_waiting(layer: str) -> bool:
    """Whether this layer is none: time in which nothing is done."""
    return layer in {WAITING, WAITING_FOR_DISK}


def from_collapsed(text: str, seconds_per_sample: float) -> Profile:
    """From lines of `frame;frame;frame count`, outermost frame first, as `py-spy record --format raw` writes them.

    Raises:
        ValueError: a line has another shape.
    """
    by_function: Counter[str] = Counter()
    by_layer: Counter[str] = Counter()
    for line in filter(None, text.splitlines()):
        stack, _, count = line.rpartition(" ")
        innermost = _FRAME.match(stack.rpartition(";")[2])
        if not count.isdigit() or (stack and innermost is None):
            raise ValueError(f"not a collapsed stack: {line[:200]!r}")
        if innermost is None:  # a thread that was outside of Python, as at its very beginning or end
            by_function[_NO_FRAME] += int(count)
            by_layer[_OTHER] += int(count)
            continue
        by_function[f"{innermost['function']} ({_short(innermost['file'])})"] += int(count)
        by_layer[_WAITING.get(innermost["function"]) or layer_of(innermost["file"])] += int(count)
    return Profile(_scaled(by_function, seconds_per_sample), _scaled(by_layer, seconds_per_sample))


def from_cprofile(stats: Mapping[tuple[str, int, str], tuple[Any, ...]]) -> Profile:
    """From `pstats.Stats.stats`. The time of built-in functions counts to the layers of their callers."""
    by_function: Counter[str] = Counter()
    by_layer: Counter[str] = Counter()
    for (file, _line, name), (_calls, _primitive_calls, self_s, _cumulative_s, callers) in stats.items():
        built_in = file == "~"
        by_function[name if built_in else f"{name} ({_short(file)})"] += self_s
        if name in _WAITING:
            by_layer[_WAITING[name]] += self_s
        elif built_in and callers:
            for (caller_file, _, _), (_, _, caller_self_s, _) in callers.items():
                by_layer[layer_of(caller_file)] += caller_self_s
        else:
            by_layer[layer_of(file)] += self_s
    return Profile(dict(by_function), dict(by_layer))


def _scaled(counts: Mapping[str, int], factor: float) -> dict[str, float]:
    return {name: count * factor for name, count in counts.items()}


def _most(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    pairs: Iterable[tuple[str, float]] = seconds.items()
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def _waits(function: str) -> bool:
    return function in _WAITING or function.partition(" (")[0] in _WAITING


def _short(file: str) -> str:
    """The last three parts of a path: enough to find it."""
    return "/".join(file.split("/")[-3:])
