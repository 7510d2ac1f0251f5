"""The kit waits for messages as ExUnit was recorded to do, and ends what it supervises in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from batonpass.actors import ActorSpec, Server, SupervisorError
from batonpass.testing.actors import ActorKit, Probe, actor_test
from tests.actors.oracle.lines import Transcript

RECORDED = Path(__file__).with_name("otp_kit.txt")

HERE = {
    # Python's functions return None where they say nothing.
    "refute_receive of what does not come, and what is left": "{nil, [:other]}",
    "refute_received": "{nil, []}",
}


def second(message: Any) -> bool:
    return isinstance(message, tuple) and message[0] == "second"


@actor_test
async def test_what_is_waited_for_is_what_exunit_waits_for(kit: ActorKit) -> None:
    recorded = Transcript(RECORDED, "waits: ", HERE)

    async def probe(*messages: Any, later: str = "") -> Probe:
        made = await kit.new_probe()
        for message in messages:
            made.ref.send(message)
        if later:
            kit.system.timers.send_after(0.03, made.ref, later)
        return made

    one = await probe("first", ("second", 2))
    said = await one.assert_receive(second)
    recorded.say("assert_receive of the second message, and what is left", (said, one.mailbox))
    one = await probe("other")
    with pytest.raises(AssertionError):
        await one.assert_receive("wanted", timeout_s=0.02)
    recorded.say("assert_receive of what does not come, and what is left", ("failed", one.mailbox))
    one = await probe(later="late")
    recorded.say("assert_receive of what comes later", (await one.assert_receive("late"), one.mailbox))
    one = await probe(later="late")
    with pytest.raises(AssertionError):
        one.assert_received("late")
    await trio.sleep(0.06)
    recorded.say("assert_received of what comes later", ("failed", one.mailbox))
    one = await probe("other")
    await one.refute_receive("unwanted", timeout_s=0.02)
    recorded.say("refute_receive of what does not come, and what is left", (None, one.mailbox))
    one = await probe("other", "unwanted")
    with pytest.raises(AssertionError):
        await one.refute_receive("unwanted", timeout_s=0.02)
    recorded.say("refute_receive of what is there, and what is left", ("failed", one.mailbox))
    one = await probe()
    one.refute_received("unwanted")
    recorded.say("refute_received", (None, one.mailbox))
    assert recorded.all_said()


class Noisy(Server[tuple[str, list[Any]]]):
    """Notes on a list when it begins and when it ends."""

    trap_exit = True

    def init(self, arg: tuple[str, list[Any]]) -> tuple[str, list[Any]]:
        name, heard = arg
        heard.append(("began", name))
        return arg

    def terminate(self, reason: object, state: tuple[str, list[Any]]) -> None:
        name, heard = state
        heard.append(("ended", name))


def test_what_is_supervised_begins_and_ends_as_with_exunit() -> None:
    heard: list[Any] = []

    def child(name: str) -> ActorSpec:
        return ActorSpec(name, Noisy, (name, heard), name=name)

    @actor_test
    async def test(kit: ActorKit) -> None:
        for name in ("x", "y", "z"):
            await kit.start_supervised(child(name))
        await kit.stop_supervised("y")
        heard.append(("stop", "ok"))
        with pytest.raises(SupervisorError):
            await kit.stop_supervised("nobody")
        heard.append(("stop", ("error", "not_found")))
        with pytest.raises(SupervisorError):
            await kit.start_supervised(child("x"))
        heard.append(("again", "error"))
        before = kit.system.whereis("z")
        assert before is not None
        before.kill()
        await wait_all_tasks_blocked()
        heard.append(("restarted", kit.system.whereis("z") not in (None, before)))
        heard.append("over")

    test()
    recorded = Transcript(RECORDED, "children: ")
    recorded.say("what three supervised children and their test do", [*heard])
    assert recorded.all_said()
