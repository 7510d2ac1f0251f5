"""The result of `baton run timeline` for people: a table on the terminal, and one HTML page that opens offline."""

from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table

from batonpass.scenarios.report.charts import MEDIAN_COLOUR, ON_PATH_COLOUR, Figure
from batonpass.scenarios.report.html import render_page
from batonpass.scenarios.report.model import Percentiles
from batonpass.scenarios.timeline.peer_process import UNIT_MS, PeerFound, changed
from batonpass.scenarios.timeline.run import TimelineResult, problems_of

__all__ = ["timeline_page", "timeline_table"]

_COLUMNS: Final = ("peer", "given", "heard", "late frames", "executed again", "later events", "requests lost", "joined")
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
    figures: dict[str, Any] = {"reworked": _reworked(result), "frames": _frames(result)}
    if shown is not None:
        figures["cone"] = _cone(shown)
    return render_page(
        "shared_timeline.html.jinja",
        report=result.facts,
        plan=result.plan,
        problems=problems_of(result),
        facts=_facts(result),
        columns=_COLUMNS,
        rows=[_row(peer) for peer in result.peers],
        cone=None if shown is None else {"peer": shown.name, "counts": _counts(shown)},
        figures=figures,
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


def _figure(data: list[dict[str, Any]], x: str, y: str, *, height: int = 320) -> Figure:
    return {
        "data": data,
        "layout": {
            "height": height,
            "margin": {"l": 70, "r": 24, "t": 28, "b": 48},
            "legend": {"orientation": "h", "y": 1.15},
            "xaxis": {"title": {"text": x}},
            "yaxis": {"title": {"text": y}, "rangemode": "tozero"},
        },
    }


def _reworked(result: TimelineResult) -> Figure:
    rows = result.reworked
    late_ms = [one.late * UNIT_MS for one in rows]
    series = (
        ("executed again", [one.executed for one in rows], ON_PATH_COLOUR),
        ("later events: what a rollback computes again", [one.later for one in rows], MEDIAN_COLOUR),
    )
    data = [
        {"type": "scatter", "mode": "markers", "name": name, "x": late_ms, "y": values, "marker": {"color": colour}}
        for name, values, colour in series
    ]
    return _figure(data, "how late the input was (ms)", "events")


def _frames(result: TimelineResult) -> Figure:
    series = (
        ("with lag hiding", [one for peer in result.peers for one in peer.frames_ms]),
        ("without it", [one for peer in result.peers for one in peer.settled_frames_ms]),
    )
    data = [{"type": "box", "name": name, "y": _thinned(values), "boxpoints": False} for name, values in series]
    figure = _figure(data, "", "processor time of a frame (ms)")
    figure["layout"]["yaxis"] |= {"type": "log", "rangemode": "normal"}
    return figure


def _thinned(values: list[float]) -> list[float]:
    """At most some thousand of them, evenly: a box needs no more."""
    return sorted(values)[:: max(1, len(values) // 2_000)]


def _cone(peer: PeerFound) -> Figure:
    data = []
    for what, (words, colour) in _BECAME.items():
        rows = [row for row in peer.cone if row[3] == what]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": words,
                "x": [(row[0] - peer.cone_at) * UNIT_MS for row in rows],
                "y": [row[1] for row in rows],
                "text": [row[2] for row in rows],
                "marker": {"color": colour, "size": 6 if what == "same" else 9},
            }
        )
    return _figure(data, "after the late input (ms)", "thing", height=420)
