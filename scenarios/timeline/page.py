"""The result of `baton run timeline` for people: a table on the terminal, and one HTML page that opens offline."""

from statistics import quantiles
from typing import Final

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.table import Table

from batonpass.scenarios.report.charts import MEDIAN_COLOUR, ON_PATH_COLOUR
from batonpass.scenarios.report.html import render_page
from batonpass.scenarios.report.model import Percentiles
from batonpass.scenarios.report.svg import (
    ChartAxis,
    ChartBlock,
    ChartCloud,
    ChartDot,
    ChartLine,
    ChartMark,
    LegendEntry,
    draw,
)
from batonpass.scenarios.report.words import number_text
from batonpass.scenarios.timeline.peer_process import UNIT_MS, PeerFound, changed
from batonpass.scenarios.timeline.run import TimelineResult, problems_of

__all__ = ["timeline_page", "timeline_table"]

_COLUMNS: Final = ("peer", "given", "heard", "late frames", "executed again", "later events", "requests lost", "joined")
_LEAST_MS: Final = 0.001
# What became of an event of the picture, in words and colours.
_BECAME: Final = {
    "same": ("came out as before", "#b8b8b8"),
    "other": ("came out otherwise", MEDIAN_COLOUR),
    "new": ("new", ON_PATH_COLOUR),
    "gone": ("gone", "#d62728"),
}


def timeline_table(result: TimelineResult) -> RenderableType:
    """Everything that the command shows when it is done."""
    plan = result.plan
    way = f", {plan.over_link} of them over the link" if plan.over_link else ""
    peers = Table(title=f"{plan.peers} peers{way}, {plan.latency_ms:g} ms each way, {plan.loss:.0%} lost")
    for name in _COLUMNS:
        peers.add_column(name, justify="left" if name == "peer" else "right")
    for peer in result.peers:
        peers.add_row(*_row(peer))
    facts = Table(show_header=False)
    for name, value in _facts(result).items():
        facts.add_row(name, value)
    return Group(peers, facts)


def timeline_page(result: TimelineResult) -> str:
    """The whole page, as HTML text."""
    shown = max((peer for peer in result.peers if peer.cone), key=lambda peer: changed(peer.cone), default=None)
    return render_page(
        "shared_timeline.html.jinja",
        report=result.facts,
        plan=result.plan,
        problems=problems_of(result),
        facts=_facts(result),
        columns=_COLUMNS,
        rows=[_row(peer) for peer in result.peers],
        cone=None if shown is None else {"peer": shown.name, "counts": _counts(shown), "chart": _cone(shown)},
        reworked=_reworked(result),
        frames=_frames(result),
    )


def _row(peer: PeerFound) -> list[str]:
    again, later = (sum(one.executed for one in peer.reworked), sum(one.later for one in peer.reworked))
    numbers = (peer.given, peer.heard, len(peer.reworked), again, later, peer.lost)
    return [peer.name, *[f"{number:,}" for number in numbers], f"{peer.joined_at * UNIT_MS:,} ms"]


def _facts(result: TimelineResult) -> dict[str, str]:
    reworked, share = result.reworked, result.executed_share
    late_ms = [one.late * UNIT_MS for one in reworked]
    states = {peer.digest[:16] or "none" for peer in result.peers}
    moves = {
        f"{move.kind} to {move.target}": f"after {move.ended_s - move.began_s:.1f} s, from {move.source}"
        for move in result.moves
    }
    return moves | {
        "states at the end": ", ".join(sorted(states)),
        "late frames": f"{len(reworked):,}, by {max(late_ms, default=0):,} ms at most",
        "executed again": "unknown" if share is None else f"{share:.1%} of the events after a late input",
        "of all that is remembered": _share(
            sum(one.executed for one in reworked), sum(one.remembered for one in reworked)
        ),
        "frame with lag hiding": _ms(result.frames_ms(settled=False)),
        "frame without it": _ms(result.frames_ms(settled=True)),
        "own input acts with it": "in its own frame",
        "own input acts without it": _ms(result.unseen_ms),
    }


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "unknown"


def _ms(values: Percentiles) -> str:
    if values.p50 is None:
        return "unknown"
    return f"p50 {values.p50:.2f} ms, p99 {values.p99:.2f} ms, max {values.max:.2f} ms"


def _counts(peer: PeerFound) -> str:
    became = [row[3] for row in peer.cone]
    return ", ".join(f"{became.count(what):,} {words}" for what, (words, _) in _BECAME.items())


def _reworked(result: TimelineResult) -> Markup:
    rows = result.reworked
    series = (
        ("executed again", [(one.late * UNIT_MS, one.executed) for one in rows], ON_PATH_COLOUR),
        (
            "later events: what a rollback computes again",
            [(one.late * UNIT_MS, one.later) for one in rows],
            MEDIAN_COLOUR,
        ),
    )
    return draw(
        ChartAxis.from_zero("how late the input was (ms)", [x for _, points, _ in series for x, _ in points]),
        ChartAxis.from_zero("events", [y for _, points, _ in series for _, y in points]),
        [ChartCloud(points, colour) for _, points, colour in series],
        height_px=240,
        legend=[LegendEntry(colour, name) for name, _, colour in series],
    )


def _frames(result: TimelineResult) -> Markup:
    """For each way a line from the 1st to the 99th percentile, a bar of the middle half, and the median."""
    series = {
        "with lag hiding": [one for peer in result.peers for one in peer.frames_ms],
        "without it": [one for peer in result.peers for one in peer.settled_frames_ms],
    }
    marks: list[ChartMark] = []
    ends_ms: list[float] = []
    for row, (name, values) in enumerate(series.items()):
        if len(values) < 2:
            continue
        # A clock may say that a frame took no time, which has no place on the axis.
        hundredths = [max(value, _LEAST_MS) for value in quantiles(values, n=100, method="inclusive")]
        at = row + 0.68
        ends_ms += hundredths
        low, first, median, third, high = (hundredths[place - 1] for place in (1, 25, 50, 75, 99))
        says = f"{name}: median {number_text(median)} ms, p99 {number_text(high)} ms"
        marks.append(ChartLine([(low, at), (high, at)], ON_PATH_COLOUR))
        marks.append(ChartBlock((first, third), (at - 0.2, at + 0.2), ON_PATH_COLOUR, says=says))
        marks.append(ChartDot(median, at, MEDIAN_COLOUR, says=says))
    title = "processor time of a frame (ms): line p1 to p99, bar the middle half, dot the median"
    low, high = min(ends_ms, default=0.1), max(ends_ms, default=1)
    across = ChartAxis(title, low / 1.1, high * 1.1, is_log=True)
    return draw(across, ChartAxis.of_rows(len(series)), marks, height_px=56 * len(series), rows=list(series))


def _cone(peer: PeerFound) -> Markup:
    points = {
        what: [((row[0] - peer.cone_at) * UNIT_MS, float(row[1])) for row in peer.cone if row[3] == what]
        for what in _BECAME
    }
    every = [point for some in points.values() for point in some]
    return draw(
        ChartAxis.from_zero("after the late input (ms)", [x for x, _ in every]),
        ChartAxis.from_zero("thing", [y for _, y in every]),
        [ChartCloud(some, _BECAME[what][1], size_px=5 if what == "same" else 8) for what, some in points.items()],
        height_px=340,
        legend=[LegendEntry(colour, words) for words, colour in _BECAME.values()],
    )
