"""The result of `baton run followers` for people: a table on the terminal, and one HTML page that opens offline."""

import base64
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from batonpass.scenarios.followers.judge import ranges_of
from batonpass.scenarios.followers.run import FollowersResult, problems_of
from batonpass.scenarios.report.html import render_page

__all__ = ["followers_page", "followers_table"]


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
    found, latency = result.found, result.latency_ms
    facts = {
        "frames": f"{found.frames:,}",
        "send to apply, ms": f"p50 {_ms(latency.p50)}, p99 {_ms(latency.p99)}, max {_ms(latency.max)}",
        "applied later than a period": f"{result.late:,} of {len(found.latencies_ms):,}",
        "two contents": ranges_of(found.divergent),
        "sent twice": ranges_of(found.sent_twice),
        "given up by an engine": ranges_of(found.given_up),
        "passed over": f"{len(found.passed_over):,}: {ranges_of(found.passed_over)}"[:200],
    }
    if result.killed:
        facts["killed"] = f"{result.killed}; {result.controller or 'nobody'} has taken over"
        facts["from kill to grant, ms"] = _ms(result.detection_ms)
        facts["from grant to the first frame everywhere, ms"] = _ms(result.promotion_ms)
    if result.joined:
        facts["joined"] = result.joined
    return facts


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
        nodes=[(node, ranges_of(node.dropped)[:400]) for node in result.found.nodes],
        names=names,
        hashes=[
            (frame, [shown.get(name, "") for name in names], len(set(shown.values()))) for frame, shown in result.hashes
        ],
        tiles=tiles,
        tile_frame=result.tile_frame,
        figures={},
    )
