"""The result of `baton run followers` for people: a table on the terminal, and one HTML page that opens offline."""

import base64
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table

from batonpass.scenarios.followers.judge import ranges_of
from batonpass.scenarios.followers.run import FollowersResult, problems_of
from batonpass.scenarios.report.html import render_page

__all__ = ["followers_page", "followers_table"]

SHOWN_RANGES: Final = 16
"""Of frames that are named; the report as JSON has all."""

COUNTERS: Final = {
    "show_packets_in": "datagrams in",
    "show_packets_out": "datagrams out",
    "show_packets_lost_by_dice": "lost by dice",
    "nacks": "asked for what was missing",
    "nacks_needless": "which was only late",
    "pieces_resent": "pieces sent again",
    "full_states_asked": "full states asked for",
    "diverged": "diverged",
}
"""Of a node, that the page shows, and their headings."""


def followers_table(result: FollowersResult) -> RenderableType:
    """Everything that the command shows when it is done."""
    plan, found = result.plan, result.found
    nodes = Table(title=f"Show at {plan.rate} Hz, {plan.state_bytes:,} bytes a state, mode {plan.mode}")
    for name in ("node", "sent", "applied", "dropped", "frames to join", "processor"):
        nodes.add_column(name, justify="left" if name == "node" else "right")
    for node in found.nodes:
        nodes.add_row(
            node.name,
            f"{node.sent:,}",
            f"{node.applied:,}",
            f"{len(node.dropped):,}",
            "" if node.joined_frames is None else f"{node.joined_frames:,}",
            "" if node.used_share is None else f"{node.used_share:.0%}",
        )
    facts = Table(show_header=False)
    for name, value in _facts(result).items():
        facts.add_row(name, value)
    return Group(nodes, facts)


def _facts(result: FollowersResult) -> dict[str, str]:
    found, latency, whole = result.found, result.latency_ms, result.whole_latency_ms
    facts = {
        "frames": f"{found.frames:,}",
        "send to apply, ms": f"p50 {_ms(latency.p50)}, p99 {_ms(latency.p99)}, max {_ms(latency.max)}",
        "await to apply, ms": f"p50 {_ms(whole.p50)}, p99 {_ms(whole.p99)}, max {_ms(whole.max)}",
        "applied later than a period": f"{result.late:,} of {len(found.latencies_ms):,}",
        "two contents": ranges_of(found.divergent, SHOWN_RANGES),
        "sent twice": ranges_of(found.sent_twice, SHOWN_RANGES),
        "given up by an engine": _counted(found.given_up),
        "passed over": _counted(found.passed_over),
    }
    if result.killed:
        facts["killed"] = f"{result.killed}; {result.controller or 'nobody'} has taken over"
        facts["from kill to grant, ms"] = _ms(result.detection_ms)
        facts["from grant to the first frame everywhere, ms"] = _ms(result.promotion_ms)
    if result.joined:
        facts["joined"] = result.joined
    if result.plan.loss or result.plan.jitter_ms:
        lost = sum(seen.counts.get("show_packets_lost_by_dice", 0) for seen in result.seen.values())
        facts["the network"] = f"{_network(result)}; {lost:,} datagrams were lost so"
    return facts


def _network(result: FollowersResult) -> str:
    plan = result.plan
    return f"loses {plan.loss:.1%} of the datagrams, and the others are late by {plan.jitter_ms:g} ms at most"


def _counted(frames: Sequence[int]) -> str:
    return f"{len(frames):,}: {ranges_of(frames, SHOWN_RANGES)}" if frames else "none"


def _reasons(result: FollowersResult) -> list[tuple[str, str, int, str]]:
    """Node, reason, how many frames and which: of itself each node knows most, of passed-over numbers a controller."""
    frames: dict[tuple[str, str], set[int]] = {}
    for name, seen in result.seen.items():
        for drop in seen.show.drops:
            if drop.node == name or drop.node not in result.seen:
                frames.setdefault((drop.node, drop.reason), set()).update(range(drop.first, drop.last + 1))
    return [
        (node, reason.replace("_", " "), len(numbers), ranges_of(sorted(numbers), SHOWN_RANGES))
        for (node, reason), numbers in sorted(frames.items())
    ]


def _counters(result: FollowersResult) -> list[tuple[str, list[int]]]:
    rows = list[tuple[str, list[int]]]()
    for name, seen in sorted(result.seen.items()):
        counts = seen.show.counters | dict(seen.counts)
        rows.append((name, [counts.get(counter, 0) for counter in COUNTERS]))
    return rows


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}"


def followers_page(result: FollowersResult) -> str:
    """The whole page, as HTML text."""
    plan = result.plan
    count = plan.followers + 1 + (plan.join_at is not None)
    tiles: list[dict[str, Any]] = [
        {"number": tile, "data": base64.b64encode(result.tiles[tile]).decode() if tile in result.tiles else ""}
        for tile in range(count)
    ]
    names = [node.name for node in result.found.nodes]
    return render_page(
        "followers.html.jinja",
        report=result.facts,
        plan=plan,
        problems=problems_of(result),
        facts=_facts(result),
        nodes=[(node, ranges_of(node.dropped, SHOWN_RANGES)) for node in result.found.nodes],
        names=names,
        network=_network(result) if plan.loss or plan.jitter_ms else "",
        reasons=_reasons(result),
        headings=list(COUNTERS.values()),
        counters=_counters(result),
        hashes=[
            (frame, [shown.get(name, "")[:8] for name in names], len(set(shown.values())))
            for frame, shown in result.hashes
        ],
        tiles=tiles,
        tile_frame=result.tile_frame,
    )
