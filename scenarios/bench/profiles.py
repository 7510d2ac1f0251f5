"""Where a member's time goes: self time per function, and per layer. Pure.

Two sources: the collapsed stacks of py-spy (https://github.com/benfred/py-spy), which samples from outside and distorts
nothing, and the standard library's cProfile, which costs the more the more calls there are.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["WAITING", "Profile", "from_collapsed", "from_cprofile", "layer_of"]

# The first one that is found in a file's path is its layer.
_LAYERS: Final = (
    ("pysyncobj/", "raft: PySyncObj"),
    ("tree/raft", "raft: the fence"),
    ("tree/journal", "journal: encoding, writing, fdatasync"),
    ("tree/durable", "journal: encoding, writing, fdatasync"),
    ("tree/disk", "journal: encoding, writing, fdatasync"),
    ("tree/snapshot", "snapshots"),
    ("tree/tls", "TLS"),
    ("tree/frames", "messages: CBOR and checks"),
    ("tree/data", "CBOR of commands, values and messages"),
    ("tree/transport", "connections"),
    ("tree/replica", "replica: the driver"),
    ("tree/submissions", "replica: submissions"),
    ("tree/reads", "replica: reads"),
    ("tree/", "applying: commands and store"),
    ("trio/", "trio: scheduling and sockets"),
    ("scenarios/bench/", "the benchmark's clients"),
)
_OTHER: Final = "other"
WAITING: Final = "waiting, which takes no processor time"
# The functions in which threads of trio wait for the world or for work. py-spy takes some of that for activity.
_WAITING: Final = frozenset(
    {"EpollIOManager.get_events", "WorkerThread._work", "<method 'poll' of 'select.epoll' objects>"}
)
_FRAME: Final = re.compile(r"^(?P<function>.*) \((?P<file>.*?)(?::(?P<line>\d+))?\)$")


@dataclass(frozen=True)
class Profile:
    """Seconds of self time by function (`name (file)`) and by layer."""

    by_function: dict[str, float]
    by_layer: dict[str, float]

    @property
    def total_s(self) -> float:
        """All of it."""
        return sum(self.by_layer.values())

    def top(self, count: int) -> list[tuple[str, float]]:
        """The functions that took most, and their seconds."""
        return _most(self.by_function)[:count]

    def layers(self) -> list[tuple[str, float]]:
        """The layers, and their seconds, the largest first."""
        return _most(self.by_layer)


def layer_of(file: str) -> str:
    """The layer that a source file belongs to."""
    return next((layer for part, layer in _LAYERS if part in file), _OTHER)


def from_collapsed(text: str, seconds_per_sample: float) -> Profile:
    """From lines of `frame;frame;frame count`, outermost frame first, as `py-spy record --format raw` writes them.

    Raises:
        ValueError: a line has another shape.
    """
    by_function: Counter[str] = Counter()
    by_layer: Counter[str] = Counter()
    for line in filter(None, text.splitlines()):
        stack, _, count = line.rpartition(" ")
        frames = [_FRAME.match(frame) for frame in stack.split(";")]
        if not count.isdigit() or frames[-1] is None:
            raise ValueError(f"not a collapsed stack: {line[:200]!r}")
        innermost = frames[-1]
        by_function[f"{innermost['function']} ({_short(innermost['file'])})"] += int(count)
        layer = WAITING if innermost["function"] in _WAITING else layer_of(innermost["file"])
        by_layer[layer] += int(count)
    return Profile(_scaled(by_function, seconds_per_sample), _scaled(by_layer, seconds_per_sample))


def from_cprofile(stats: Mapping[tuple[str, int, str], tuple[Any, ...]]) -> Profile:
    """From `pstats.Stats.stats`. The time of built-in functions counts to the layers of their callers."""
    by_function: Counter[str] = Counter()
    by_layer: Counter[str] = Counter()
    for (file, _line, name), (_calls, _primitive_calls, self_s, _cumulative_s, callers) in stats.items():
        built_in = file == "~"
        by_function[name if built_in else f"{name} ({_short(file)})"] += self_s
        if name in _WAITING:
            by_layer[WAITING] += self_s
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


def _short(file: str) -> str:
    """The last two parts of a path: enough to find it."""
    return "/".join(file.split("/")[-2:])
