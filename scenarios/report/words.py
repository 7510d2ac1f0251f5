"""How numbers and names of a report are written out, the same in the terminal and on the page. Pure."""

from batonpass.scenarios.report.model import HopRange

NOTHING = "–"

HOP_SENTENCE = (
    "A hop is one message that crosses from one server process to another on the path of a transfer. "
    "Hops are counted on the wire, in the messages themselves, and compared with the formula. "
    "Raft rounds inside a home instance are not hops, and neither are messages beside the path: "
    "state chunks, HTTP replies, key look-ups, retirement."
)


AGAIN_MEANS = "done by a repetition, as messages were late or lost; their hops and times are not counted"


def case_title(case: str, h: int | None, transport: str | None = None) -> str:
    """The name of a case for people: `Case 1, H = 2, rest`."""
    parts = [f"Case {case}"]
    if h is not None:
        parts.append(f"H = {h}")
    if transport is not None:
        parts.append(transport)
    return ", ".join(parts)


def counted(count: int, singular: str, plural: str | None = None) -> str:
    """A count with its noun: `1 hop`, `2 hops`."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def hop_range_text(hops: HopRange) -> str:
    """`5`, `5–7`, or a dash when nothing was measured."""
    if hops.min is None or hops.max is None:
        return NOTHING
    return str(hops.min) if hops.min == hops.max else f"{hops.min}–{hops.max}"


def number_text(value: float | None) -> str:
    """A measured number in about three significant digits: `0.042`, `3.14`, `42.0`, `1,234`; a dash for None."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    decimals = next((digits for limit, digits in ((0.1, 3), (10, 2), (100, 1)) if value < limit), 0)
    return f"{value:,.{decimals}f}"


def whole_text(value: float | None) -> str:
    """A number that is whole by nature (ticks, bytes): no decimals unless it has some; a dash for None."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value == int(value) else number_text(value)
