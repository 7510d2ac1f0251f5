"""The example in docs/explanation/timeline.md does what it says."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from batonpass.scenarios.timeline.circles import Throw
from batonpass.simserver.sync.lockstep.follower import StreamFollower, SyncPurpose
from batonpass.simserver.sync.lockstep.offline import OfflineStream
from batonpass.simserver.sync.timeline.game import TimelineGame

DOCS: Final = Path(__file__).parents[4] / "docs"
PAGE: Final = (DOCS / "explanation" / "timeline.md").read_text(encoding="utf-8")
RULES: Final = (DOCS / "reference" / "timeline.md").read_text(encoding="utf-8")


def test_the_lamp_of_the_guide_prints_what_the_guide_says(capsys: pytest.CaptureFixture[str]) -> None:
    source = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    names: dict[str, Any] = {"__name__": "lamp"}
    exec(compile(source, "lamp.py", "exec"), names)  # noqa: S102 — the example from our own page
    said = re.findall(r"^print.*# (.*)$", source, flags=re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == said == ["lit dark", "dark 3"]


async def test_the_shared_circles_of_the_guide_run_and_throw() -> None:
    source = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[1]
    names: dict[str, Any] = {"__name__": "circles"}
    exec(compile(source, "circles.py", "exec"), names)  # noqa: S102 — the example from our own page
    games = []

    async def follow(follower: StreamFollower, url: str, *, on_frame: Callable[[int], object]) -> None:
        stream = OfflineStream("seed")
        for _ in range(60):
            stream.advance()
            request = follower.next_request()
            if request.ask is SyncPurpose.GET_SNAPSHOT:
                follower.take_refusal(request, 404, 0)
            else:
                follower.take_answer(request, stream.answer("me", follower.known, dict(request.body or {})))
            on_frame(follower.run(1_000.0))
        games.append(follower.driver)

    names["follow_stream"] = follow
    await names["main"]("http://unused", "me")
    (game,) = games
    assert isinstance(game, TimelineGame)
    assert any(isinstance(record.event, Throw) for record in game.steward.history())
    assert game.peer.settled > 1_000
    assert not game.refused


def test_each_rule_of_the_auditor_is_in_the_reference_and_has_a_test() -> None:
    tests = (Path(__file__).parent / "test_audit.py").read_text(encoding="utf-8")
    for number in range(1, 12):
        assert f"| A{number} |" in RULES
        assert f"def test_a{number}_" in tests
