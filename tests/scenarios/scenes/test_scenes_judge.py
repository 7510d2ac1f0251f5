"""What a run of scenes is judged by, and what people see of it."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from click.testing import CliRunner
from rich.console import Console

from batonpass.scenarios.common.picture import png_of
from batonpass.scenarios.report.model import RunFacts
from batonpass.scenarios.scenes.judge import WAYS, WayRecord, figures_of, problems_of_way
from batonpass.scenarios.scenes.page import scenes_page, scenes_table
from batonpass.scenarios.scenes.plan import MIN_BAD, SceneBehaviour, ScenesPlan, spots_of, walk_of
from batonpass.scenarios.scenes.records import (
    OrderSample,
    RendererRecord,
    read_renderer,
    read_spans,
    write_renderer,
    write_spans,
)
from batonpass.scenarios.scenes.run import ScenesResult, command, problems_of, result_data
from batonpass.simserver.sync.scene.loops import FrameMeasures, FrameStage, StageSpan

MS: Final = 1_000_000
PLAN: Final = ScenesPlan(scenes=2, players=1, seconds=1.0, rate=100, seed=7)
ORDER: Final = OrderSample((1.0, 2.0), ("scene-1", "scene-2"), (30.0, 3.0))


def renderer(**changes: Any) -> RendererRecord:
    stages = (FrameStage.RECEIVE, FrameStage.UPDATE, FrameStage.SEND, FrameStage.RENDER)
    spans = tuple(
        StageSpan(frame, stage, frame * 10 * MS + at * MS, frame * 10 * MS + (at + 1) * MS)
        for frame in range(100)
        for at, stage in enumerate(stages)
    )
    record = RendererRecord(
        began_ns=0,
        ended_ns=1_000 * MS,
        measures=FrameMeasures(frames=80, dropped=20, input_delay_ns=800 * MS, gpu_ns=400 * MS, overlapped_ns=100 * MS),
        spans=spans,
        spent_ns=(500_000, 1_000_000),
        parts=(1, 3),
        orders=(ORDER,),
        counts={"scenes_dead": 1},
        picture=png_of(bytes(4), 2),
        graphs={"scene-1": {"entities": []}},
    )
    return replace(record, **changes)


def scene(period_ms: int) -> tuple[StageSpan, ...]:
    """It computes for 4 ms in each period, and waits for its answer for the rest."""
    spans = []
    for frame in range(1_000 // period_ms):
        began_ns = frame * period_ms * MS
        spans += [
            StageSpan(frame, FrameStage.RECEIVE, began_ns, began_ns),
            StageSpan(frame, FrameStage.UPDATE, began_ns, began_ns + 4 * MS),
            StageSpan(frame, FrameStage.SEND, began_ns + 4 * MS, began_ns + 4 * MS),
        ]
    return tuple(spans)


def result() -> ScenesResult:
    facts = RunFacts(versions={}, seed=7, machine={}, started_at=datetime(2026, 11, 29, tzinfo=UTC))
    ways = {
        way: WayRecord(renderer(), {"scene-1": scene(period_ms), "scene-2": scene(period_ms)})
        for way, period_ms in zip(WAYS, (20, 10), strict=True)
    }
    return ScenesResult(PLAN, facts, ways)


def test_the_figures_are_those_of_adr_148_and_of_each_scene() -> None:
    of = figures_of(PLAN, result().ways["double-buffered"])
    assert (of.frames_per_s, of.dropped, of.input_delay_ms, of.overlapped) == (80.0, 0.2, 10.0, 0.25)
    assert (of.first_frames_per_s, of.scene_frames_per_s, of.waited_refreshes) == (100.0, 100.0, 1)
    assert (of.quota_used, of.quota_most, of.parts_per_frame) == (0.75, 1.0, 2.0)
    assert figures_of(PLAN, result().ways["naive"]).waited_refreshes == 2
    assert result().gain == 2.0


def test_a_run_in_which_nothing_is_wrong_has_no_problems() -> None:
    assert problems_of(result()) == ()


@pytest.mark.parametrize(
    ("way", "problem"),
    [
        (WayRecord(renderer(), {"scene-1": scene(10)}), "scene-2 has computed no frame"),
        (
            WayRecord(renderer(measures=FrameMeasures(0, 9, 0, 0, 0)), result().ways["naive"].scenes),
            "the renderer has drawn no frame",
        ),
        (
            WayRecord(
                renderer(orders=(ORDER, OrderSample((0.0, 0.0), ("scene-2", "scene-1"), (1.0, 2.0)))),
                result().ways["naive"].scenes,
            ),
            "a scene that is somewhere came before one that is everywhere",
        ),
        (
            WayRecord(
                renderer(spans=(*renderer().spans, StageSpan(100, FrameStage.SEND, 0, 1))),
                result().ways["naive"].scenes,
            ),
            "send of frame 100 came before its update",
        ),
    ],
)
def test_each_rule_that_is_broken_is_told(way: WayRecord, problem: str) -> None:
    assert problems_of_way(PLAN, "naive", way) == [f"naive: {problem}"]


def test_records_are_read_as_they_were_written(tmp_path: Any) -> None:
    write_renderer(tmp_path / "renderer", renderer())
    assert read_renderer(tmp_path / "renderer") == renderer()
    write_spans(tmp_path / "scene", list(scene(10)))
    assert read_spans(tmp_path / "scene") == scene(10)


def test_the_page_has_both_timelines_the_order_and_the_pictures_and_the_table_the_gain() -> None:
    page = scenes_page(result())
    for text in (
        "timeline-naive",
        "timeline-double-buffered",
        "scene-1 (30 m), scene-2 (3 m)",
        "data:image/png",
        "2.00x",
    ):
        assert text in page
    console = Console(width=120, record=True)
    console.print(scenes_table(result()))
    assert "scene-1 computes 2.00x as often; seed 7" in console.export_text()


def test_the_report_as_json_names_its_kind_and_has_the_figures_of_both_ways() -> None:
    data = result_data(result())
    assert (data["kind"], data["passed"], data["gain"]) == ("batonpass.scenes", True, 2.0)
    assert data["ways"]["naive"]["graphs"] == {"scene-1": {"entities": []}}
    assert data["ways"]["naive"]["orders"][0]["order"] == ("scene-1", "scene-2")


def test_the_same_seed_is_the_same_world_and_bad_scenes_are_the_last_of_many() -> None:
    plan = ScenesPlan(seed=3)
    assert spots_of(plan) == spots_of(ScenesPlan(seed=3)) != spots_of(ScenesPlan(seed=4))
    assert walk_of(plan, 2.0) == walk_of(plan, 2.0) != walk_of(plan, 2.5)
    assert [spot.behaviour for spot in spots_of(plan)[-3:]] == ["slow", "silent", "flooding"]
    few = spots_of(ScenesPlan(scenes=MIN_BAD - 1))
    assert {spot.behaviour for spot in few} == {SceneBehaviour.GOOD}
    assert [spot.place.is_global for spot in few] == [True, False, False, False, False]
    assert len(walk_of(plan, 0.0)) == plan.players


def test_a_run_has_at_least_one_scene() -> None:
    asked = CliRunner().invoke(command, ["--scenes", "0"])
    assert asked.exit_code == 2
