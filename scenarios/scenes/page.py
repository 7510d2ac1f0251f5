"""The result of `baton run scenes` for people: a table on the terminal, and one HTML page that opens offline."""

import base64
from collections.abc import Iterable, Sequence
from typing import Any, Final

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.table import Table

from batonpass.scenarios.report.html import render_page
from batonpass.scenarios.report.svg import KIND_COLOURS, ChartAxis, ChartBlock, ChartLine, LegendEntry, draw
from batonpass.scenarios.report.words import counted, number_text
from batonpass.scenarios.scenes.judge import WAYS, WayFigures, WayRecord
from batonpass.scenarios.scenes.run import ScenesResult, problems_of
from batonpass.simserver.sync.scene.loops import FrameStage, StageSpan

__all__ = ["scenes_page", "scenes_table"]

_SHOWN_FRAMES: Final = 6
_SHOWN_ORDERS: Final = 8
_THREAD: Final = "renderer"
_GPU: Final = "GPU"
_COLOURS: Final = dict(zip(FrameStage, KIND_COLOURS, strict=False))


def _rows(figures: Sequence[WayFigures]) -> dict[str, list[str]]:
    """What both ways are compared by."""

    def row(value: Any) -> list[str]:
        return [value(each) for each in figures]

    return {
        "the first scene computes, frames/s": row(lambda of: f"{of.first_frames_per_s:.1f}"),
        "a scene computes, frames/s, median": row(lambda of: f"{of.scene_frames_per_s:.1f}"),
        "the renderer draws, frames/s": row(lambda of: f"{of.frames_per_s:.1f}"),
        "frames dropped": row(lambda of: f"{of.dropped:.0%}"),
        "input delay, ms": row(lambda of: f"{of.input_delay_ms:.1f}"),
        "computed while the GPU renders": row(lambda of: f"{of.overlapped:.0%}"),
        "a scene waits for its answer, refreshes": row(lambda of: _number(of.waited_refreshes)),
        "quota used, mean and most": row(lambda of: f"{of.quota_used:.0%}, {of.quota_most:.0%}"),
        "parts of messages a frame": row(lambda of: f"{of.parts_per_frame:.1f}"),
        "refused or dropped": row(
            lambda of: ", ".join(f"{name} {count}" for name, count in of.counts.items()) or "none"
        ),
    }


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"


def _gain(result: ScenesResult) -> str:
    return "unknown" if result.gain is None else f"{result.gain:.2f}x"


def scenes_table(result: ScenesResult) -> RenderableType:
    """Everything that the command shows when it is done."""
    plan, figures = result.plan, [result.figures(way) for way in WAYS]
    table = Table(
        title=f"{counted(plan.scenes, 'scene')}, {plan.rate} Hz, scene {plan.scene_ms:g} ms, GPU {plan.gpu_ms:g} ms"
    )
    for name in ("", *WAYS):
        table.add_column(name, justify="right" if name else "left")
    for name, values in _rows(figures).items():
        table.add_row(name, *values)
    scenes = Table(title=f"Double-buffered, scene-1 computes {_gain(result)} as often; seed {plan.seed}")
    for name in ("scene", "behaviour", *(f"{way}, frames/s" for way in WAYS)):
        scenes.add_column(name, justify="right" if "frames" in name else "left")
    for naive, double_buffered in zip(*(each.scenes for each in figures), strict=True):
        rates = [f"{each.frames_per_s:.1f}" for each in (naive, double_buffered)]
        scenes.add_row(naive.name, naive.behaviour, *rates)
    return Group(table, scenes)


def scenes_page(result: ScenesResult) -> str:
    """The whole page, as HTML text."""
    figures = [result.figures(way) for way in WAYS]
    return render_page(
        "scenes.html.jinja",
        report=result.facts,
        plan=result.plan,
        problems=problems_of(result),
        gain=_gain(result),
        ways=WAYS,
        rows=_rows(figures),
        scenes=list(zip(*(each.scenes for each in figures), strict=True)),
        orders=_orders(result.ways[WAYS[1]]),
        pictures=[base64.b64encode(result.ways[way].renderer.picture).decode() for way in WAYS],
        lines={way: _lanes(result.ways[way])[1] for way in WAYS},
        timelines={way: _timeline(result.ways[way]) for way in WAYS},
        quota=_quota(result.ways[WAYS[1]], result.plan.quota_ms),
    )


def _orders(way: WayRecord) -> list[tuple[str, str]]:
    samples = [sample for sample in way.renderer.orders if len(sample.order) > 1]
    every = max(1, len(samples) // _SHOWN_ORDERS)
    return [
        (
            f"{sample.player[0]:.0f}, {sample.player[1]:.0f}",
            ", ".join(
                f"{name} ({metres:.0f} m)" for name, metres in zip(sample.order, sample.distances_m, strict=True)
            ),
        )
        for sample in samples[::every][:_SHOWN_ORDERS]
    ]


def _lanes(way: WayRecord) -> tuple[list[tuple[str, StageSpan]], str]:
    """The stages of some frames in the middle, each with its lane; and the scene whose stages are shown."""
    of = way.renderer
    frames = [span for span in of.spans if span.stage is FrameStage.RECEIVE]
    chosen = frames[len(frames) // 2 :][: _SHOWN_FRAMES + 1]
    if not chosen:
        return [], ""
    begin_ns, end_ns = chosen[0].began_ns, chosen[-1].ended_ns
    scene, spans = next(
        ((name, spans) for name, spans in way.scenes.items() if _within(spans, begin_ns, end_ns)), ("", ())
    )
    lanes = [
        (_GPU if span.stage is FrameStage.RENDER else _THREAD, span) for span in _within(of.spans, begin_ns, end_ns)
    ]
    return lanes + [(scene, span) for span in _within(spans, begin_ns, end_ns)], scene


def _within(spans: Iterable[StageSpan], begin_ns: int, end_ns: int) -> list[StageSpan]:
    return [span for span in spans if begin_ns <= span.began_ns <= end_ns]


def _timeline(way: WayRecord) -> Markup:
    """Bars of what ran when, in milliseconds."""
    lanes, scene = _lanes(way)
    origin_ns = min((span.began_ns for _, span in lanes), default=0)
    rows = [_GPU, _THREAD, *([scene] if scene else [])]
    marks = []
    for lane, span in lanes:
        across = ((span.began_ns - origin_ns) / 1e6, (span.ended_ns - origin_ns) / 1e6)
        top = rows.index(lane)
        says = f"{span.stage.value} of frame {span.frame}: {number_text(across[1] - across[0])} ms"
        fill = _COLOURS[span.stage]
        marks.append(ChartBlock(across, (top + 0.36, top + 0.92), fill, says=says, key=str(span.frame)))
    return draw(
        ChartAxis.from_zero("since the first of these frames began (ms)", [mark.x[1] for mark in marks]),
        ChartAxis.of_rows(len(rows)),
        marks,
        height_px=52 * len(rows),
        rows=rows,
        legend=[LegendEntry(colour, stage.value) for stage, colour in _COLOURS.items()],
    )


def _quota(way: WayRecord, quota_ms: float) -> Markup:
    """What Receive took of each frame, and the quota."""
    spent_ms = [spent_ns / 1e6 for spent_ns in way.renderer.spent_ns]
    frames = ChartAxis.from_zero("frame", [len(spent_ms)])
    return draw(
        frames,
        ChartAxis.from_zero("time in Receive (ms)", [*spent_ms, quota_ms]),
        [
            ChartLine(list(enumerate(spent_ms, start=1)), KIND_COLOURS[0]),
            ChartLine([(0, quota_ms), (frames.high, quota_ms)], KIND_COLOURS[1], is_dashed=True),
        ],
        height_px=180,
        legend=[LegendEntry(KIND_COLOURS[0], "Receive"), LegendEntry(KIND_COLOURS[1], "dashed: quota")],
    )
