"""Where every box was over time, and which server simulated it, as an SVG file. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from batonpass.scenarios.pushing.world import BORDER_MM, WIDTH_MM

__all__ = ["Sighting", "drawn"]

_LANE: Final = (720, 150)
_EDGE: Final = 40
_COLOURS: Final = ("#2364aa", "#ea7317", "#3da35d", "#b23a48")
_GREY: Final = "#9a9a9a"


class Sighting(NamedTuple):
    """Where something was, at which second, and on which server."""

    at_s: float
    x_mm: int
    server: str


def drawn(trails: Mapping[str, Sequence[Sighting]], servers: Sequence[str]) -> str:
    """A lane for each box, time from left to right, its place from bottom to top; the robots of its lane are grey.

    Args:
        trails: by the names of boxes and robots, of which those of a lane end alike: `box-1`, `robot-1a`.
        servers: the colours are theirs, in this order.
    """
    boxes = sorted(name for name in trails if "box-" in name)
    last_s = max((trail[-1].at_s for trail in trails.values() if trail), default=1.0)
    width, height = _LANE[0] + 2 * _EDGE, len(boxes) * (_LANE[1] + _EDGE) + 2 * _EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, server in enumerate(servers):
        left = _EDGE + 170 * number
        parts.append(f'<rect x="{left}" y="14" width="18" height="8" fill="{_colour(server, servers)}"/>')
        parts.append(f'<text x="{left + 24}" y="23" font-size="13">box on {server}</text>')
    for number, box in enumerate(boxes):
        top = 2 * _EDGE + number * (_LANE[1] + _EDGE)
        lane = box.rpartition("-")[2]
        parts += _lane(top, box, last_s)
        for name, trail in sorted(trails.items()):
            if f"robot-{lane}" in name:
                parts.append(_line(trail, top, last_s, _GREY, 1.2))
        for server, some in _stretches(trails[box]):
            parts.append(_line(some, top, last_s, _colour(server, servers), 3.0))
    return "\n".join([*parts, "</svg>", ""])


def _colour(server: str, servers: Sequence[str]) -> str:
    return _COLOURS[servers.index(server) % len(_COLOURS)] if server in servers else _GREY


def _lane(top: float, box: str, last_s: float) -> list[str]:
    border = _y(BORDER_MM, top)
    right = _EDGE + _LANE[0]
    return [
        f'<rect x="{_EDGE}" y="{top}" width="{_LANE[0]}" height="{_LANE[1]}" fill="#f6f6f6" stroke="#cccccc"/>',
        f'<line x1="{_EDGE}" x2="{right}" y1="{border}" y2="{border}" stroke="#555" stroke-dasharray="5 4"/>',
        f'<text x="{_EDGE}" y="{top - 5}" font-size="12">{box}: place over {last_s:.0f} s; the border is dashed</text>',
    ]


def _y(x_mm: int, top: float) -> float:
    return round(top + _LANE[1] * (1 - x_mm / WIDTH_MM), 1)


def _line(trail: Sequence[Sighting], top: float, last_s: float, colour: str, width: float) -> str:
    points = " ".join(f"{_EDGE + _LANE[0] * one.at_s / last_s:.1f},{_y(one.x_mm, top)}" for one in trail)
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _stretches(trail: Sequence[Sighting]) -> list[tuple[str, list[Sighting]]]:
    """The trail, cut where the server changes; each part ends where the next one begins."""
    found: list[tuple[str, list[Sighting]]] = []
    for one in trail:
        if found:
            found[-1][1].append(one)
        if not found or found[-1][0] != one.server:
            found.append((one.server, [one]))
    return found
