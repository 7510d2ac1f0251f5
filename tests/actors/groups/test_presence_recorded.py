"""Who is told of what, and who is there: what Phoenix's presence was recorded to say.

A script is a line of steps: `t1a` (member 1 is tracked at key a), `u1` (its metadata change), `x1` (it is untracked),
`s` (a client of Phoenix is told everything again). Each metadata is a number, one higher than the last. A transcript
has for each step who has come and gone (`+a:3`, `-a:2`), and who is there (`a=3,5`). Phoenix's server, whose
differences these are, is in no registry; the client that merges them is in npm's.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from batonpass.actors import System
from batonpass.actors.groups import Presence, PresenceDiff, Tracked
from tests.actors.servers import Recorder

RECORDED = Path(__file__).with_name("phoenix_presence.txt")


def recorded() -> dict[str, str]:
    """To each script its transcript."""
    lines = (line for line in RECORDED.read_text().splitlines() if not line.startswith("#"))
    return {script: transcript for script, _, transcript in (line.partition(": ") for line in lines)}


def said(metas: list[dict[str, int]]) -> str:
    """Metadata by their numbers."""
    return ",".join(str(n) for n in sorted(meta["n"] for meta in metas))


async def play(system: System, presence: Presence, topic: int, script: str) -> str:
    """The transcript of a script, at a topic of its own."""
    watcher = await system.start(Recorder)
    presence.subscribe(watcher, topic)
    members: dict[str, Tracked] = {}
    number, seen, segments = 0, 0, []
    for step in script.split():
        what, who, key = step[0], step[1:2], step[2:]
        if what == "t" and who not in members:
            members[who] = presence.track(watcher, topic, key, n=number)
            number += 1
        elif what == "u" and who in members:
            members[who].update(n=number)
            number += 1
        elif what == "x" and who in members:
            members.pop(who).untrack()
        await wait_all_tasks_blocked()
        diffs: list[PresenceDiff] = await watcher.call("all")
        events = [
            f"{sign}{key}:{said(metas)}"
            for diff in diffs[seen:]
            for sign, told in (("+", diff.joins), ("-", diff.leaves))
            for key, metas in told.items()
        ]
        seen = len(diffs)
        segments.append(
            " ".join([*events, *sorted(f"{key}={said(metas)}" for key, metas in presence.at(topic).items())])
        )
    for tracked in members.values():
        tracked.untrack()
    return " | ".join(segments)


def test_presence_says_what_phoenix_says() -> None:
    scripts = recorded()
    assert len(scripts) > 50

    async def play_all() -> None:
        presence = Presence("recorded")
        async with System.open("recorded", [presence.spec("presence")]) as system:
            for topic, (script, transcript) in enumerate(scripts.items()):
                assert await play(system, presence, topic, script) == transcript, script

    trio.run(play_all, clock=trio.testing.MockClock(autojump_threshold=0))


if __name__ == "__main__":
    dice = random.Random(16)
    for _ in range(60):
        steps = []
        for _ in range(dice.randint(3, 10)):
            what, who = dice.choice("tttuuxxs"), dice.choice("123")
            steps.append(what + (who + dice.choice("ab") if what == "t" else who if what != "s" else ""))
        sys.stdout.write(" ".join(steps) + "\n")
