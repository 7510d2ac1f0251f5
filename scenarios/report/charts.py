"""The charts of a report. Pure. What a chart says by colour it also says by pattern, key, text or position."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from batonpass.scenarios.report.model import CaseResult
from batonpass.scenarios.report.svg import (
    KIND_COLOURS,
    ChartAxis,
    ChartBlock,
    ChartDot,
    ChartLine,
    ChartMark,
    ChartNote,
    LegendEntry,
    draw,
    hatched,
)
from batonpass.scenarios.report.words import case_title, counted, number_text, whole_text

ON_PATH_COLOUR = "#2f7fd6"
OFF_PATH_COLOUR = "#8a8f98"
MEDIAN_COLOUR = "#c2571a"

_BINS: Final = 40
_PHASES: Final = ("request", "rule", "commit", "activation")


def latency_distribution(case: CaseResult) -> Markup:
    """A histogram of the latencies of one case, with p50, p95 and p99 as lines.

    When no single latencies were kept, the four known percentiles are drawn as points on the same axis.
    """
    latency = case.latency_ms
    names = {"p50": latency.p50, "p95": latency.p95, "p99": latency.p99, "max": latency.max}
    known = {name: value for name, value in names.items() if value is not None}
    across = ChartAxis.from_zero("latency of a transfer (ms)", [*known.values(), *case.latencies_ms])
    if not case.latencies_ms:
        points = [
            ChartDot(value, 0, ON_PATH_COLOUR, says=f"{name} {number_text(value)} ms") for name, value in known.items()
        ]
        return draw(across, ChartAxis.of_rows(1), [*points, *_notes(known, 0)], height_px=16)
    width_ms = across.high / _BINS
    bins = Counter(min(int(latency_ms / width_ms), _BINS - 1) for latency_ms in case.latencies_ms)
    up = ChartAxis.from_zero("transfers", bins.values())
    marks: list[ChartMark] = [
        ChartBlock(
            (place * width_ms, (place + 1) * width_ms),
            (0, count),
            ON_PATH_COLOUR,
            says=f"{number_text(place * width_ms)} to {number_text((place + 1) * width_ms)} ms: "
            f"{counted(count, 'transfer')}",
        )
        for place, count in sorted(bins.items())
    ]
    known.pop("max", None)
    return draw(across, up, [*marks, *_notes(known, up.high)], height_px=190)


def hops_by_kind(cases: Sequence[CaseResult]) -> Markup:
    """Messages per transfer by kind, stacked, two bars for each case: on the path, and hatched beside it.

    A short upright stroke on each on-path bar marks the number of hops that the formula expects.
    """
    legend = _kinds(cases)
    marks: list[ChartMark] = []
    ends = [0.0]
    for row, case in enumerate(cases):
        for on_path, top, bottom in ((True, 0.26, 0.58), (False, 0.64, 0.94)):
            counts = case.hops_per_transfer_by_kind() if on_path else case.off_path
            end = 0.0
            for kind, count in counts.items():
                of = legend[kind, on_path]
                says = f"{kind}: {whole_text(count)} per transfer"
                across = (end, end + count)
                marks.append(ChartBlock(across, (row + top, row + bottom), of.fill, says=says, key=of.key))
                end += count
            ends.append(end)
        says = f"the formula expects {counted(case.expected_hops, 'hop')}"
        at = case.expected_hops
        marks.append(ChartLine([(at, row + 0.2), (at, row + 0.62)], MEDIAN_COLOUR, says=says, width_px=3))
        ends.append(at)
    return draw(
        ChartAxis.from_zero("messages per transfer", ends),
        ChartAxis.of_rows(len(cases)),
        marks,
        height_px=72 * max(len(cases), 1),
        rows=_unique_titles(cases),
        legend=[*legend.values(), LegendEntry(MEDIAN_COLOUR, "stroke: hops that the formula expects")],
    )


def phases(cases: Sequence[CaseResult]) -> Markup:
    """Median milliseconds of the phases that follow each other, stacked, one bar for each case.

    The state's phase lies beside them (it travels while the request does) and would make the bar longer than the time.
    """
    marks: list[ChartMark] = []
    ends = [0.0]
    for row, case in enumerate(cases):
        end = 0.0
        for place, name in enumerate(_PHASES):
            took_ms = getattr(case.phases_ms, name) or 0.0
            says = f"{name}: {number_text(took_ms)} ms"
            fill = KIND_COLOURS[place]
            marks.append(ChartBlock((end, end + took_ms), (row + 0.4, row + 0.9), fill, says=says, key=str(place + 1)))
            end += took_ms
        ends.append(end)
    return draw(
        ChartAxis.from_zero("median time in the phase (ms)", ends),
        ChartAxis.of_rows(len(cases)),
        marks,
        height_px=46 * max(len(cases), 1),
        rows=_unique_titles(cases),
        legend=[LegendEntry(KIND_COLOURS[place], name, str(place + 1)) for place, name in enumerate(_PHASES)],
    )


def describe_latency(case: CaseResult) -> str:
    """The latency chart in a sentence, for readers who do not see it."""
    latency = case.latency_ms
    if latency.p50 is None:
        return "No transfer was completed, so no latency was measured."
    return (
        f"Latency of {counted(case.transfers, 'transfer')}: median {number_text(latency.p50)} ms, "
        f"p95 {number_text(latency.p95)} ms, p99 {number_text(latency.p99)} ms, "
        f"largest {number_text(latency.max)} ms."
    )


def describe_hops(cases: Sequence[CaseResult]) -> str:
    """The chart of hops by kind in sentences, for readers who do not see it."""
    sentences = []
    for case in cases:
        on_path = ", ".join(f"{kind} {whole_text(n)}" for kind, n in case.hops_per_transfer_by_kind().items())
        off_path = ", ".join(f"{kind} {whole_text(n)}" for kind, n in case.off_path.items())
        sentences.append(
            f"{case_title(case.case, case.h, case.transport)}: on path {on_path or 'nothing'}; "
            f"off path {off_path or 'nothing'}."
        )
    return " ".join(sentences)


def _notes(values: dict[str, float], top: float) -> list[ChartMark]:
    """Dashed lines with their names above, each in a row of its own: percentiles are often close together."""
    lines = [
        ChartLine([(value, 0), (value, top)], MEDIAN_COLOUR, width_px=1.5, is_dashed=True) for value in values.values()
    ]
    notes = [ChartNote(value, f"{name} {number_text(value)}", row) for row, (name, value) in enumerate(values.items())]
    return [*(lines if top else ()), *notes]


def _kinds(cases: Sequence[CaseResult]) -> dict[tuple[str, bool], LegendEntry]:
    """All kinds with whether they are on the path, in the order of first appearance, on-path kinds first."""
    on_path = dict.fromkeys(kind for case in cases for kind in case.hops_per_transfer_by_kind())
    off_path = dict.fromkeys(kind for case in cases for kind in case.off_path)
    legend = {}
    for place, of in enumerate([*((kind, True) for kind in on_path), *((kind, False) for kind in off_path)]):
        colour = KIND_COLOURS[place % len(KIND_COLOURS)]
        fill, where = (colour, "on") if of[1] else (hatched(colour), "beside")
        legend[of] = LegendEntry(fill, f"{of[0]} ({where} the path)", str(place + 1))
    return legend


def _unique_titles(cases: Sequence[CaseResult]) -> list[str]:
    """A title for each case, so that two of the same title can be told apart."""
    titles = [case_title(case.case, case.h, case.transport) for case in cases]
    modes = {case.mode for case in cases}
    if len(modes) > 1:
        titles = [f"{title}, {case.mode}" for title, case in zip(titles, cases, strict=True)]
    return [
        title if titles.count(title) == 1 else f"{title} ({titles[: position + 1].count(title)})"
        for position, title in enumerate(titles)
    ]
