"""The game in docs/reference/lockstep.md is a game: it runs, is equal on two clients, and passes check mode."""

import inspect
import io
import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from batonpass.simserver.sync.door.polled_host import PolledHost
from batonpass.simserver.sync.door.stream_door import StreamDoor
from batonpass.simserver.sync.lockstep.canonical import encode, state_hash
from batonpass.simserver.sync.lockstep.follower import StreamFollower
from batonpass.simserver.sync.lockstep.generator import Xoshiro128
from batonpass.simserver.sync.lockstep.offline import OfflineStream
from batonpass.simserver.sync.lockstep.recording import StreamRecording
from batonpass.simserver.sync.play.session import follow_stream
from tests.simserver.ports import TrioClock

PAGE: Final = (Path(__file__).parents[4] / "docs" / "reference" / "lockstep.md").read_text(encoding="utf-8")


BLOCKS: Final = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def guide() -> tuple[str, dict[str, Any]]:
    source = BLOCKS[0]
    names: dict[str, Any] = {"__name__": "coins"}
    exec(compile(source, "coins.py", "exec"), names)  # noqa: S102 — the example from our own page
    return source, names


def test_the_game_of_the_guide_has_at_most_60_lines_and_two_clients_play_it_equally(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, names = guide()
    assert len([line for line in source.splitlines() if line.strip()]) <= 60
    stream = OfflineStream("coins")
    followers = [StreamFollower(names["Coins"](), "coins", who, join_by_snapshot=False) for who in ("ada", "bob")]
    for turn in range(60):
        stream.advance(4)
        followers[turn % 2].driver.send_event("walk", str(turn // 2 % 5 - 1))
        for follower, who in zip(followers, ("ada", "bob"), strict=True):
            request = follower.next_request()
            assert request.body is not None
            follower.take_answer(request, stream.answer(who, follower.known, dict(request.body)))
            while follower.behind:
                follower.run(1000)
    one, other = (follower.driver for follower in followers)
    assert one.state_hash() == other.state_hash()
    walkers = one.entities(names["Walker"])
    assert [walker.public_id for walker in walkers] == ["1", "2"]
    assert sum(walker.coins for walker in walkers) > 0
    log = tuple(event for event in stream.log if event.tick <= 60)
    (checked,) = [block for block in BLOCKS if "import check" in block]
    exec(compile(checked, "check.py", "exec"), names | {"recording": StreamRecording("coins", "", 60, log)})  # noqa: S102 — as above
    assert capsys.readouterr().out == "None\n"


async def test_the_game_of_the_guide_ends_with_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    _, names = guide()
    ended: list[str] = []

    async def follow_stream(follower: StreamFollower, url: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append(url)

    names["follow_stream"] = follow_stream
    monkeypatch.setattr(sys, "stdin", io.StringIO("d\n"))
    with trio.fail_after(60):
        await names["main"]("http://stream.test", "ada")
    assert ended == ["http://stream.test"]


async def test_a_game_is_recorded_and_played_again_as_the_page_shows(tmp_path: Path) -> None:
    _, names = guide()
    (source,) = [block for block in BLOCKS if "import Recorder" in block]
    exec(compile(source, "recorded.py", "exec"), names)  # noqa: S102 — as above
    game, host, path = names["Coins"](), PolledHost(), tmp_path / "coins.jsonl"
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(StreamDoor(host, TrioClock()).serve, "127.0.0.1", 0)
        nursery.start_soon(host.serve)
        nursery.start_soon(names["recorded"], game, url, path)
        while not game.entities(names["Walker"]) or game.tick < 20:  # noqa: ASYNC110 — a server is waited for
            await trio.sleep(0.02)
        nursery.cancel_scope.cancel()
    replay = names["played"](names["Coins"](), path, game.tick)
    assert replay.driver.state_hash() == game.state_hash()
    replay.seek(1)
    assert replay.driver.record(1).events[0].type == "_a"


def test_what_the_reference_gives_as_bytes_and_numbers_is_so() -> None:
    _, names = guide()
    (shown,) = re.findall(r'`\{"b": 1\.0, "a": 0\.5\}` is `([0-9a-f ]+)`', PAGE)
    assert encode({"b": 1.0, "a": 0.5}) == bytes.fromhex(shown)
    drawn = Xoshiro128((1, 2, 3, 4))
    assert ", ".join(str(drawn.next()) for _ in range(5)) in PAGE
    random = Xoshiro128.seeded("").state
    form = {"Next": 1, "Tick": 0, "Random": random, "Pending": [], "Entities": []}
    assert names["Coins"]().state_hash() == state_hash(encode(form))


def test_several_doors_are_named_as_the_page_shows() -> None:
    bound: list[inspect.BoundArguments] = []

    def told(*given: Any) -> None:
        bound.append(inspect.signature(follow_stream).bind(*given))

    (source,) = [block for block in BLOCKS if block.startswith("follow_stream(")]
    exec(compile(source, "doors.py", "exec"), {"follower": "its follower", "follow_stream": told})  # noqa: S102 — as above
    doors = ["http://10.0.0.11:9922", "http://10.0.0.12:9922"]
    assert [one.arguments for one in bound] == [{"follower": "its follower", "urls": doors}]
