"""Charts as SVG in HTML, which need no script and fit every window. Pure.

A chart is a plot with marks: blocks, lines, clouds, dots and notes, at places on two axes. Places are in percent of the
plot, and text is in pixels. So a narrow window moves what is drawn together, and leaves words as large as they are.
Nothing is written beside the plot. Names of rows and of values stand in it, at its left edge; what the axes measure
stands above and below.

Words take the colour of the page's style sheet, which has a light and a dark set. Hatches and heads of arrows are in
`frame.html.jinja`, as all charts of a page share them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from batonpass.scenarios.report.words import number_text

__all__ = [
    "KIND_COLOURS",
    "ChartAxis",
    "ChartBlock",
    "ChartCloud",
    "ChartDot",
    "ChartLine",
    "ChartMark",
    "ChartNote",
    "LegendEntry",
    "draw",
    "hatched",
]

KIND_COLOURS: Final = (
    "#2f7fd6",
    "#c2571a",
    "#159a74",
    "#b5588f",
    "#8f7a00",
    "#7a68c9",
    "#c94f5e",
    "#4a8fa3",
    "#8b6d4f",
    "#7d858f",
)
"""Colours of things of several kinds. They are readable on the light and on the dark page: at least 3:1."""

_NOTE_ROW_PX: Final = 16
# The name of the uppermost value stands above the plot, and notes above it.
_ABOVE_PX: Final = 15
_TICKS_PX: Final = 20
_TICKS: Final = 5


def hatched(colour: str) -> str:
    """What fills with stripes of one of `KIND_COLOURS`."""
    return f"url(#hatched-{colour[1:]})"


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """What an axis measures, from `low` at its left or lower end to `high` at the other one."""

    title: str
    low: float
    high: float
    is_log: bool = False

    @classmethod
    def from_zero(cls, title: str, values: Iterable[float]) -> "ChartAxis":
        """An axis on which 0 and all values find room."""
        return cls(title, 0, max(values, default=0) * 1.02 or 1)

    @classmethod
    def of_rows(cls, count: int) -> "ChartAxis":
        """An upright axis of rows of height 1, the first at the top."""
        return cls("", max(count, 1), 0)

    def at(self, value: float) -> float:
        """The place of a value, in percent from `low`."""
        low, high, value = (math.log10(each) if self.is_log else each for each in (self.low, self.high, value))
        return 100 * (value - low) / (high - low)

    def ticks(self) -> list[float]:
        """Round values to write down, about five. Rows have names instead."""
        if self.high < self.low:
            return []
        if self.is_log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            return [10.0**each for each in decades if self.low <= 10.0**each <= self.high]
        least = (self.high - self.low) / _TICKS
        decade = 10.0 ** math.floor(math.log10(least))
        step = next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= least * 0.999)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class ChartBlock:
    """A rectangle. `says` is shown to those who point at it; `key` stands in its middle."""

    x: tuple[float, float]
    y: tuple[float, float]
    fill: str
    says: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line through points; one through two of them may be an arrow of class `arrow`."""

    points: Sequence[tuple[float, float]]
    colour: str
    says: str = ""
    width_px: float = 2
    is_dashed: bool = False
    arrow: str = ""


@dataclass(frozen=True, slots=True)
class ChartCloud:
    """Many points of one colour."""

    points: Sequence[tuple[float, float]]
    colour: str
    size_px: float = 6


@dataclass(frozen=True, slots=True)
class ChartDot:
    """A disc with a key in it, or with a label above or below it."""

    x: float
    y: float
    colour: str
    says: str = ""
    radius_px: float = 6
    key: str = ""
    label: str = ""
    is_labelled_below: bool = False


@dataclass(frozen=True, slots=True)
class ChartNote:
    """Words above the plot. Notes stand in rows of their own, so that neighbours do not cover each other."""

    x: float
    text: str
    row: int = 0


ChartMark = ChartBlock | ChartLine | ChartCloud | ChartDot | ChartNote


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """What a fill means, and the key that is written on it."""

    fill: str
    text: str
    key: str = ""


def draw(
    x: ChartAxis,
    y: ChartAxis,
    marks: Sequence[ChartMark],
    *,
    height_px: int,
    rows: Sequence[str] = (),
    legend: Sequence[LegendEntry] = (),
) -> Markup:
    """A chart as HTML. With `rows` the upright axis has these names instead of values, each at the top of its row."""
    chart = Element("div")
    if legend:
        entries = SubElement(chart, "ul", {"class": "legend"})
        for entry in legend:
            _entry(entries, entry)
    if y.title:
        SubElement(chart, "div", {"class": "axis"}).text = y.title
    notes = [mark.row + 1 for mark in marks if isinstance(mark, ChartNote)]
    above_px = _NOTE_ROW_PX * max(notes, default=0) + _ABOVE_PX
    whole = SubElement(chart, "svg", {"width": "100%", "height": str(above_px + height_px + _TICKS_PX)})
    plot = SubElement(whole, "svg", {"y": str(above_px), "width": "100%", "height": str(height_px), "class": "plot"})
    _grid(plot, x, y)
    for mark in marks:
        _mark(plot, x, y, mark)
    _names(plot, y, rows)
    SubElement(chart, "div", {"class": "axis"}).text = x.title
    return Markup(tostring(chart, encoding="unicode", method="html"))  # noqa: S704 - ElementTree has escaped it


def _entry(entries: Element, entry: LegendEntry) -> None:
    item = SubElement(entries, "li")
    swatch = SubElement(item, "svg", {"width": "20", "height": "16"})
    SubElement(swatch, "rect", {"width": "20", "height": "16", "fill": entry.fill})
    if entry.key:
        _text(swatch, 50, 50, entry.key, _key_class(entry.fill), dy_px=4)
    SubElement(item, "span").text = entry.text


def _grid(plot: Element, x: ChartAxis, y: ChartAxis) -> None:
    for value in x.ticks():
        at = x.at(value)
        SubElement(plot, "line", {"class": "grid", "x1": _percent(at), "x2": _percent(at), "y2": "100%"})
        _text(plot, at, 100, _short(value), "tick", dy_px=15)
    for value in y.ticks():
        height = _percent(100 - y.at(value))
        SubElement(plot, "line", {"class": "grid", "x2": "100%", "y1": height, "y2": height})


def _names(plot: Element, y: ChartAxis, rows: Sequence[str]) -> None:
    """Names of rows and values, over the marks, which would hide them."""
    for number, name in enumerate(rows):
        _text(plot, 0, 100 - y.at(number), name, "row", dy_px=14)
    for value in y.ticks():
        _text(plot, 0, 100 - y.at(value), _short(value), "tick", dy_px=-3)


def _mark(plot: Element, x: ChartAxis, y: ChartAxis, mark: ChartMark) -> None:
    match mark:
        case ChartBlock():
            _block(plot, x, y, mark)
        case ChartLine():
            _line(plot, x, y, mark)
        case ChartCloud():
            dots = " ".join(f"M{left:.0f} {top:.0f}h0" for left, top in _thousandths(x, y, mark.points))
            path = {"d": dots, "class": "cloud", "stroke": mark.colour, "stroke-width": f"{mark.size_px:g}"}
            SubElement(_stretched(plot), "path", path)
        case ChartDot():
            left, top = x.at(mark.x), 100 - y.at(mark.y)
            circle = {"cx": _percent(left), "cy": _percent(top), "r": f"{mark.radius_px:g}", "fill": mark.colour}
            _says(SubElement(plot, "circle", circle), mark.says)
            if mark.key:
                _text(plot, left, top, mark.key, "key", dy_px=4)
            if mark.label:
                _text(plot, left, top, mark.label, "label", dy_px=19 if mark.is_labelled_below else -10)
        case ChartNote():
            _text(plot, x.at(mark.x), 0, mark.text, "label", dy_px=-_ABOVE_PX - _NOTE_ROW_PX * mark.row)


def _block(plot: Element, x: ChartAxis, y: ChartAxis, block: ChartBlock) -> None:
    left, right = sorted(x.at(each) for each in block.x)
    top, bottom = sorted(100 - y.at(each) for each in block.y)
    place = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    rect = {name: _percent(value) for name, value in place.items()}
    _says(SubElement(plot, "rect", {"class": "block", "fill": block.fill, **rect}), block.says)
    if block.key:
        # Keys that do not fit are cut off, not written over a neighbour.
        _text(SubElement(plot, "svg", rect), 50, 50, block.key, _key_class(block.fill), dy_px=4)


def _line(plot: Element, x: ChartAxis, y: ChartAxis, line: ChartLine) -> None:
    style = {"class": "line", "stroke": line.colour, "stroke-width": f"{line.width_px:g}"}
    if line.is_dashed:
        style["stroke-dasharray"] = "5 4"
    if len(line.points) == 2:
        (x1, y1), (x2, y2) = line.points
        place = {"x1": x.at(x1), "y1": 100 - y.at(y1), "x2": x.at(x2), "y2": 100 - y.at(y2)}
        head = {"marker-end": f"url(#{line.arrow})"} if line.arrow else {}
        drawn = SubElement(plot, "line", style | head | {name: _percent(value) for name, value in place.items()})
    else:
        points = " ".join(f"{left:.0f},{top:.0f}" for left, top in _thousandths(x, y, line.points))
        drawn = SubElement(_stretched(plot), "polyline", {"points": points, **style})
    _says(drawn, line.says)


def _stretched(plot: Element) -> Element:
    """A room in which places are in tenths of a percent, as paths take no percents."""
    return SubElement(
        plot, "svg", {"viewBox": "0 0 1000 1000", "preserveAspectRatio": "none", "width": "100%", "height": "100%"}
    )


def _thousandths(x: ChartAxis, y: ChartAxis, points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(10 * x.at(left), 1000 - 10 * y.at(top)) for left, top in points]


def _text(parent: Element, left: float, top: float, text: str, kind: str, *, dy_px: int) -> None:
    """Words at a place, which near the left and right edge go inward from it."""
    edge = 4 if kind == "tick" else 30
    anchor = "start" if left < edge else "end" if left > 100 - edge else "middle"
    place = {"x": _percent(left), "y": _percent(top), "dy": str(dy_px), "text-anchor": anchor, "class": kind}
    SubElement(parent, "text", place).text = text


def _key_class(fill: str) -> str:
    """White words on stripes could not be read."""
    return "key on-stripes" if fill.startswith("url(") else "key"


def _says(mark: Element, says: str) -> None:
    if says:
        SubElement(mark, "title").text = says


def _percent(value: float) -> str:
    return f"{value:.2f}%"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else number_text(value)
