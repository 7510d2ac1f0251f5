"""What a sample is made of: a controller and followers, a process each, and what is said on stdin and stdout."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

from batonpass.scenarios.bench.followers.course import ShowShape, shape_of
from batonpass.scenarios.bench.followers.figures import FrameNote, NodeNotes, SampleWindow, show_figures
from batonpass.scenarios.bench.loops import arguments, tell_all

__all__ = [
    "CONTROLLER",
    "HOST",
    "FrameNotes",
    "NodeAddress",
    "NodeLine",
    "NodeProgram",
    "StateOfFrame",
    "measure_show",
    "run_worker",
]

CONTROLLER: Final = 0
"""The number of the process that sends; followers count from 1."""
HOST: Final = "127.0.0.1"
WARM_UP_S: Final = 0.8
GRACE_S: Final = 0.6
_PATIENCE_S: Final = 90.0
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a process receives, and its public key in hexadecimal; empty if it needs none."""

    port: int
    public: str = ""


class FrameNotes:
    """What a process notes of frames."""

    def __init__(self) -> None:
        self._frames: Final[list[FrameNote]] = []

    def note(self, frame: int, at_ns: int) -> None:
        """A frame was sent, or applied, at this time."""
        self._frames.append(FrameNote(frame, at_ns, time.process_time_ns()))

    def all(self) -> NodeNotes:
        """All of it."""
        return NodeNotes(tuple(self._frames), _peak_bytes())


class StateOfFrame:
    """States of one size that differ in their first bytes, which are the number of the frame."""

    def __init__(self, size_bytes: int) -> None:
        self._rest: Final = os.urandom(size_bytes - _NUMBER_BYTES)

    def __call__(self, frame: int) -> bytes:
        """The state of a frame."""
        return frame.to_bytes(_NUMBER_BYTES, "little") + self._rest

    def check(self, frame: int, state: bytes) -> None:
        """Raises ValueError: this is no state of the frame."""
        if len(state) != _NUMBER_BYTES + len(self._rest) or int.from_bytes(state[:_NUMBER_BYTES], "little") != frame:
            raise ValueError(f"what came as frame {frame} is another state")


class NodeLine:
    """A process and who started it: it says where it receives, hears where all do, and is stopped by anything more."""

    def exchange(self, own: NodeAddress) -> list[NodeAddress]:
        """Say the own address, and wait for those of all, by number."""
        _say(astuple(own))
        return [NodeAddress(*each) for each in json.loads(sys.stdin.readline())]

    def fileno(self) -> int:
        """Becomes readable when the process is to end."""
        return sys.stdin.fileno()

    def report(self, notes: FrameNotes) -> None:
        """Say what was noted; the last thing that a process does."""
        _say(astuple(notes.all()))


NodeProgram = Callable[[int, ShowShape, NodeLine], None]
"""What a process does: it exchanges addresses, runs until its line is readable, and reports."""


def run_worker(module: str, program: NodeProgram) -> None:
    """As `side_by_side` asks; the processes of a show are the same `module`, and run `program`."""
    if sys.argv[1] == "node":
        program(int(sys.argv[2]), shape_of(sys.argv[3]), NodeLine())
    else:
        work, seconds = arguments("batonpass")
        tell_all(measure_show(module, shape_of(work), seconds))


def measure_show(module: str, shape: ShowShape, seconds: float) -> dict[str, float]:
    """Run a show; its figures. A process that fails says why itself, on stderr."""
    nodes = [_started(module, shape, number) for number in range(1 + shape.followers)]
    try:
        addresses = [_answer(node) for node in nodes]
        for node in reversed(nodes):
            # The controller comes last: all others listen by then.
            _write(node, json.dumps(addresses))
        begin_ns = time.monotonic_ns() + int(WARM_UP_S * 1e9)
        window = SampleWindow(begin_ns, begin_ns + int(seconds * 1e9), 1_000_000_000 // shape.rate)
        if select.select(
            [node.stdout for node in nodes if node.stdout is not None], (), (), WARM_UP_S + seconds + GRACE_S
        )[0]:
            sys.exit("a process of the show ended too soon")
        for node in nodes:
            _write(node, "stop")
        controller, *followers = [_notes_of(_answer(node)) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
            # Closes the pipes.
            node.communicate()
    return show_figures(window, controller, followers)


def _started(module: str, shape: ShowShape, number: int) -> subprocess.Popen[str]:
    argv = (sys.executable, "-m", module, "node", str(number), str(shape))
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _notes_of(answer: Sequence[Any]) -> NodeNotes:
    frames, peak_bytes = answer
    return NodeNotes(tuple(FrameNote(*each) for each in frames), peak_bytes)


def _answer(node: subprocess.Popen[str]) -> Any:
    if node.stdout is None or not select.select((node.stdout,), (), (), _PATIENCE_S)[0]:
        sys.exit(f"a process of the show said nothing for {_PATIENCE_S:g} s")
    if not (said := node.stdout.readline()):
        sys.exit("a process of the show has ended")
    return json.loads(said)


def _write(node: subprocess.Popen[str], text: str) -> None:
    if node.stdin is not None:
        node.stdin.write(text + "\n")
        node.stdin.flush()


def _say(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
