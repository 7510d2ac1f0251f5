"""`baton run scenes` with real processes, once; how quick they are is not judged."""

from batonpass.scenarios.scenes.judge import WAYS
from batonpass.scenarios.scenes.page import scenes_page
from batonpass.scenarios.scenes.plan import ScenesPlan
from batonpass.scenarios.scenes.run import problems_of, run_scenes


async def test_a_renderer_and_two_scenes_run_in_both_ways() -> None:
    plan = ScenesPlan(scenes=2, players=2, seconds=1.0, scene_ms=1.0, gpu_ms=1.0, seed=5)
    seconds: list[tuple[int, int]] = []
    pages: list[str] = []
    result = await run_scenes(plan, progress=lambda way, at: seconds.append((way, at)), page=pages.append)
    assert problems_of(result) == ()
    assert list(result.ways) == list(WAYS)
    for way in result.ways.values():
        assert set(way.scenes) == {"scene-1", "scene-2"}
        for name, graph in way.renderer.graphs.items():
            assert name in {component["writer"] for each in graph["entities"] for component in each["components"]}
        assert way.renderer.picture.startswith(b"\x89PNG")
    assert (1, 1) in seconds
    assert [url.startswith("http://127.0.0.1:") for url in pages] == [True, True]
    assert "timeline-naive" in scenes_page(result)
