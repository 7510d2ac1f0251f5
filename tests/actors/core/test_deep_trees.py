"""Trees of any depth: they start, fail and end; what fails below is one sentence above, with the way to it."""

import gc
import logging
from typing import Any

import pytest
import trio

from batonpass.actors import (
    ActorSpec,
    ChildSpec,
    ChildStartFailed,
    Exit,
    RestartLimitReached,
    Server,
    StartError,
    SupervisorSpec,
    System,
)
from batonpass.actors.core.exits import PATH_SHOWN, trail_of


class Fine(Server[None]):
    """Starts."""

    def init(self, arg: Any) -> None:
        return None


class FineLater(Server[None]):
    """Starts, and takes a moment."""

    async def init(self, arg: Any) -> None:
        await trio.lowlevel.checkpoint()


class Broken(Server[None]):
    """Does not start."""

    def init(self, arg: Any) -> None:
        raise ValueError("no such file: 'data.db'")


class Crashing(Server[None]):
    """Starts, and crashes."""

    def init(self, arg: Any) -> None:
        self.send_after(0.0, "crash")

    def handle_info(self, message: Any, state: None) -> None:
        raise ValueError("the \"disk\" is full: '/var/data'")


def nested(depth: int, leaf: type[Server[Any]], **flags: Any) -> ChildSpec:
    """A leaf below so many supervisors, `s0` just above it."""
    spec: ChildSpec = ActorSpec("leaf", leaf)
    for number in range(depth):
        spec = SupervisorSpec(f"s{number}", [spec], **flags)
    return spec


@pytest.mark.parametrize(
    ("depth", "leaf"),
    # Two trees of 400 levels would be half of what all tests of the core take.
    [*((depth, leaf) for depth in (0, 1, 22, 23, 24, 100) for leaf in (Fine, FineLater)), (400, FineLater)],
)
async def test_a_tree_may_be_deeper_than_the_stack(depth: int, leaf: type[Server[Any]]) -> None:
    async with System.open("node", [nested(depth, leaf)]) as system:
        assert system.count == depth + 2
        deepest = system.actors()[-1]
        # The whole of it begins anew, in order.
        top = system.root.process.children
        assert top is not None
        next(iter(top)).kill()
        with trio.fail_after(20):
            while deepest.alive or system.count < depth + 2:
                await trio.lowlevel.checkpoint()
    gc.collect()


@pytest.mark.parametrize("depth", [0, 1, 3, 50, 300])
async def test_a_child_that_does_not_start_is_one_sentence_with_the_way_to_it(depth: int) -> None:
    with pytest.raises(StartError) as caught:
        async with System.open("node", [nested(depth, Broken)]):
            pass
    text = str(caught.value)
    assert text.startswith("Supervisor 'root' #1 did not start: the child ")
    assert text.endswith("""'leaf' did not start: ValueError("no such file: 'data.db'")""")
    assert "\\" not in text
    path, first = trail_of(caught.value.reason)
    assert path == (*[f"s{number}" for number in reversed(range(depth))], "leaf")
    assert isinstance(first, ValueError)
    if depth < PATH_SHOWN:
        assert " > ".join(map(repr, path)) in text
    else:
        assert len(text) < 250, "both ends of the way are enough"
        assert f"'s{depth - 1}' > 's{depth - 2}' > " in text
        assert " > … > 's2' > 's1' > 's0' > 'leaf'" in text
    failed = caught.value.reason
    assert isinstance(failed, tuple)
    assert isinstance(failed[1], ChildStartFailed)


@pytest.mark.parametrize("depth", [0, 1, 3, 40])
async def test_a_tree_that_gives_up_says_so_in_one_sentence_too(depth: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL), pytest.raises(RestartLimitReached) as caught:
        async with System.open("node", [nested(depth, Crashing, max_restarts=0)], max_restarts=0):
            await trio.sleep_forever()
    text = str(caught.value)
    assert text.startswith("<Supervisor 'root' #1> gave up: more than 0 restarts within 5.0 s; the last child to fail")
    assert text.count("gave up") == 1
    assert "'leaf': ValueError(" in text
    assert "disk" in text
    assert len(text) < 300
    assert caught.value.path == (*[f"s{number}" for number in reversed(range(depth))], "leaf")
    assert isinstance(caught.value.first, ValueError)


async def test_who_calls_what_gave_up_reads_the_same_sentence() -> None:
    failure = RestartLimitReached.__new__(RestartLimitReached)
    Exception.__init__(failure, "it gave up: that is all")
    assert str(Exit(("shutdown", failure), "<it>")) == "<it> exited without an answer: it gave up: that is all"
