"""The figures of a run, and what of it is wrong. How quick the machine was is no fault. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from batonpass.scenarios.scenes.plan import SceneBehaviour, ScenesPlan, spots_of
from batonpass.scenarios.scenes.records import RendererRecord
from batonpass.simserver.sync.scene.loops import FrameStage, StageSpan

__all__ = ["WAYS", "SceneFigures", "WayFigures", "WayRecord", "figures_of", "problems_of_way"]

WAYS = ("naive", "double-buffered")


@dataclass(frozen=True, slots=True)
class WayRecord:
    """One of the two ways: what the renderer has measured, and the stages of each scene that ended by itself."""

    renderer: RendererRecord
    scenes: Mapping[str, tuple[StageSpan, ...]]


@dataclass(frozen=True, slots=True)
class SceneFigures:
    """Of one scene.

    Attributes:
        frames_per_s: that it computed.
        waited_refreshes: from a frame that it sent to the answer, the median.
    """

    name: str
    behaviour: str
    frames_per_s: float
    waited_refreshes: float | None


@dataclass(frozen=True, slots=True)
class WayFigures:
    """Of one way.

    Attributes:
        frames_per_s: that the renderer drew.
        dropped: refreshes at which no frame could begin, as a share of all.
        input_delay_ms: from Receive to the end of Render, on average.
        overlapped: for which share of the GPU's time the renderer's thread had something to do.
        first_frames_per_s: of the first scene, which is never behind another one.
        scene_frames_per_s: of a good scene, the median.
        waited_refreshes: of a good scene, the median.
        quota_used: of the quota, on average; `quota_most` in the worst frame.
    """

    frames_per_s: float
    dropped: float
    input_delay_ms: float
    overlapped: float
    first_frames_per_s: float
    scene_frames_per_s: float
    waited_refreshes: float | None
    quota_used: float
    quota_most: float
    parts_per_frame: float
    counts: Mapping[str, int]
    scenes: tuple[SceneFigures, ...]


def figures_of(plan: ScenesPlan, way: WayRecord) -> WayFigures:
    """The figures of a way."""
    of = way.renderer
    seconds = max((of.ended_ns - of.began_ns) / 1e9, 1e-9)
    scenes = tuple(
        _scene_figures(spot.name, spot.behaviour, way.scenes.get(spot.name, ()), of, plan) for spot in spots_of(plan)
    )
    good = [scene for scene in scenes if scene.behaviour == SceneBehaviour.GOOD]
    waits = [scene.waited_refreshes for scene in good if scene.waited_refreshes is not None]
    frames, dropped, delay_ns, gpu_ns, overlapped_ns = of.measures
    quota_ns = plan.quota_ms * 1e6
    return WayFigures(
        frames_per_s=frames / seconds,
        dropped=dropped / max(frames + dropped, 1),
        input_delay_ms=delay_ns / max(frames, 1) / 1e6,
        overlapped=overlapped_ns / max(gpu_ns, 1),
        first_frames_per_s=scenes[0].frames_per_s,
        scene_frames_per_s=median([scene.frames_per_s for scene in good] or [0.0]),
        waited_refreshes=median(waits) if waits else None,
        quota_used=fmean(of.spent_ns or [0]) / quota_ns,
        quota_most=max(of.spent_ns, default=0) / quota_ns,
        parts_per_frame=fmean(of.parts or [0]),
        counts=of.counts,
        scenes=scenes,
    )


def _scene_figures(
    name: str, behaviour: SceneBehaviour, spans: Sequence[StageSpan], of: RendererRecord, plan: ScenesPlan
) -> SceneFigures:
    inside = [span for span in spans if of.began_ns <= span.began_ns < of.ended_ns]
    frames = sum(span.stage is FrameStage.UPDATE for span in inside)
    edges = [span for span in inside if span.stage is not FrameStage.UPDATE]
    waits_ns = [
        later.began_ns - sooner.ended_ns for sooner, later in pairwise(edges) if sooner.stage is FrameStage.SEND
    ]
    refresh_ns = 1e9 / plan.rate
    waited = median(math.ceil(wait_ns / refresh_ns) for wait_ns in waits_ns) if waits_ns else None
    return SceneFigures(name, behaviour.value, frames / max((of.ended_ns - of.began_ns) / 1e9, 1e-9), waited)


def problems_of_way(plan: ScenesPlan, name: str, way: WayRecord) -> list[str]:
    """What is wrong with a way."""
    spots = spots_of(plan)
    everywhere = {spot.name for spot in spots if spot.place.is_global}
    problems = []
    for spot in spots:
        good = spot.behaviour is SceneBehaviour.GOOD
        if good and not any(span.stage is FrameStage.UPDATE for span in way.scenes.get(spot.name, ())):
            problems.append(f"{name}: {spot.name} has computed no frame")
    if not way.renderer.measures.frames:
        problems.append(f"{name}: the renderer has drawn no frame")
    for sample in way.renderer.orders:
        ranks = [scene not in everywhere for scene in sample.order]
        if ranks != sorted(ranks):
            problems.append(f"{name}: a scene that is somewhere came before one that is everywhere")
            break
    problems += [f"{name}: {text}" for text in _out_of_step(way)]
    return problems


def _out_of_step(way: WayRecord) -> list[str]:
    """Render follows Update of its frame, and Send follows it, too."""
    done: dict[int, set[FrameStage]] = {}
    before = {
        FrameStage.UPDATE: FrameStage.RECEIVE,
        FrameStage.RENDER: FrameStage.UPDATE,
        FrameStage.SEND: FrameStage.UPDATE,
    }
    seen = min((span.frame for span in way.renderer.spans), default=0)
    for span in way.renderer.spans:
        needed = before.get(span.stage)
        # Of the first two frames, stages may have been done before the measurement.
        if needed is not None and span.frame > seen + 1 and needed not in done.get(span.frame, ()):
            return [f"{span.stage} of frame {span.frame} came before its {needed}"]
        done.setdefault(span.frame, set()).add(span.stage)
    return []
