"""What an old authority tells of a departure: when it began, how often it asked again, and how it ended."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.actors import System
from batonpass.authority.fence import Fence
from batonpass.authority.machines.source import Mode
from batonpass.authority.node.spans import DEPARTURE, FREEZE, STAGING
from batonpass.authority.wire.transfer import StageDiscard
from tests.authority.node.test_spans import Ear
from tests.simserver.stage import BALL
from tests.simserver.transfer.source.test_departures import HERE, PLAN, THERE, TRANSFER, Scene, activated, refusal

STAGED = replace(PLAN, mode=Mode.STAGED)


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def scene(system: System, ear: Ear) -> Scene:
    return Scene(system, ear.spans)


def stop(ear: Ear, prefix: tuple[str, ...]) -> tuple[Mapping[str, float], Mapping[str, Any]]:
    """The one that there is."""
    ((measurements, metadata),) = [(m, metadata) for event, m, metadata in ear.heard if event == (*prefix, "stop")]
    return measurements, metadata


async def test_it_is_told_when_the_entity_stands_still_and_while_nothing_is_decided(scene: Scene, ear: Ear) -> None:
    scene.spawn()
    scene.departures.begin(PLAN)
    assert [event for event, _, _ in ear.heard] == [(*DEPARTURE, "start"), (*FREEZE, "start")]
    _, measurements, metadata = ear.heard[0]
    told = {key: metadata[key] for key in ("transfer_id", "entity", "source", "target", "case", "mode", "fence")}
    assert told == {
        "transfer_id": TRANSFER, "entity": BALL, "source": HERE, "target": THERE, "case": "2", "mode": "eager",
        "fence": Fence(1),
    }  # fmt: skip
    assert measurements["state_bytes"] > 0


async def test_one_that_is_refused_is_resumed_and_says_why(scene: Scene, ear: Ear) -> None:
    scene.spawn()
    scene.departures.begin(PLAN)
    scene.departures.replied(*refusal())
    assert [stop(ear, prefix)[1]["outcome"] for prefix in (DEPARTURE, FREEZE)] == ["resumed", "resumed"]
    assert stop(ear, DEPARTURE)[1]["reason"] == "denied"
    assert stop(ear, FREEZE)[0]["gap_ticks"] >= 0
    scene.departures.replied(*refusal())
    assert ear.spans.open == 0


async def test_one_that_is_taken_is_retired(scene: Scene, ear: Ear) -> None:
    scene.spawn()
    scene.departures.begin(PLAN)
    scene.departures.activated(*activated())
    scene.departures.activated(*activated())
    assert [stop(ear, prefix)[1]["outcome"] for prefix in (DEPARTURE, FREEZE)] == ["retired", "retired"]
    assert stop(ear, DEPARTURE)[0]["retransmissions"] == 0


async def test_without_a_lease_what_is_refused_is_dropped(scene: Scene, ear: Ear) -> None:
    scene.spawn()
    scene.departures.begin(PLAN)
    scene.departures.step_down()
    scene.departures.replied(*refusal())
    assert stop(ear, DEPARTURE)[1]["outcome"] == "dropped"


async def test_what_had_to_be_asked_again_is_counted(scene: Scene, ear: Ear, autojump_clock: MockClock) -> None:
    scene.spawn()
    async with scene.served():
        scene.departures.begin(PLAN)
        await trio.sleep(3)
    scene.departures.activated(*activated())
    assert stop(ear, DEPARTURE)[0]["retransmissions"] == scene.requests() - 1 > 0


async def test_a_state_that_nobody_stages_is_given_up(scene: Scene, ear: Ear, autojump_clock: MockClock) -> None:
    scene.spawn()
    async with scene.served():
        scene.departures.begin(STAGED)
        await trio.sleep(5)
        scene.departures.replied(*refusal())
    assert stop(ear, STAGING)[1]["outcome"] == "given_up"
    assert stop(ear, DEPARTURE)[1]["outcome"] == "resumed"
    assert any(isinstance(message, StageDiscard) for _, message in scene.mail.sent)


async def test_who_listens_later_hears_no_stop_without_a_start(system: System) -> None:
    late = Ear([])
    scene = Scene(system, late.spans)
    scene.spawn()
    scene.departures.begin(PLAN)
    late.telemetry.attach("late", (*DEPARTURE, "stop"), late.hear)
    scene.departures.activated(*activated())
    assert late.heard == []
