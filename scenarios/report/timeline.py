"""The sequence diagram of one transfer, with its real times, as a plotly figure in plain data. Pure.

Time runs to the right. Every server is a horizontal lifeline. Every hop is an arrow from the moment it was sent at one
server to the moment it was received at the other. Marks are moments at one server. The band from `frozen` to
`activated` is the time in which no server simulated the entity.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batonpass.scenarios.report.charts import OFF_PATH_COLOUR, ON_PATH_COLOUR, Figure, plain
from batonpass.scenarios.report.model import MarkLabel, ReportedHop, ReportedMark, SampleTransfer
from batonpass.scenarios.report.words import number_text

NS_PER_MS = 1_000_000
NS_PER_US = 1_000
# Below this many nanoseconds in all, microseconds are easier to read than fractions of milliseconds.
MICROSECONDS_BELOW_NS = 2 * NS_PER_MS

_MARK_SYMBOLS: dict[MarkLabel, tuple[str, str]] = {
    "requested": ("circle", "#7a68c9"),
    "frozen": ("square", "#4a8fa3"),
    "staged": ("hexagon", "#b5588f"),
    "committed": ("diamond", "#c2571a"),
    "activated": ("star", "#159a74"),
    "retired": ("x", "#8b6d4f"),
}


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


def sequence_diagram(sample: SampleTransfer) -> Figure:
    """The diagram of one transfer. Arrows are traces of their own: one for each hop, on the path or beside it."""
    axis = time_axis(sample)
    servers = lifelines(sample)
    row = {name: position for position, name in enumerate(servers)}
    arrows = [_arrow(hop, axis, row) for hop in sample.hops]
    _show_once_in_legend(arrows)
    return {
        "data": [*arrows, _numbers(sample.hops, axis, row), *_mark_traces(sample.marks, axis, row)],
        "layout": {
            "height": 150 + 64 * len(servers),
            "margin": {"l": 90, "r": 24, "t": 34, "b": 104},
            "xaxis": {"title": {"text": f"time since the first moment of the transfer ({axis.unit})"}},
            "yaxis": {
                "tickvals": list(range(len(servers))),
                "ticktext": [plain(name) for name in servers],
                "range": [len(servers) - 0.4, -0.6],
                "showgrid": True,
                "zeroline": False,
                "fixedrange": True,
            },
            "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
            "shapes": _gap_band(sample.marks, axis),
            "annotations": _gap_label(sample.marks, axis),
        },
    }


def describe_sample(sample: SampleTransfer) -> str:
    """The diagram in a sentence, for readers who do not see it."""
    path = [hop for hop in sorted(sample.hops, key=lambda hop: hop.number) if hop.on_path]
    steps = ", ".join(f"{hop.number} {hop.kind} from {hop.src} to {hop.dst}" for hop in path)
    return f"Transfer {sample.transfer_id}: {steps or 'no hop on its path'}."


def _arrow(hop: ReportedHop, axis: TimeAxis, row: dict[str, int]) -> dict[str, Any]:
    colour = ON_PATH_COLOUR if hop.on_path else OFF_PATH_COLOUR
    took = number_text((hop.received_ns - hop.sent_ns) / axis.ns_per_unit)
    what = f"hop {hop.number}: " if hop.on_path else "beside the path: "
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "hop (on path)" if hop.on_path else "message beside the path",
        "legendgroup": "on" if hop.on_path else "off",
        "showlegend": False,
        "x": [axis.at(hop.sent_ns), axis.at(hop.received_ns)],
        "y": [row[hop.src], row[hop.dst]],
        "line": {"color": colour, "width": 2.4 if hop.on_path else 1.4, "dash": "solid" if hop.on_path else "dot"},
        "marker": {
            "color": colour,
            "symbol": ["circle", "arrow"],
            "size": [5, 13 if hop.on_path else 10],
            "angleref": "previous",
            "line": {"width": 0},
            "opacity": 1,
        },
        "hovertemplate": (
            f"{what}{plain(hop.kind)}<br>{plain(hop.src)} → {plain(hop.dst)}<br>took {took} {axis.unit}<extra></extra>"
        ),
    }


def _show_once_in_legend(arrows: Sequence[dict[str, Any]]) -> None:
    seen: set[str] = set()
    for arrow in arrows:
        arrow["showlegend"] = arrow["legendgroup"] not in seen
        seen.add(arrow["legendgroup"])


def _numbers(hops: Sequence[ReportedHop], axis: TimeAxis, row: dict[str, int]) -> dict[str, Any]:
    """The hop numbers, each in a disc in the middle of its arrow."""
    path = [hop for hop in hops if hop.on_path]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "showlegend": False,
        "hoverinfo": "skip",
        "x": [(axis.at(hop.sent_ns) + axis.at(hop.received_ns)) / 2 for hop in path],
        "y": [(row[hop.src] + row[hop.dst]) / 2 for hop in path],
        "text": [str(hop.number) for hop in path],
        "textfont": {"color": "#ffffff", "size": 11, "weight": 700},
        "marker": {"color": "#1f5fa8", "size": 19, "symbol": "circle"},
    }


def _mark_traces(marks: Sequence[ReportedMark], axis: TimeAxis, row: dict[str, int]) -> list[dict[str, Any]]:
    places = _label_places(marks, row)
    traces = []
    for label, (symbol, colour) in _MARK_SYMBOLS.items():
        ours = [mark for mark in marks if mark.label == label]
        if not ours:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "name": label,
                "x": [axis.at(mark.at_ns) for mark in ours],
                "y": [row[mark.server] for mark in ours],
                "text": [label] * len(ours),
                "textposition": [places[mark] for mark in ours],
                "textfont": {"size": 11},
                "cliponaxis": False,
                "marker": {"symbol": symbol, "color": colour, "size": 12},
                "hovertemplate": f"{label} at %{{x:.3~f}} {axis.unit}<extra></extra>",
            }
        )
    return traces


def _label_places(marks: Sequence[ReportedMark], row: dict[str, int]) -> dict[ReportedMark, str]:
    """On which side of its lifeline each mark is labelled: outwards, or opposite to a close neighbour's label."""
    if not marks:
        return {}
    moments_ns = [mark.at_ns for mark in marks]
    close_ns = 0.12 * (max(moments_ns) - min(moments_ns))
    places: dict[ReportedMark, str] = {}
    latest: dict[str, ReportedMark] = {}
    for mark in sorted(marks, key=lambda mark: mark.at_ns):
        below = row[mark.server] == len(row) - 1
        neighbour = latest.get(mark.server)
        if neighbour is not None and mark.at_ns - neighbour.at_ns <= close_ns:
            below = places[neighbour] == "top center"
        places[mark] = "bottom center" if below else "top center"
        latest[mark.server] = mark
    return places


def _gap(marks: Sequence[ReportedMark]) -> tuple[int, int] | None:
    frozen_ns = [mark.at_ns for mark in marks if mark.label == "frozen"]
    activated_ns = [mark.at_ns for mark in marks if mark.label == "activated"]
    if not frozen_ns or not activated_ns or max(activated_ns) <= min(frozen_ns):
        return None
    return min(frozen_ns), max(activated_ns)


def _gap_band(marks: Sequence[ReportedMark], axis: TimeAxis) -> list[dict[str, Any]]:
    gap = _gap(marks)
    if gap is None:
        return []
    return [
        {
            "type": "rect",
            "layer": "below",
            "x0": axis.at(gap[0]),
            "x1": axis.at(gap[1]),
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "line": {"width": 0},
            "fillcolor": "rgba(130, 140, 155, 0.16)",
        }
    ]


def _gap_label(marks: Sequence[ReportedMark], axis: TimeAxis) -> list[dict[str, Any]]:
    gap = _gap(marks)
    if gap is None:
        return []
    start, end = axis.at(gap[0]), axis.at(gap[1])
    return [
        {
            "x": (start + end) / 2,
            "yref": "paper",
            "y": 1,
            "yanchor": "bottom",
            "text": f"nobody simulates: {number_text(end - start)} {axis.unit}",
            "showarrow": False,
            "font": {"size": 11},
        }
    ]
