"""What a sample is made of: a controller and followers, each a process that was forked, so that all begin quickly."""

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from batonpass.scenarios.bench.followers.course import ShowShape, shape_of
from batonpass.scenarios.bench.followers.figures import FrameNote, NodeNotes, SampleWindow, show_figures
from batonpass.scenarios.bench.loops import arguments, tell_all

__all__ = ["CONTROLLER", "HOST", "NodeAddress", "NodeProgram", "Notes", "StateOfFrame", "measure_show", "run_worker"]

CONTROLLER: Final = 0
"""The number of the process that sends; followers count from 1."""
HOST: Final = "127.0.0.1"
WARM_UP_S: Final = 0.8
GRACE_S: Final = 0.6
_PATIENCE_S: Final = 60.0
_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a process receives, and its public key; empty if it needs none."""

    port: int
    public: bytes = b""


NodeProgram = Callable[[int, ShowShape, Connection], None]
"""A process: sends its NodeAddress, receives all of them, runs until it is sent anything, and sends its NodeNotes."""


class Notes:
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


def measure_show(program: NodeProgram, shape: ShowShape, seconds: float) -> dict[str, float]:
    """Run a show of these processes; its figures. Raises EOFError: a process has failed, and has said why itself."""
    context = multiprocessing.get_context("fork")
    pairs = [context.Pipe() for _ in range(1 + shape.followers)]
    processes = [context.Process(target=program, args=(at, shape, pair[1]), daemon=True) for at, pair in enumerate(pairs)]
    lines = [pair[0] for pair in pairs]
    try:
        for process, (_, theirs) in zip(processes, pairs, strict=True):
            process.start()
            theirs.close()
        addresses = [_received(line) for line in lines]
        for line in reversed(lines):
            # The controller comes last: all others listen by then.
            line.send(addresses)
        begin_ns = time.monotonic_ns() + int(WARM_UP_S * 1e9)
        window = SampleWindow(begin_ns, begin_ns + int(seconds * 1e9), 1_000_000_000 // shape.rate)
        time.sleep(WARM_UP_S + seconds + GRACE_S)
        for line in lines:
            line.send("stop")
        controller, *followers = [_received(line) for line in lines]
    finally:
        for process in processes:
            process.join(1.0)
            if process.is_alive():
                process.kill()
    return show_figures(window, controller, followers)


def run_worker(program: NodeProgram) -> None:
    """As `side_by_side` asks."""
    work, seconds = arguments("batonpass")
    tell_all(measure_show(program, shape_of(work), seconds))


def _received(line: Connection) -> NodeAddress | NodeNotes:
    if not line.poll(_PATIENCE_S):
        raise EOFError(f"a process of the show said nothing for {_PATIENCE_S:g} s")
    answer: NodeAddress | NodeNotes = line.recv()
    return answer


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
