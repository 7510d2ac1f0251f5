"""D5, D6: a scene and a renderer on a simulated clock, double-buffered and naive."""

import heapq
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final

import pytest

from batonpass.simserver.sync.scene.loops import FrameLoop, FrameStage
from batonpass.simserver.sync.scene.schedule import SceneFrames, ScenePlace

MS: Final = 1_000_000
REFRESH_NS: Final = 16 * MS
STAGES_NS: Final = {
    FrameStage.RECEIVE: MS // 2,
    FrameStage.UPDATE: MS // 2,
    FrameStage.RENDER: 14 * MS,
    FrameStage.SEND: MS // 4,
}


class SceneAndRenderer:
    """Both loops, by the clock of a heap of events."""

    def __init__(self, *, double_buffered: bool, scene_ns: int, stages_ns: dict[FrameStage, int] | None = None) -> None:
        self.loop = FrameLoop(double_buffered=double_buffered)
        self.frames = SceneFrames()
        self.frames.add("scene", ScenePlace(), 0)
        self.scene_ns = scene_ns
        self.stages_ns = stages_ns or STAGES_NS
        self.now_ns = 0
        self.answers_ns: list[int] = []
        self.sent_ns: list[int] = []
        # For each rendered frame, which of the scene's frames it shows.
        self.shown: list[int] = []
        self._due: list[str] = []
        self._applied = 0
        self._updated: dict[int, int] = {}
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._at(0, self._refresh)
        self._at(scene_ns, self._scene_sends)

    def _at(self, at_ns: int, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._heap, (at_ns, self._number, what))

    def _refresh(self) -> None:
        self._run(self.loop.refresh(self.now_ns))
        self._at(self.now_ns + REFRESH_NS, self._refresh)

    def _run(self, stages: list[FrameStage]) -> None:
        for stage in stages:
            if stage is FrameStage.RECEIVE:
                self.frames.begin((0.0, 0.0))
                while self.frames.next_part(0) is not None:
                    pass
                self._applied = len(self.sent_ns)
            self._at(self.now_ns + self.stages_ns[stage], partial(self._done, stage))

    def _done(self, stage: FrameStage) -> None:
        if stage is FrameStage.UPDATE:
            self._due += self.frames.updated()
            self._updated[len(self._updated)] = self._applied
        elif stage is FrameStage.SEND and self._due:
            self._due.clear()
            self.answers_ns.append(self.now_ns)
            self._at(self.now_ns + self.scene_ns, self._scene_sends)
        elif stage is FrameStage.RENDER:
            self.shown.append(self._updated[len(self.shown)])
        self._run(self.loop.done(stage, self.now_ns))

    def _scene_sends(self) -> None:
        self.sent_ns.append(self.now_ns)
        self.frames.receive("scene", b"", self.now_ns)

    def run(self, refreshes: int) -> "SceneAndRenderer":
        while self._heap[0][0] < refreshes * REFRESH_NS:
            self.now_ns, _, what = heapq.heappop(self._heap)
            what()
        return self

    def answer_delays(self) -> list[int]:
        """From each frame of the scene to its answer, in refreshes, rounded up."""
        return [-(-(answer - sent) // REFRESH_NS) for sent, answer in zip(self.sent_ns, self.answers_ns, strict=False)]


def both(scene_ns: int) -> tuple[SceneAndRenderer, SceneAndRenderer]:
    return tuple(  # type: ignore[return-value]
        SceneAndRenderer(double_buffered=double_buffered, scene_ns=scene_ns).run(1_000)
        for double_buffered in (True, False)
    )


def test_a_scene_computes_nearly_twice_as_often_when_both_sides_take_equal_time() -> None:
    double_buffered, naive = both(14 * MS)
    assert len(double_buffered.answers_ns) >= 1.9 * len(naive.answers_ns)
    assert len(double_buffered.answers_ns) >= 990, "as often as the renderer"


def test_no_frame_is_shown_twice_of_a_scene_that_is_quick_enough_and_every_second_one_if_naive() -> None:
    double_buffered, naive = both(14 * MS)
    repeated = [
        sum(one == other for one, other in zip(of.shown, of.shown[1:], strict=False)) / len(of.shown)
        for of in (double_buffered, naive)
    ]
    assert repeated[0] < 0.01
    assert 0.45 < repeated[1] < 0.55


def test_a_message_that_arrives_within_a_frame_costs_one_frame_and_two_if_naive() -> None:
    # Some milliseconds after the Receive that it has missed.
    double_buffered, naive = both(3 * MS)
    assert set(double_buffered.answer_delays()[1:]) == {1}
    assert set(naive.answer_delays()[1:]) == {2}


def test_a_slow_scene_does_not_slow_the_renderer() -> None:
    slow = SceneAndRenderer(double_buffered=True, scene_ns=200 * MS).run(1_000)
    assert slow.loop.measures.dropped == 0
    assert slow.loop.measures.frames >= 998


def test_a_slow_renderer_has_no_scene_compute_two_frames_at_once() -> None:
    slow = SceneAndRenderer(double_buffered=True, scene_ns=MS, stages_ns=STAGES_NS | {FrameStage.RENDER: 50 * MS}).run(
        1_000
    )
    assert slow.loop.measures.dropped > 500
    assert all(sent > answer for answer, sent in zip(slow.answers_ns, slow.sent_ns[1:], strict=False))
    assert 0 <= len(slow.sent_ns) - len(slow.answers_ns) <= 1


def test_the_three_measures_show_what_double_buffering_is_for() -> None:
    long_update = STAGES_NS | {FrameStage.UPDATE: 6 * MS}
    measures = {}
    for double_buffered in (True, False):
        run = SceneAndRenderer(double_buffered=double_buffered, scene_ns=14 * MS, stages_ns=long_update).run(1_000)
        measures[double_buffered] = run.loop.measures
    assert measures[True].dropped == 0
    assert measures[False].dropped >= 490, "20 ms of work a frame, one after the other, misses every second refresh"
    assert measures[False].overlapped_ns == 0
    assert measures[True].overlapped_ns > measures[True].frames * 4 * MS
    assert measures[False].input_delay_ns // measures[False].frames == pytest.approx(20.5 * MS)


@pytest.mark.parametrize("double_buffered", [True, False])
def test_render_follows_the_update_of_its_frame_and_one_frame_renders_at_a_time(double_buffered: bool) -> None:
    for render_ns in (5 * MS, 14 * MS, 40 * MS):
        stages_ns = STAGES_NS | {FrameStage.RENDER: render_ns, FrameStage.UPDATE: 3 * MS}
        loop = SceneAndRenderer(double_buffered=double_buffered, scene_ns=MS, stages_ns=stages_ns).run(200).loop
        ended = {(span.frame, span.stage): span.ended_ns for span in loop.spans}
        renders = [span for span in loop.spans if span.stage is FrameStage.RENDER]
        assert all(span.began_ns >= ended[span.frame, FrameStage.UPDATE] for span in renders)
        assert all(other.began_ns >= one.ended_ns for one, other in pairwise(renders))
        assert [span.frame for span in renders] == sorted({span.frame for span in renders})
        thread = sorted((span for span in loop.spans if span.stage is not FrameStage.RENDER), key=lambda s: s.began_ns)
        assert all(other.began_ns >= one.ended_ns for one, other in pairwise(thread))


def test_a_stage_that_does_not_run_is_not_done() -> None:
    with pytest.raises(KeyError):
        FrameLoop(double_buffered=True).done(FrameStage.RENDER, 0)
