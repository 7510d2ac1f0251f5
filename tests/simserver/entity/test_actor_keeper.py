"""Every entity that is held has an actor, whoever is killed."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

import pytest
import trio

from batonpass.actors import (
    ActorSpec,
    CallTimeout,
    DynamicSupervisor,
    DynamicSupervisorSpec,
    NoProc,
    Strategy,
    SupervisorSpec,
    System,
)
from batonpass.authority.fence import Fence
from batonpass.simserver.entity.actor import Inspect, TickNow
from batonpass.simserver.entity.actor_keeper import ENTITIES, ActorKeeper, entity_name
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holding, Holdings
from tests.actors.servers import Last
from tests.simserver.entity.test_table import Written
from tests.simserver.stage import BALL, Stage


@dataclass
class Population:
    system: System
    holdings: Holdings

    async def looked_after(self) -> None:
        """Wait until everybody has an actor, and nobody else has."""
        with trio.fail_after(90):
            while not all(holding.life.has_actor for holding in self.holdings) or await self.actors() != len(
                self.holdings
            ):
                await trio.lowlevel.checkpoint()

    async def actors(self) -> int:
        try:
            return len(await DynamicSupervisor.which_children(self.system.named(ENTITIES)))
        except NoProc:
            return -1

    def spawn(self, *names: str) -> list[Holding]:
        return [self.holdings.spawn(name, "ball", {}, Fence(1)) for name in names]


async def populated(system: System) -> Population:
    environment = Stage(system).environment
    holdings = Holdings(environment, Written())
    family = (
        DynamicSupervisorSpec(ENTITIES, name=ENTITIES, max_restarts=100),
        ActorSpec("actor_keeper", ActorKeeper, (environment, holdings), name="actor_keeper"),
    )
    await system.start_child(SupervisorSpec("population", family, strategy=Strategy.REST_FOR_ONE, max_restarts=100))
    return Population(system, holdings)


@pytest.fixture
async def population() -> AsyncIterator[Population]:
    async with System.open("alpha.s1") as system:
        yield await populated(system)


async def test_an_entity_has_an_actor_a_moment_after_it_came_and_none_after_it_left(population: Population) -> None:
    (holding,) = population.spawn(BALL)
    await population.looked_after()
    assert population.system.whereis(entity_name(BALL)) is holding.life.ref
    assert (await holding.call(Inspect()))["id"] == BALL
    population.holdings.leave(BALL, "alpha.s2", Fence(2))
    assert population.system.whereis(entity_name(BALL)) is None
    await population.looked_after()


async def test_those_that_begin_together_are_attended_to_together(
    population: Population, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: list[int] = []
    attend_all = ActorKeeper._attend_all

    async def counted(self: ActorKeeper, lives: Iterable[Life]) -> None:
        together = list(lives)
        # Those that it found there when it began are told of once more.
        if without := sum(not life.has_actor for life in together):
            at_once.append(without)
        await attend_all(self, together)

    monkeypatch.setattr(ActorKeeper, "_attend_all", counted)
    population.spawn(*(f"alpha.e{number}" for number in range(5)))
    await population.looked_after()
    population.spawn("alpha.late")
    await population.looked_after()
    assert at_once == [5, 1]


async def test_it_may_leave_and_come_back_before_anybody_has_looked(population: Population) -> None:
    population.spawn(BALL)
    population.holdings.leave(BALL, "alpha.s2", Fence(2))
    (back,) = population.spawn(BALL)
    await population.looked_after()
    assert (await back.call(Inspect()))["id"] == BALL


@pytest.mark.parametrize("victim", [entity_name(BALL), ENTITIES, "actor_keeper"])
async def test_whoever_is_killed_all_have_actors_again(population: Population, victim: object) -> None:
    names = [BALL, *(f"alpha.ball-{number}" for number in range(20))]
    holdings = population.spawn(*names)
    await population.looked_after()
    for holding in holdings:
        holding.cast(TickNow())
        assert (await holding.call(Inspect()))["tick"] == 1
    for _ in range(3):
        await population.looked_after()
        ref = population.system.whereis(victim)
        assert ref is not None
        ref.kill()
        population.spawn(f"alpha.new-{len(population.holdings)}")
    await population.looked_after()
    for holding in holdings:
        assert (await holding.call(Inspect()))["tick"] == 1


async def test_who_left_while_its_actor_was_being_restarted_gets_none(population: Population) -> None:
    (holding,) = population.spawn(BALL)
    await population.looked_after()
    assert holding.life.ref is not None
    holding.life.ref.kill()
    population.holdings.leave(BALL, "alpha.s2", Fence(2))
    await population.looked_after()
    with pytest.raises(NoProc):
        await holding.call(Inspect())


async def test_a_question_waits_for_the_next_actor_and_not_for_ever(system: System) -> None:
    holding = Holdings(Stage(system).environment, Written()).spawn(BALL, "ball", {}, Fence(1))
    holding.cast(TickNow())
    with pytest.raises(CallTimeout):
        await holding.call(Inspect(), timeout_s=0.02)


async def test_who_comes_while_the_server_stops_gets_no_actor_and_nobody_is_alarmed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with System.open("alpha.s1") as system:
        population = await populated(system)
        population.spawn(BALL)
        await population.looked_after()
        await system.start_child(ActorSpec("last", Last, lambda: population.spawn("alpha.late-1", "alpha.late-2")))
    assert len(population.holdings) == 3
    assert caplog.text == ""
