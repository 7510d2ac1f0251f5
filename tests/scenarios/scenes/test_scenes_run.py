"""`baton run scenes` with real processes, once; how quick they are is not judged."""

from batonpass.scenarios.scenes.judge import WAYS
from batonpass.scenarios.scenes.page import scenes_page
from batonpass.scenarios.scenes.plan import ScenesPlan
from batonpass.scenarios.scenes.run import problems_of, run_scenes


async def test_a_renderer_and_two_scenes_run_in_both_ways() -> None:
    plan = ScenesPlan(scenes=2, players=2, seconds=1.0, scene_ms=1.0, gpu_ms=1.0, seed=5)
    seconds: list[tuple[int, int]] = []
    result = await run_scenes(plan, progress=lambda way, at: seconds.append((way, at)))
    assert problems_of(result) == ()
    assert list(result.ways) == list(WAYS)
    for way in result.ways.values():
        assert set(way.scenes) == {"scene-1", "scene-2"}
        assert way.renderer.picture.startswith(b"\x89PNG")
    assert (1, 1) in seconds
    assert "timeline-naive" in scenes_page(result)
