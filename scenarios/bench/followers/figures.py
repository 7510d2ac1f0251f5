"""What the processes of a sample have noted of each frame, as figures. Pure.

Only frames count that were sent within the window: before it a show warms up, and after it what was sent arrives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batonpass.scenarios.report.statistics import percentile

__all__ = ["FrameNote", "NodeNotes", "SampleWindow", "show_figures"]


@dataclass(frozen=True, slots=True)
class FrameNote:
    """A frame that was sent or applied.

    Attributes:
        at_ns: by the clock that all processes of the machine share.
        used_ns: processor time of the process until then.
    """

    frame: int
    at_ns: int
    used_ns: int


@dataclass(frozen=True, slots=True)
class NodeNotes:
    """Of one process: what it has sent or applied, in order, and the most memory that it ever had."""

    frames: tuple[FrameNote, ...]
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class SampleWindow:
    """From `begin_ns` on, before `end_ns`; `period_ns` is from a frame to the next."""

    begin_ns: int
    end_ns: int
    period_ns: int


def show_figures(window: SampleWindow, controller: NodeNotes, followers: Sequence[NodeNotes]) -> dict[str, float]:
    """The figures of a sample. One that has no value, as a delay of frames that no node applied, is missing.

    - `p50`, `p99`: ms, from sending a frame until the last follower has applied it, of the frames that all applied.
    - `frames`: a second, that all followers applied; of `sent` a second.
    - `late`: frames that the last follower applied more than a period after they were sent.
    - `lost`: frames that at least one follower has not applied.
    - `controller`, `follower`: processor time for each frame that was sent, in microseconds; followers on average.
    - `controller-memory`, `follower-memory`: the peak in MB; of the follower that had most.
    """
    sent = {each.frame: each.at_ns for each in controller.frames if window.begin_ns <= each.at_ns < window.end_ns}
    applied = [{each.frame: each.at_ns for each in node.frames} for node in followers]
    delays = [
        max(times[frame] for times in applied) - at_ns
        for frame, at_ns in sent.items()
        if all(frame in times for times in applied)
    ]
    seconds = (window.end_ns - window.begin_ns) / 1e9
    figures = {
        "sent": len(sent) / seconds,
        "frames": len(delays) / seconds,
        "late": float(sum(delay > window.period_ns for delay in delays)),
        "lost": float(len(sent) - len(delays)),
        "controller-memory": controller.peak_bytes / 1e6,
        "follower-memory": max(node.peak_bytes for node in followers) / 1e6,
    }
    if delays:
        figures |= {"p50": percentile(delays, 50) / 1e6, "p99": percentile(delays, 99) / 1e6}
    costs = [cost for node in followers if (cost := _cost_us(node, sent)) is not None]
    if costs:
        figures["follower"] = sum(costs) / len(costs)
    if (cost := _cost_us(controller, sent)) is not None:
        figures["controller"] = cost
    return figures


def _cost_us(node: NodeNotes, sent: Mapping[int, int]) -> float | None:
    """Processor time of a process for each frame that was sent, between the first and last that it noted of them."""
    noted = [each for each in node.frames if each.frame in sent]
    if len(noted) < 2:
        return None
    first, last = noted[0], noted[-1]
    frames = sum(first.frame < frame <= last.frame for frame in sent)
    return (last.used_ns - first.used_ns) / frames / 1e3 if frames else None
