"""Somebody wants an entity elsewhere while it is leaving, or while who has to begin dies: it is not forgotten."""

from batonpass.authority.model.records import Phase
from tests.scenarios.simulation.servers.test_simulated_abroad import FAR, World

NEAR_TOO = "alpha.s2"


def phases(world: World) -> list[Phase]:
    """Of everything that was asked for, in turn."""
    (home,) = (home for home in world.cluster.homes_of("alpha") if home.parts.leases.granter.office)
    found = [home.store.transfer(f"transfer-{number:06d}") for number in range(1, world.moves + 1)]
    return [transfer.phase for transfer in found if transfer is not None]


def test_what_is_asked_for_while_the_entity_is_leaving_is_done_afterwards() -> None:
    world = World()
    for target in (FAR, NEAR_TOO, FAR, NEAR_TOO):
        world.order(target)
    world.until(lambda: len(phases(world)) == 4 and Phase.PERMITTED not in phases(world))
    assert set(phases(world)) <= {Phase.DONE, Phase.COMMITTED, Phase.REFUSED}
    assert phases(world).count(Phase.DONE) >= 2
    world.comes_to_rest()


def test_what_who_should_begin_took_along_is_begun_by_who_goes_on() -> None:
    world = World()
    world.passing(2.0)
    authority = world.authority
    world.order(FAR)
    world.until(lambda: phases(world) == [Phase.PERMITTED], step_s=0.0005)
    world.kill(authority)
    world.until(lambda: world.is_simulated_by(FAR))
    world.until(lambda: phases(world) == [Phase.DONE])
    world.comes_to_rest()
