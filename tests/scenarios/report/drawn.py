"""What a chart of a report shows, read from its HTML."""

from html.parser import HTMLParser
from xml.etree.ElementTree import Element, SubElement

__all__ = ["drawn", "edges_percent", "words"]


def drawn(html: str) -> Element:
    """A chart as a tree of elements, read as a browser does."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == [reader.root], "every element is closed"
    (chart,) = reader.root
    return chart


def words(chart: Element, kind: str) -> list[str]:
    """The texts of a class, in order."""
    return [each.text or "" for each in chart.iter() if each.get("class") == kind]


def edges_percent(rect: Element) -> tuple[float, float, float, float]:
    """Left, right, top and bottom."""
    x, y, width, height = (float(rect.get(name, "").rstrip("%")) for name in ("x", "y", "width", "height"))
    return x, x + width, y, y + height


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("root")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(SubElement(self.open[-1], tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].text = (self.open[-1].text or "") + data
