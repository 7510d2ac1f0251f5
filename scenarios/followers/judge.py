"""What the engines of a show have written, held against each other. Pure.

No frame may be shown with two contents, sent twice, or applied twice or backwards by a node. Each number between the
first and the last frame was either sent or passed over, and the report names those. A follower that has not applied a
frame that was sent while it took part has dropped it: which ones is said for each node. If its engine has waited for
the data in vain, the frame is given up. A server that runs and shows no frame after the play has been left behind. If
none shows one, the whole show has come to a halt.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from batonpass.scenarios.followers.records import NodeRecord

__all__ = ["NodeFindings", "ShowFindings", "judge_show", "left_behind", "ranges_of"]


@dataclass(frozen=True, slots=True)
class NodeFindings:
    """Of one node.

    Attributes:
        joined_frames: how many frames were sent from the start of its engine until it applied one; None: never.
        used_share: of a processor, while its engine ran; None if that is not known.
    """

    name: str
    sent: int
    applied: int
    dropped: tuple[int, ...]
    joined_frames: int | None
    used_share: float | None


@dataclass(frozen=True, slots=True)
class ShowFindings:
    """Of a show.

    Attributes:
        divergent: frames that were shown with two contents.
        sent_twice: frames that were sent more than once.
        backwards: nodes that applied a frame after a later one, or twice.
        given_up: frames whose data an engine has waited for in vain.
        passed_over: numbers between the first and last frame that were never sent.
        latencies_ms: from the sending of a frame to its application, over all followers.
        whole_latencies_ms: the same from the moment at which the controller's engine was given the frame (R12).
    """

    frames: int
    divergent: tuple[int, ...]
    sent_twice: tuple[int, ...]
    backwards: tuple[str, ...]
    given_up: tuple[int, ...]
    passed_over: tuple[int, ...]
    latencies_ms: tuple[float, ...]
    whole_latencies_ms: tuple[float, ...]
    nodes: tuple[NodeFindings, ...]


def judge_show(nodes: Sequence[NodeRecord]) -> ShowFindings:
    """Judge what all have written."""
    digests, senders = defaultdict[int, set[str]](set), defaultdict[int, list[int]](list)
    awaited = {record.frame: record.awaited_ns for node in nodes for record in node.sent}
    for node in nodes:
        for record in node.sent:
            senders[record.frame].append(record.at_ns)
        for record in [*node.sent, *node.applied]:
            digests[record.frame].add(record.digest)
    # One that was written down as applied, and whose sender was killed before it wrote that down, was sent.
    known = sorted(digests)
    passed_over = [number for sooner, later in pairwise(known) for number in range(sooner + 1, later)]
    applied_by = {node.name: {record.frame for record in node.applied} for node in nodes}
    backwards = [node.name for node in nodes if any(b.frame <= a.frame for a, b in pairwise(node.applied))]
    found = [_node_found(node, senders, applied_by[node.name]) for node in nodes]
    return ShowFindings(
        frames=len(known),
        divergent=tuple(frame for frame in known if len(digests[frame]) > 1),
        sent_twice=tuple(sorted(frame for frame, times in senders.items() if len(times) > 1)),
        backwards=tuple(backwards),
        given_up=tuple(sorted({frame for node in nodes for frame in node.missed})),
        passed_over=tuple(passed_over),
        latencies_ms=tuple(
            (record.at_ns - senders[record.frame][0]) / 1e6
            for node in nodes
            for record in node.applied
            if record.frame in senders
        ),
        whole_latencies_ms=tuple(
            (record.at_ns - awaited[record.frame]) / 1e6
            for node in nodes
            for record in node.applied
            if record.frame in awaited
        ),
        nodes=tuple(found),
    )


def _node_found(node: NodeRecord, senders: dict[int, list[int]], applied: set[int]) -> NodeFindings:
    own = {record.frame for record in node.sent}
    first, last = min(applied, default=0), max(applied, default=-1)
    dropped = sorted(frame for frame in senders if first < frame < last and frame not in applied and frame not in own)
    joined = None
    if applied:
        joined = sum(times[0] > node.begun_ns and frame <= first for frame, times in senders.items())
    share = None
    if len(node.used) > 1:
        (from_ns, before_s), (to_ns, after_s) = node.used[0], node.used[-1]
        share = (after_s - before_s) / max((to_ns - from_ns) / 1e9, 1e-9)
    return NodeFindings(node.name, len(own), len(applied), tuple(dropped), joined, share)


def left_behind(newest: Mapping[str, int], running: Collection[str], ended_at: int) -> tuple[str, ...]:
    """Which of the servers that run have shown no frame after `ended_at`.

    Args:
        newest: the newest frame that each node has sent or applied.
    """
    return tuple(sorted(name for name in running if newest.get(name, 0) <= ended_at))


def ranges_of(numbers: Sequence[int], at_most: int | None = None) -> str:
    """Numbers for people, as `3, 7–9`; of more than `at_most` ranges the first ones, and how many more there are."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [str(first) if first == last else f"{first}–{last}" for first, last in ranges[:at_most]]
    if left := len(ranges) - len(shown):
        shown.append(f"and {left:,} more")
    return ", ".join(shown) or "none"
