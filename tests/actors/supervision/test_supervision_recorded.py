"""Supervisors, and the model they are tested against, do what OTP was recorded to do."""

import pytest
import trio
import trio.testing

from batonpass.actors import System
from tests.actors.supervision.model import World
from tests.actors.supervision.play import Player
from tests.actors.supervision.script import read_script, recorded

SCRIPTS = recorded()


def modelled(script: str) -> str:
    top, steps = read_script(script)
    world = World(top)
    segments = [world.log]
    if world.top is not None:
        for step in steps:
            segments.append(world.do(step))
            if not world.top.alive:
                break
        else:
            segments.append(world.seen())
    return " | ".join(map(" ".join, segments))


async def played(script: str, system: System) -> str:
    top, steps = read_script(script)
    player = Player(system)
    segments = [await player.start(top)]
    if player.top is not None:
        for step in steps:
            segments.append(await player.do(step))
            if not player.top.alive:
                break
        else:
            segments.append(await player.seen())
        if player.top.alive:
            await player.top.stop("shutdown")
    return " | ".join(map(" ".join, segments))


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) == 400


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_model(script: str) -> None:
    assert modelled(script) == SCRIPTS[script]


def test_the_supervisors() -> None:
    async def play_all() -> None:
        for script, transcript in SCRIPTS.items():
            async with System.open("recorded") as system:
                assert await played(script, system) == transcript, script

    trio.run(play_all, clock=trio.testing.MockClock(autojump_threshold=0))
