"""Charts of a report as plotly figures in plain data: `{"data": [...], "layout": {...}}`. Pure.

Colours of text, grid and background are not here. The page has a light and a dark set and applies the one that the
reader's system asks for. Trace colours are readable on both (at least 3:1 against either background). What a chart says
by colour it also says by pattern, text or position.
"""

from collections.abc import Sequence
from html import escape
from typing import Any

from batonpass.scenarios.report.model import CaseResult
from batonpass.scenarios.report.words import case_title, counted, number_text, whole_text

Figure = dict[str, Any]

ON_PATH_COLOUR = "#2f7fd6"
OFF_PATH_COLOUR = "#8a8f98"
MEDIAN_COLOUR = "#c2571a"

# Kinds take colours in the order in which they appear, on-path kinds first.
KIND_COLOURS = (
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

_MARGIN = {"l": 70, "r": 24, "t": 16, "b": 56}


def plain(text: str) -> str:
    """Text that plotly shows as it is: plotly reads a small part of HTML, links among it, in every label."""
    return escape(text, quote=False)


def latency_distribution(case: CaseResult) -> Figure:
    """A histogram of the latencies of one case, with p50, p95 and p99 as lines.

    When no single latencies were kept, the four known percentiles are drawn as points on the same axis.
    """
    percentiles = [
        (name, value)
        for name, value in (
            ("p50", case.latency_ms.p50),
            ("p95", case.latency_ms.p95),
            ("p99", case.latency_ms.p99),
            ("max", case.latency_ms.max),
        )
        if value is not None
    ]
    lines = [(name, value) for name, value in percentiles if name != "max"] if case.latencies_ms else []
    return {
        "data": [_histogram(case) if case.latencies_ms else _percentile_points(percentiles)],
        "layout": {
            "height": 280 if case.latencies_ms else 150,
            "margin": _MARGIN | {"t": 44},
            "bargap": 0.04,
            "showlegend": False,
            "xaxis": {"title": {"text": "latency of a transfer (ms)"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": "transfers"}, "rangemode": "tozero", "visible": bool(case.latencies_ms)},
            "shapes": [_upright_line(value) for _, value in lines],
            "annotations": _line_labels(lines),
        },
    }


def hops_by_kind(cases: Sequence[CaseResult]) -> Figure:
    """Messages per transfer by kind, stacked, two bars for each case: on the path and beside it.

    A short upright stroke on each on-path bar marks the number of hops that the formula expects.
    """
    kinds = _kinds(cases)
    titles = _unique_titles(cases)
    rows = [(title, row) for title in titles for row in ("on path", "off path")]
    data: list[dict[str, Any]] = []
    for position, (kind, on_path) in enumerate(kinds):
        counts = [
            (case.hops_per_transfer_by_kind() if on_path else case.off_path).get(kind)
            if (row == "on path") == on_path
            else None
            for case in cases
            for row in ("on path", "off path")
        ]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": plain(kind),
                "legendgroup": "on" if on_path else "off",
                "legendgrouptitle": {"text": "on path (hops)" if on_path else "off path (not hops)"},
                "y": [[title for title, _ in rows], [row for _, row in rows]],
                "x": counts,
                "text": [_in_bar(kind) if count and count >= 0.8 else "" for count in counts],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "marker": {
                    "color": KIND_COLOURS[position % len(KIND_COLOURS)],
                    "opacity": 1.0 if on_path else 0.75,
                    "pattern": {} if on_path else {"shape": "/", "size": 8, "solidity": 0.12},
                    "line": {"width": 0 if on_path else 1, "color": KIND_COLOURS[position % len(KIND_COLOURS)]},
                },
                # The page writes the words of hatched bars in its own text colour.
                "meta": "" if on_path else "words in ink",
                "hovertemplate": f"{plain(kind)}: %{{x:.3~f}} per transfer<extra></extra>",
            }
        )
    data.append(_expected_strokes(cases, titles))
    return {
        "data": data,
        "layout": {
            "barmode": "stack",
            "height": 120 + 76 * len(cases),
            "margin": _MARGIN | {"l": 190, "b": 60},
            "uniformtext": {"minsize": 10, "mode": "hide"},
            "xaxis": {"title": {"text": "messages per transfer"}, "rangemode": "tozero", "dtick": 1},
            "yaxis": {"autorange": "reversed", "type": "multicategory"},
            "legend": {"traceorder": "grouped", "groupclick": "toggleitem"},
        },
    }


def phases(cases: Sequence[CaseResult]) -> Figure:
    """Median milliseconds of the phases that follow each other, stacked, one bar for each case.

    The state's phase lies beside them (it travels while the request does) and would make the bar longer than the time.
    """
    titles = _unique_titles(cases)
    data = []
    for position, name in enumerate(("request", "rule", "commit", "activation")):
        values = [getattr(case.phases_ms, name) for case in cases]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": titles,
                "x": values,
                "text": [name if value else "" for value in values],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "marker": {"color": KIND_COLOURS[position]},
                "hovertemplate": f"{name}: %{{x:.3~f}} ms<extra></extra>",
            }
        )
    return {
        "data": data,
        "layout": {
            "barmode": "stack",
            "height": 110 + 44 * len(cases),
            "margin": _MARGIN | {"l": 130},
            "uniformtext": {"minsize": 10, "mode": "hide"},
            "xaxis": {"title": {"text": "median time in the phase (ms)"}, "rangemode": "tozero"},
            "yaxis": {"autorange": "reversed"},
            "legend": {"traceorder": "normal"},
        },
    }


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


def _histogram(case: CaseResult) -> dict[str, Any]:
    return {
        "type": "histogram",
        "x": [round(latency_ms, 4) for latency_ms in case.latencies_ms],
        "nbinsx": 40,
        "marker": {"color": ON_PATH_COLOUR},
        "hovertemplate": "%{x} ms: %{y} transfers<extra></extra>",
    }


def _percentile_points(percentiles: Sequence[tuple[str, float]]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [value for _, value in percentiles],
        "y": [1.0] * len(percentiles),
        "text": [f"{name}<br>{number_text(value)}" for name, value in percentiles],
        "textposition": "top center",
        "cliponaxis": False,
        "marker": {"color": ON_PATH_COLOUR, "size": 11},
        "hovertemplate": "%{x:.3~f} ms<extra></extra>",
    }


def _upright_line(x: float) -> dict[str, Any]:
    return {
        "type": "line",
        "x0": x,
        "x1": x,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": MEDIAN_COLOUR, "width": 1.5, "dash": "dash"},
    }


def _line_labels(lines: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    # Neighbouring percentiles are often close together: every second label stands one row higher.
    return [
        {
            "x": value,
            "yref": "paper",
            "y": 1.0 + 0.09 * (position % 2),
            "yanchor": "bottom",
            "text": f"{name} {number_text(value)}",
            "showarrow": False,
            "font": {"size": 11},
        }
        for position, (name, value) in enumerate(lines)
    ]


def _kinds(cases: Sequence[CaseResult]) -> list[tuple[str, bool]]:
    """All kinds with whether they are on the path, in the order of first appearance, on-path kinds first."""
    on_path = dict.fromkeys(kind for case in cases for kind in case.hops_per_transfer_by_kind())
    off_path = dict.fromkeys(kind for case in cases for kind in case.off_path)
    return [(kind, True) for kind in on_path] + [(kind, False) for kind in off_path]


def _unique_titles(cases: Sequence[CaseResult]) -> list[str]:
    """A title for each case; bars with the same title would be drawn on top of each other."""
    titles = [case_title(case.case, case.h, case.transport) for case in cases]
    modes = {case.mode for case in cases}
    if len(modes) > 1:
        titles = [f"{title}, {case.mode}" for title, case in zip(titles, cases, strict=True)]
    return [
        title if titles.count(title) == 1 else f"{title} ({titles[: position + 1].count(title)})"
        for position, title in enumerate(titles)
    ]


def _in_bar(kind: str) -> str:
    # Two short lines fit into a bar of one hop where one long line does not.
    return plain(kind).replace("_", "<br>")


def _expected_strokes(cases: Sequence[CaseResult], titles: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "expected hops",
        "y": [list(titles), ["on path"] * len(cases)],
        "x": [case.expected_hops for case in cases],
        "marker": {
            "symbol": "line-ns",
            "size": 26,
            "line": {"width": 3, "color": MEDIAN_COLOUR},
            "color": MEDIAN_COLOUR,
        },
        "hovertemplate": "the formula expects %{x} hops<extra></extra>",
    }
