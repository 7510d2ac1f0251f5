"""The engine in docs/explanation/followers.md runs: a follower shows what the controller shows."""

import json
import re
from pathlib import Path
from typing import Any, Final

from batonpass.simserver.sync.followers.engine_node import EngineNode
from batonpass.simserver.sync.followers.images import SentImage
from batonpass.simserver.sync.followers.ports import QuitTold, SubmitState
from tests.simserver.sync.followers.engine_port import LEFT, FakePort, begins, cameras, ready, streams

PAGE: Final = (Path(__file__).parents[4] / "docs" / "explanation" / "followers.md").read_text(encoding="utf-8")
FRAMES: Final = range(1, 6)


def guide() -> tuple[str, dict[str, Any]]:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, Any] = {"__name__": "sparks"}
    exec(compile(source, "sparks.py", "exec"), names)  # noqa: S102 — the example from our own page
    return source, names


def shown_by(port: FakePort) -> list[SentImage]:
    shown: list[SentImage] = []
    guide()[1]["engine"](EngineNode(port, sink=shown.append), "alpha.s1")
    return shown


def states_of(port: FakePort) -> dict[int, bytes]:
    return {act.frame: act.payload for act in port.acts if isinstance(act, SubmitState)}


def show(states: dict[int, bytes]) -> FakePort:
    """Five frames: of those in `states` the node is a follower, of the others the controller."""
    port = FakePort()
    port.puts(streams(LEFT), None)
    for frame in FRAMES:
        port.puts(cameras(frame, LEFT.handle), begins(frame, controller=frame not in states))
        if frame in states:
            port.puts(ready(frame, states[frame]))
        port.puts(None, None)
    port.puts(QuitTold())
    return port


def test_the_engine_of_the_guide_has_at_most_30_lines_and_a_follower_shows_what_the_controller_shows() -> None:
    source, _ = guide()
    assert len([line for line in source.splitlines() if line.strip()]) <= 30
    controller = show({})
    images = shown_by(controller)
    assert len(states_of(controller)) == len(images) == len(FRAMES)
    assert len(set(states_of(controller).values())) == len(FRAMES)
    assert shown_by(show(states_of(controller))) == images


def test_the_engine_of_the_guide_becomes_the_controller_and_continues_from_the_frame_before() -> None:
    controller = show({})
    shown_by(controller)
    before = {frame: state for frame, state in states_of(controller).items() if frame <= 3}
    successor = show(before)
    shown_by(successor)
    assert states_of(successor).keys() == {4, 5}
    heights = [[y for _, y in json.loads(state)] for state in (before[3], states_of(successor)[4])]
    assert [round(y + 0.02, 9) for y in heights[0]] == [round(y, 9) for y in heights[1]]
