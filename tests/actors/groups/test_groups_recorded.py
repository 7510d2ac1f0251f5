"""Groups on one node do what `pg` was recorded to do.

A script is a line of steps: `ja12` (members 1 and 2 join group a in one call), `la1` (1 leaves), `x3` (3 ends, and
another takes its number). Its transcript has for each step what the call answered, what those who monitor were told
(`+a1`, `-a1`), and who is in which group (`a=112`).
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from batonpass.actors import Ref, System
from batonpass.actors.groups import Groups, GroupsSpec, JoinedGroup
from tests.actors.servers import Recorder

RECORDED = Path(__file__).with_name("otp_groups.txt")


def recorded() -> dict[str, str]:
    """To each script its transcript."""
    lines = (line for line in RECORDED.read_text().splitlines() if not line.startswith("#"))
    return {script: only_members(transcript) for script, _, transcript in (line.partition(": ") for line in lines)}


def only_members(transcript: str) -> str:
    """The transcript without the one thing that is otherwise here.

    When several are told to leave and only some of them were members, `pg` tells those who monitor that all have left.
    """
    members: Counter[str] = Counter()
    segments: list[str] = []
    for segment in transcript.split(" | "):
        answer, *words = segment.split()
        left = Counter(word[1:] for word in words if word[0] == "-")
        true = [f"-{who}" for who in (left & members).elements()]
        others = [word for word in words if word[0] != "-"]
        segments.append(
            " ".join(
                [
                    answer,
                    *sorted([*true, *(word for word in others if word[0] == "+")]),
                    *(word for word in others if word[0] != "+"),
                ]
            )
        )
        members = Counter(f"{word[0]}{who}" for word in others if word[1] == "=" for who in word[2:])
    return " | ".join(segments)


class Player:
    """Plays scripts on one scope."""

    def __init__(self, system: System, groups: Groups) -> None:
        self.system = system
        self.groups = groups
        self.numbers: dict[Ref, str] = {}
        self.members: dict[str, Ref] = {}
        self.watcher: Ref

    async def play(self, script: str) -> str:
        self.watcher = await self.system.start(Recorder, [])
        self.groups.monitor(self.watcher)
        for number in "123":
            await self.begin(number)
        segments = [await self.step(step) for step in script.split()]
        for ref in (self.watcher, *self.members.values()):
            ref.kill()
        return " | ".join(segments)

    async def begin(self, number: str) -> None:
        ref = self.members[number] = await self.system.start(Recorder, [])
        self.numbers[ref] = number

    async def step(self, step: str) -> str:
        seen = len(await self.watcher.call("all"))
        match step[0]:
            case "j":
                self.groups.join(step[1], [self.members[number] for number in step[2:]])
                answer = "ok"
            case "l":
                left = self.groups.leave(step[1], [self.members[number] for number in step[2:]])
                answer = "ok" if left else "not_joined"
            case _:
                self.members[step[1]].kill()
                await self.begin(step[1])
                answer = "x"
        await wait_all_tasks_blocked()
        told = (await self.watcher.call("all"))[seen:]
        return " ".join([answer, *sorted(self.events(told)), *self.everybody()])

    def events(self, told: list[Any]) -> Iterator[str]:
        for event in told:
            for ref in event.refs:
                yield f"{'+' if isinstance(event, JoinedGroup) else '-'}{event.group}{self.numbers[ref]}"

    def everybody(self) -> Iterator[str]:
        for group in sorted(map(str, self.groups.groups())):
            yield f"{group}={''.join(sorted(self.numbers[ref] for ref in self.groups.members(group)))}"


def test_groups_do_what_pg_does() -> None:
    scripts = recorded()
    assert len(scripts) > 250

    async def play_all() -> None:
        groups = Groups("recorded")
        async with System.open("recorded", [GroupsSpec("groups", groups)]) as system:
            for script, transcript in scripts.items():
                assert await Player(system, groups).play(script) == transcript, script

    trio.run(play_all, clock=trio.testing.MockClock(autojump_threshold=0))


if __name__ == "__main__":
    dice = random.Random(25)
    for _ in range(300):
        steps = []
        for _ in range(dice.randint(3, 12)):
            who = "".join(dice.choice("123") for _ in range(dice.choice((1, 1, 2, 3))))
            steps.append(
                dice.choice([f"j{dice.choice('ab')}{who}"] * 3 + [f"l{dice.choice('ab')}{who}"] * 2 + [f"x{who[0]}"])
            )
        sys.stdout.write(" ".join(steps) + "\n")
