"""Where aircraft flew, on which server, and where they were warned of whom, as an SVG file. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

__all__ = ["Fix", "Warned", "drawn"]

_SIDE: Final = 640
_EDGE: Final = 40
_COLOURS: Final = ("#2364aa", "#ea7317", "#3da35d", "#b23a48", "#73489c", "#1b998b", "#8d6a00", "#c2185b")
_GREY: Final = "#9a9a9a"
_RED: Final = "#d00000"


class Fix(NamedTuple):
    """Where an aircraft was, and on which server."""

    at: tuple[int, int]
    server: str


class Warned(NamedTuple):
    """Where an aircraft was when it was warned, and where the other one; `across`: that was a ghost."""

    at: tuple[int, int]
    of: tuple[int, int]
    across: bool


def drawn(
    tracks: Mapping[str, Sequence[Fix]],
    warnings: Sequence[Warned],
    cells: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    size_m: int,
) -> str:
    """Sectors in light colours, tracks in those of their servers; a line from each that was warned to the other.

    Args:
        tracks: by aircraft.
        warnings: those of a ghost have a full line, all others a dashed one.
        cells: by server, the two corners of its sector; each server has a colour, in this order.
        size_m: the side of the airspace, whose first axis goes to the right and the second one up.
    """

    def place(at: Sequence[float]) -> tuple[float, float]:
        x, y = (min(max(one, 0.0), float(size_m)) / size_m * _SIDE for one in at)
        return round(_EDGE + x, 1), round(2 * _EDGE + _SIDE - y, 1)

    colours = {server: _COLOURS[number % len(_COLOURS)] for number, server in enumerate(cells)}
    width, height = _SIDE + 2 * _EDGE, _SIDE + 3 * _EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (server, (low, high)) in enumerate(cells.items()):
        (left, bottom), (right, top) = place(low), place(high)
        parts.append(
            f'<rect x="{left}" y="{top}" width="{right - left:.1f}" height="{bottom - top:.1f}" '
            f'fill="{colours[server]}" fill-opacity="0.10" stroke="#888"/>'
        )
        at = _EDGE + _SIDE * number / len(cells)
        parts.append(f'<rect x="{at:.1f}" y="14" width="14" height="8" fill="{colours[server]}"/>')
        parts.append(f'<text x="{at + 20:.1f}" y="23" font-size="13">{server}</text>')
    for at, fill, text in (
        (_EDGE, _RED, "warned of a ghost: an aircraft of another sector"),
        (_EDGE + 380, "white", "warned of one of its own sector"),
    ):
        parts.append(f'<circle cx="{at + 7}" cy="44" r="4" stroke="{_RED}" fill="{fill}"/>')
        parts.append(f'<text x="{at + 20}" y="48" font-size="13">{text}</text>')
    for _, track in sorted(tracks.items()):
        for stretch in _stretches(track):
            points = " ".join(f"{x},{y}" for x, y in (place(fix.at) for fix in stretch))
            colour = colours.get(stretch[0].server, _GREY)
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    for warned in warnings:
        (x, y), (to_x, to_y) = place(warned.at), place(warned.of)
        dash = "" if warned.across else ' stroke-dasharray="3 3"'
        parts.append(f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="{_RED}" stroke-width="2.4"{dash}/>')
        parts.append(f'<circle cx="{x}" cy="{y}" r="4" stroke="{_RED}" fill="{_RED if warned.across else "white"}"/>')
    return "\n".join([*parts, "</svg>", ""])


def _stretches(track: Sequence[Fix]) -> list[list[Fix]]:
    """The track, cut where the server changes; each part ends where the next one begins."""
    found: list[list[Fix]] = []
    for fix in track:
        if found:
            found[-1].append(fix)
        if not found or found[-1][0].server != fix.server:
            found.append([fix])
    return found
