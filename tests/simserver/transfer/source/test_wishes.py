"""What a world wants for its entity and does not get is tried ever more seldom, with one line for each reason."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.errors import Reason
from batonpass.authority.limits import MAX_STATE_BYTES
from batonpass.authority.model.records import Role
from batonpass.simserver.transfer.source import backoff
from batonpass.simserver.transfer.source.backoff import FORGET_NS, LONGEST_WISH_NS, MAX_TARGETS, RetryBackoff
from batonpass.simserver.transfer.source.departure import DeparturePlan
from tests.simserver.stage import BALL
from tests.simserver.transfer.source.test_departures import HERE, THERE, Scene, activated, refused, scene

__all__ = ["scene"]

NOWHERE, HOME, PLAYER = "alpha.s9", "alpha.h1", "alpha.ada"
TRIED_S = [0, 1, 3, 7, 15, 25, 35, 45, 55]
"""After one second, then after twice as long each time, then every ten seconds."""


async def ticking(scene: Scene, seconds: float, destination: Callable[[], str], tick: Callable[[], None]) -> None:
    """The world says where it wants the entity with each tick, and `tick` is what happens in between."""
    end_s = trio.current_time() + seconds
    while trio.current_time() < end_s:
        scene.departures.wants_to_go(BALL, destination())
        tick()
        await trio.sleep(0.05)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if BALL in message]


@pytest.mark.parametrize("name", [NOWHERE, HOME, PLAYER])
async def test_a_name_of_no_simulation_server_is_looked_up_ever_more_seldom_and_nobody_else_is_asked(
    scene: Scene, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock, name: str
) -> None:
    caplog.set_level("INFO")
    holding, asked_s = scene.spawn(), list[int]()
    scene.mail.roles |= {HOME: Role.HOMESERVER, PLAYER: Role.PLAYER}
    scene.rooms.reason = None
    began_s, declined = trio.current_time(), 0

    def tick() -> None:
        nonlocal declined
        if scene.counts[f"declined_{Reason.UNKNOWN_TARGET}"] > declined:
            declined += 1
            asked_s.append(round(trio.current_time() - began_s))

    async with scene.served():
        await ticking(scene, 60, lambda: name, tick)
    assert asked_s == TRIED_S
    assert (holding.life.frozen, scene.rooms.kept, scene.mail.sent, scene.mail.asked) == (False, [], [], [])
    assert lines(caplog) == [f"{BALL} does not go to {name}: unknown_target"]


async def test_what_home_refuses_stands_still_for_it_ever_more_seldom_and_says_each_reason_once(
    scene: Scene, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level("INFO")
    holding, frozen_s, reason = scene.spawn(), list[int](), "denied"
    began_s = trio.current_time()

    def refuse() -> None:
        if holding.life.frozen:
            frozen_s.append(round(trio.current_time() - began_s))
            transfer_id = scene.departures._leaving[BALL].plan.transfer_id
            scene.departures.replied(*refused(transfer_id, holding.fence.epoch + 1, reason))

    async with scene.served():
        await ticking(scene, 60, lambda: THERE, refuse)
        assert frozen_s == TRIED_S
        reason = "target_down"
        await ticking(scene, 20, lambda: THERE, refuse)
        assert [line.partition("(")[2] for line in lines(caplog)] == ["denied)", "target_down)"]
        await trio.sleep((LONGEST_WISH_NS + FORGET_NS) / 1e9)
        await ticking(scene, 0.5, lambda: THERE, refuse)
    assert len(lines(caplog)) == 3, "nobody remembers it"


async def test_what_the_target_refuses_is_asked_ever_more_seldom_until_it_has_room(
    scene: Scene, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level("INFO")
    holding = scene.spawn()
    scene.rooms.reason = Reason.CAPACITY.value
    async with scene.served():
        await ticking(scene, 60, lambda: THERE, lambda: None)
        assert (scene.counts["declined_capacity"], holding.life.frozen) == (len(TRIED_S), False)
        assert lines(caplog) == [f"{BALL} does not go to {THERE}: capacity"]
        scene.rooms.reason = ""
        await ticking(scene, LONGEST_WISH_NS / 1e9, lambda: THERE, lambda: None)
        assert holding.life.frozen


async def test_where_else_its_world_wants_it_is_tried_at_once_and_has_a_line_of_its_own(
    scene: Scene, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level("INFO")
    scene.spawn()
    scene.rooms.reason = Reason.CAPACITY.value
    async with scene.served():
        for name in (NOWHERE, THERE):
            await ticking(scene, 0.5, lambda name=name: name, lambda: None)  # type: ignore[misc]
    assert lines(caplog) == [
        f"{BALL} does not go to {NOWHERE}: unknown_target",
        f"{BALL} does not go to {THERE}: capacity",
    ]


async def test_a_world_that_changes_its_mind_with_each_tick_gains_nothing_by_that(
    scene: Scene, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    caplog.set_level("INFO")
    scene.spawn()
    names = [f"alpha.s{number}" for number in range(10, 10 + MAX_TARGETS)]
    said = iter(names * 1000)
    async with scene.served():
        await ticking(scene, 60, lambda: next(said), lambda: None)
    assert len(lines(caplog)) == MAX_TARGETS
    assert len(scene.mail.looked_up) <= len(TRIED_S) * MAX_TARGETS


async def test_what_is_ordered_and_what_drains_are_refused_does_not_silence_its_world(scene: Scene) -> None:
    holding = scene.spawn()
    for plan in (
        DeparturePlan("transfer-8", BALL, THERE, ordered=True),
        DeparturePlan("transfer-9", BALL, THERE, in_company=True),
    ):
        scene.departures.begin(plan)
        assert holding.life.frozen
        scene.departures.replied(*refused(plan.transfer_id, holding.fence.epoch + 1, "denied"))
    scene.departures.wants_to_go(BALL, THERE)
    assert holding.life.frozen


async def test_what_came_back_is_sent_on_at_once(scene: Scene) -> None:
    scene.spawn()
    scene.rooms.reason = Reason.CAPACITY.value
    scene.departures.wants_to_go(BALL, THERE)
    assert scene.departures.retry_backoff.stay(BALL, THERE) is not None
    scene.rooms.reason = ""
    scene.departures.begin(DeparturePlan("transfer-1", BALL, THERE, ordered=True))
    scene.departures.activated(*activated())
    assert scene.departures.retry_backoff.stay(BALL, THERE) is None


async def test_a_state_that_is_too_large_is_said_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for _ in range(3):
        assert scene.departures.retry_backoff.is_too_large(BALL, MAX_STATE_BYTES + 1)
    assert len(lines(caplog)) == 1


# --- looking up what a world names ------------------------------------------------------------------------------------


async def test_of_many_that_want_to_go_to_a_name_that_is_not_known_home_is_asked_once(
    scene: Scene, autojump_clock: MockClock
) -> None:
    told: list[str] = []
    async with scene.served():
        for _ in range(100):
            scene.departures._preparation._targets.ask(NOWHERE, told.append)
        await trio.sleep(0.5)
        scene.departures._preparation._targets.ask(NOWHERE, told.append)
        assert (told, scene.mail.looked_up) == ([Reason.UNKNOWN_TARGET] * 101, [NOWHERE])
        await trio.sleep(0.6)
        scene.mail.roles[NOWHERE] = Role.SIMSERVER
        scene.departures._preparation._targets.ask(NOWHERE, told.append)
        assert told[101:] == [""], "it has registered"


async def test_while_home_cannot_be_asked_who_that_is_its_entity_stays(scene: Scene, autojump_clock: MockClock) -> None:
    told: list[str] = []
    scene.mail.is_open = False
    async with scene.served():
        scene.departures._preparation._targets.ask(NOWHERE, told.append)
        await trio.sleep(0.1)
    assert told == [Reason.HOME_UNREACHABLE]


async def test_what_is_looked_up_while_nobody_serves_is_when_somebody_does(
    scene: Scene, autojump_clock: MockClock
) -> None:
    holding = scene.spawn()
    scene.mail.roles.clear()
    scene.departures.wants_to_go(BALL, THERE)
    assert (scene.departures.is_under_way(BALL), scene.mail.looked_up) == (True, [])
    scene.mail.roles[THERE] = Role.SIMSERVER
    async with scene.served():
        await trio.sleep(0.1)
        assert holding.life.frozen


async def test_of_names_that_are_no_servers_a_few_are_remembered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(scene.departures._preparation._targets._unknown_until_ns, "max_entries", 4)
    nobody: Any = lambda _reason: None  # noqa: E731
    async with scene.served():
        for number in range(20):
            scene.departures._preparation._targets.ask(f"alpha.x{number}", nobody)
        await trio.sleep(0.1)
    assert len(scene.departures._preparation._targets._unknown_until_ns) <= 4
    assert HERE not in scene.mail.looked_up


async def test_one_entity_too_many_makes_the_longest_refused_one_be_forgotten_and_no_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "MAX_ENTITIES", 3)
    retry_backoff = RetryBackoff(scene.departures._clock)
    names = [f"alpha.e{number}" for number in range(4)]
    for name in (*names[:3], names[0], names[3]):
        retry_backoff.refused(name)
        retry_backoff.wished_in_vain(name, THERE, Reason.CAPACITY)
        retry_backoff.is_too_large(name, MAX_STATE_BYTES + 1)
    assert [retry_backoff.may_be_moved(name) for name in names] == [False, True, False, False]
    assert [retry_backoff.stay(name, THERE) is None for name in names] == [False, True, False, False]
    assert retry_backoff.too_large(names) == 3
