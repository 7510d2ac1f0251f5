"""The sequence diagram of one transfer, with its real times. Pure.

Time runs to the right. Every server is a horizontal lifeline. Every hop is an arrow from the moment it was sent at one
server to the moment it was received at the other. Marks are moments at one server. The band from `frozen` to
`activated` is the time in which no server simulated the entity.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from batonpass.scenarios.report.charts import OFF_PATH_COLOUR, ON_PATH_COLOUR
from batonpass.scenarios.report.model import MarkLabel, ReportedHop, ReportedMark, SampleTransfer
from batonpass.scenarios.report.svg import (
    ChartAxis,
    ChartBlock,
    ChartDot,
    ChartLine,
    ChartMark,
    ChartNote,
    LegendEntry,
    draw,
)
from batonpass.scenarios.report.words import number_text

NS_PER_MS = 1_000_000
NS_PER_US = 1_000
# Below this many nanoseconds in all, microseconds are easier to read than fractions of milliseconds.
MICROSECONDS_BELOW_NS = 2 * NS_PER_MS

MARK_COLOURS: Final[dict[MarkLabel, str]] = {
    "requested": "#7a68c9",
    "frozen": "#4a8fa3",
    "staged": "#b5588f",
    "committed": "#c2571a",
    "activated": "#159a74",
    "retired": "#8b6d4f",
}
_NUMBER_COLOUR: Final = "#1f5fa8"
_GAP_COLOUR: Final = "rgba(130, 140, 155, 0.16)"
# Labels of marks that are closer than this share of the whole time would cover each other in a narrow window.
_CLOSE: Final = 0.24
_LANE_PX: Final = 72
# Where in its lane a lifeline runs: the server's name and labels stand above it, labels below it, too.
_LIFELINE: Final = 0.62


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """How nanoseconds of a report become numbers on an axis: from which moment, and in which unit."""

    origin_ns: int
    unit: str
    ns_per_unit: int

    def at(self, moment_ns: int) -> float:
        """The place of a moment on the axis."""
        return (moment_ns - self.origin_ns) / self.ns_per_unit


@dataclass(frozen=True, slots=True)
class HopRow:
    """One hop as the list beside the diagram shows it; times are text in the unit of the axis."""

    number: str
    kind: str
    src: str
    dst: str
    sent: str
    took: str
    on_path: bool


def time_axis(sample: SampleTransfer) -> TimeAxis:
    """The axis for a sample: zero is its first moment; µs when all of it took less than two milliseconds, else ms."""
    moments_ns = [moment for hop in sample.hops for moment in (hop.sent_ns, hop.received_ns)]
    moments_ns += [mark.at_ns for mark in sample.marks]
    if not moments_ns:
        return TimeAxis(0, "ms", NS_PER_MS)
    first_ns, last_ns = min(moments_ns), max(moments_ns)
    if last_ns - first_ns < MICROSECONDS_BELOW_NS:
        return TimeAxis(first_ns, "µs", NS_PER_US)
    return TimeAxis(first_ns, "ms", NS_PER_MS)


def lifelines(sample: SampleTransfer) -> tuple[str, ...]:
    """The servers of a sample from top to bottom: along the path first, then those met beside it."""
    on_path = sorted((hop for hop in sample.hops if hop.on_path), key=lambda hop: hop.number)
    off_path = sorted((hop for hop in sample.hops if not hop.on_path), key=lambda hop: hop.sent_ns)
    names = [name for hop in (*on_path, *off_path) for name in (hop.src, hop.dst)]
    return tuple(dict.fromkeys([*names, *(mark.server for mark in sample.marks)]))


def hop_rows(sample: SampleTransfer) -> tuple[HopRow, ...]:
    """The hops of a sample in the order they were sent, for the list beside the diagram."""
    axis = time_axis(sample)
    return tuple(
        HopRow(
            number=str(hop.number) if hop.on_path else "",
            kind=hop.kind,
            src=hop.src,
            dst=hop.dst,
            sent=number_text(axis.at(hop.sent_ns)),
            took=number_text((hop.received_ns - hop.sent_ns) / axis.ns_per_unit),
            on_path=hop.on_path,
        )
        for hop in sorted(sample.hops, key=lambda hop: (hop.sent_ns, hop.number))
    )


def sequence_diagram(sample: SampleTransfer) -> Markup:
    """The diagram of one transfer."""
    axis = time_axis(sample)
    servers = lifelines(sample)
    lane = {name: position + _LIFELINE for position, name in enumerate(servers)}
    path = [hop for hop in sample.hops if hop.on_path]
    moments = [axis.at(moment) for hop in sample.hops for moment in (hop.sent_ns, hop.received_ns)]
    moments += [axis.at(mark.at_ns) for mark in sample.marks]
    title = f"time since the first moment of the transfer ({axis.unit})"
    across = ChartAxis.from_zero(title, moments)
    rails = [ChartLine([(0, at), (across.high, at)], OFF_PATH_COLOUR, width_px=0.8) for at in lane.values()]
    return draw(
        across,
        ChartAxis.of_rows(len(servers)),
        [
            *_gap_marks(sample.marks, axis, len(servers)),
            *rails,
            *(_arrow(hop, axis, lane) for hop in sample.hops),
            *(_number(hop, axis, lane) for hop in path),
            *_moments(sample.marks, axis, lane),
        ],
        height_px=_LANE_PX * max(len(servers), 1),
        rows=servers,
        legend=[
            LegendEntry(_NUMBER_COLOUR, "hop (on the path)", "1"),
            LegendEntry(OFF_PATH_COLOUR, "dashed: message beside the path"),
            LegendEntry(_GAP_COLOUR, "no server simulates"),
        ],
    )


def describe_sample(sample: SampleTransfer) -> str:
    """The diagram in a sentence, for readers who do not see it."""
    path = [hop for hop in sorted(sample.hops, key=lambda hop: hop.number) if hop.on_path]
    steps = ", ".join(f"{hop.number} {hop.kind} from {hop.src} to {hop.dst}" for hop in path)
    return f"Transfer {sample.transfer_id}: {steps or 'no hop on its path'}."


def _arrow(hop: ReportedHop, axis: TimeAxis, lane: dict[str, float]) -> ChartLine:
    took = number_text((hop.received_ns - hop.sent_ns) / axis.ns_per_unit)
    what = f"hop {hop.number}: " if hop.on_path else "beside the path: "
    return ChartLine(
        [(axis.at(hop.sent_ns), lane[hop.src]), (axis.at(hop.received_ns), lane[hop.dst])],
        ON_PATH_COLOUR if hop.on_path else OFF_PATH_COLOUR,
        says=f"{what}{hop.kind}, {hop.src} → {hop.dst}, took {took} {axis.unit}",
        width_px=2.4 if hop.on_path else 1.4,
        is_dashed=not hop.on_path,
        arrow="arrow-on-path" if hop.on_path else "arrow-off-path",
    )


def _number(hop: ReportedHop, axis: TimeAxis, lane: dict[str, float]) -> ChartDot:
    """The number of a hop, in a disc in the middle of its arrow."""
    x, y = (axis.at(hop.sent_ns) + axis.at(hop.received_ns)) / 2, (lane[hop.src] + lane[hop.dst]) / 2
    return ChartDot(x, y, _NUMBER_COLOUR, radius_px=9, key=str(hop.number))


def _moments(marks: Sequence[ReportedMark], axis: TimeAxis, lane: dict[str, float]) -> list[ChartDot]:
    below = _labelled_below(marks, lane)
    return [
        ChartDot(
            axis.at(mark.at_ns),
            lane[mark.server],
            MARK_COLOURS[mark.label],
            says=f"{mark.label} at {number_text(axis.at(mark.at_ns))} {axis.unit}",
            label=mark.label,
            is_labelled_below=mark in below,
        )
        for mark in marks
    ]


def _labelled_below(marks: Sequence[ReportedMark], lane: dict[str, float]) -> set[ReportedMark]:
    """The marks that are labelled below their lifeline: the last server's, or those whose close neighbour is above."""
    if not marks:
        return set()
    moments_ns = [mark.at_ns for mark in marks]
    close_ns = _CLOSE * (max(moments_ns) - min(moments_ns))
    below: set[ReportedMark] = set()
    latest: dict[str, ReportedMark] = {}
    for mark in sorted(marks, key=lambda mark: mark.at_ns):
        neighbour = latest.get(mark.server)
        if neighbour is not None and mark.at_ns - neighbour.at_ns <= close_ns:
            is_below = neighbour not in below
        else:
            is_below = lane[mark.server] == max(lane.values())
        if is_below:
            below.add(mark)
        latest[mark.server] = mark
    return below


def _gap(marks: Sequence[ReportedMark]) -> tuple[int, int] | None:
    frozen_ns = [mark.at_ns for mark in marks if mark.label == "frozen"]
    activated_ns = [mark.at_ns for mark in marks if mark.label == "activated"]
    if not frozen_ns or not activated_ns or max(activated_ns) <= min(frozen_ns):
        return None
    return min(frozen_ns), max(activated_ns)


def _gap_marks(marks: Sequence[ReportedMark], axis: TimeAxis, lanes: int) -> list[ChartMark]:
    """The band in which no server simulates, and how long that is, in words above it."""
    gap = _gap(marks)
    if gap is None:
        return []
    start, end = axis.at(gap[0]), axis.at(gap[1])
    text = f"no server simulates: {number_text(end - start)} {axis.unit}"
    return [ChartBlock((start, end), (0, lanes), _GAP_COLOUR), ChartNote((start + end) / 2, text)]
