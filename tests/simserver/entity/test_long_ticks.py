"""What a world takes longer for than a lease lasts counts as a death of its entity, and stops at the second one."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from batonpass.actors.core.system import System
from batonpass.authority.fence import Fence
from batonpass.authority.machines.lease import Holder, LeaseTerms, Renewed
from batonpass.authority.model.ownership import Ownership
from batonpass.authority.wire.recovery import TOO_OFTEN
from batonpass.simserver.entity.crash_guard import CrashGuard
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.state import Life
from batonpass.simserver.entity.table import Holdings, WorldFailed
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.server.load_report import _group, _is_immovable
from tests.simserver.entity.test_crash_guard import DIED_TWICE
from tests.simserver.entity.test_table import Written
from tests.simserver.stage import ADA, BALL, Stage, feed, inspect, ticks

pytestmark = pytest.mark.usefixtures("either_kind")

TERMS = LeaseTerms(6_000_000_000)
LONG_S = 7


class Slow:
    """Takes seven seconds for whatever it is told to."""

    schema_version = 1

    def __init__(self) -> None:
        self.stage: Any = None
        self.slow = ""
        self.kept: dict[str, Any] = {"slow": self}
        self.participants: dict[str, Any] = {}

    def _takes(self, method: str, s: float = LONG_S) -> None:
        if method == self.slow:
            self.stage.now_ns += round(s * 1e9)

    def spawn(self, kind: str, params: dict[str, Any]) -> Any:
        self._takes("spawn")
        return {"applied": 0}

    def step(self, state: Any, inputs: Any, dt_s: float) -> Any:
        self._takes("step" if inputs else "step without inputs")
        return {"applied": state["applied"] + len(inputs)}

    def destination(self, state: Any, here: str, ticks_here: int) -> str | None:
        self._takes("destination")
        return None

    def may_sleep(self, state: Any) -> bool:
        self._takes("may_sleep")
        return False

    def migrate(self, kind: str, state: Any, from_version: int) -> Any:
        self._takes("migrate")
        return state

    def affinity(self, state: Any) -> str:
        self._takes("affinity")
        return ""

    def immovable(self, state: Any) -> bool:
        self._takes("immovable")
        return False

    def dehydrate(self, entity: str, state: Any) -> Any:
        self._takes("dehydrate")
        return b"warm"

    def rehydrate(self, entity: str, state: Any, data: Any) -> None:
        self._takes("rehydrate")

    def release(self, entity: str) -> None:
        self._takes("release")


class Server:
    """A simulation server with a lease, of which the test says when it is renewed; its box outlives the lease."""

    def __init__(self, system: Any, box: CrashGuard | None = None, world: Slow | None = None) -> None:
        self.world = world or Slow()
        self.world.participants = self.world.kept
        self.stage = self.world.stage = Stage(system, world=self.world)
        keeper: Any = LeaseKeeper.__new__(LeaseKeeper)
        keeper.holder, keeper.log_went_back = Holder(1), ""
        self.keeper: LeaseKeeper = keeper
        environment = self.stage.environment
        object.__setattr__(environment, "may_act", keeper.may_act)
        object.__setattr__(environment, "is_lost_by", keeper.is_lost_by)
        object.__setattr__(environment, "crash_guard", box or CrashGuard(None, float))
        self.box = environment.crash_guard
        self.renewed()

    def renewed(self) -> None:
        self.keeper.holder.handle(Renewed(self.stage.now_ns, TERMS), self.stage.now_ns)

    def life(self, fence: Fence = Fence(1), snapshot: EntitySnapshot | None = None) -> Life:  # noqa: B008 — immutable
        return self.stage.life(fence, snapshot or self.stage.fresh())


def looked_at(life: Life) -> Any:
    return SimpleNamespace(id=BALL, life=life)


def migrated(server: Server, life: Life) -> None:
    server.world.schema_version += 1
    life._bring_up_to_date()


def begun_with_parts(server: Server, life: Life) -> None:
    frozen = life.freeze()
    assert frozen is not None
    came = server.life(Fence(life.fence.epoch), EntitySnapshot.decode(frozen.state))
    came.rehydrate()


ASKED: dict[str, Callable[[Server, Life], object]] = {
    "migrate": migrated,
    "dehydrate": lambda _, life: life.at_rest(),
    "rehydrate": begun_with_parts,
    "release": lambda _, life: life.end(),
    "may_sleep": lambda _, life: life._sleep_if_it_may(),
    "affinity": lambda server, life: _group(server.world, looked_at(life)),
    "immovable": lambda server, life: _is_immovable(server.world, looked_at(life)),
}


@pytest.mark.parametrize("method", sorted(ASKED))
def test_failures_row_41_whatever_a_world_is_asked_that_costs_the_lease_counts_as_a_death(method: str) -> None:
    server = Server(None)
    life = server.life()
    server.world.slow = method
    ASKED[method](server, life)
    assert server.box.deaths(BALL) == [1]
    assert server.stage.counts["lease_lost_at_work"] == 1
    assert server.box._page[0] == 0


@pytest.mark.parametrize("method", ["step", "destination", "may_sleep"])
async def test_failures_row_41_a_tick_that_costs_the_lease_twice_stands_still_also_if_it_is_renewed_in_time(
    system: System, method: str
) -> None:
    server = Server(system)
    actor = server.stage.start()
    for time in range(1, TOO_OFTEN + 1):
        assert not actor.life.quarantine_reason
        server.renewed()
        server.world.slow = method
        feed(actor, 1)
        ticks(actor)
        seen = await inspect(actor)
        assert seen["sources"].get(ADA, {"applied": 0})["applied"] == 0, "that tick has not happened"
        assert server.box.deaths(BALL) == [1] * time
    assert actor.life.quarantine.wherever == f"{DIED_TWICE}: {LONG_S}.0 s the last time"
    server.renewed()
    ticks(actor)
    seen = await inspect(actor)
    assert (seen["tick"], seen["pending_inputs"]) == (1, 1), "it kept its input"
    server.world.slow = ""
    assert actor.life.release()
    ticks(actor)
    assert (await inspect(actor))["sources"][ADA]["applied"] == 1
    assert not server.box.deaths(BALL)


@pytest.mark.parametrize("waits_s", [0.0, 0.5, 5.0], ids=["at once", "for half a second", "until the lease is over"])
async def test_what_the_lease_ran_out_under_for_another_reason_is_no_death_of_whoever_was_in_its_tick(
    system: System, waits_s: float
) -> None:
    """Home did not renew it: a renewal was due before this tick began."""
    server = Server(system)
    actor = server.stage.start()
    server.stage.now_ns += TERMS.holder_ns - 100_000_000 + round(waits_s * 1e9)
    server.world._takes = lambda method, s=0.0: setattr(  # type: ignore[method-assign]
        server.stage, "now_ns", server.stage.now_ns + (200_000_000 if method.startswith("step") else 0)
    )
    ticks(actor)
    await inspect(actor)
    assert server.stage.counts["ticks_without_lease"] == 1
    assert server.box.deaths(BALL) == []


async def test_a_long_tick_of_a_server_that_keeps_its_lease_is_no_death(system: System) -> None:
    server = Server(system)
    actor = server.stage.start()
    server.world.slow = "step without inputs"
    server.keeper.holder.until_ns += 60_000_000_000
    ticks(actor)
    assert (await inspect(actor))["tick"] == 1
    assert server.box.deaths(BALL) == []


def test_of_many_entities_of_one_tick_the_one_that_was_in_it_is_known_and_no_other() -> None:
    server = Server(None)
    lives = [server.stage.life(Fence(3), server.stage.fresh(), f"alpha.e{n}") for n in range(5)]
    for life in lives:
        began_ns = life.enter()
        server.stage.now_ns += (LONG_S if life is lives[2] else 0) * 1_000_000_000
        life.leave(began_ns)
    assert [server.box.deaths(life.id) for life in lives] == [[], [], [3], [], []]


def test_nothing_is_spawned_whose_spawn_cost_the_lease() -> None:
    server = Server(None)
    holdings = Holdings(server.stage.environment, Written())
    server.world.slow = "spawn"
    with pytest.raises(WorldFailed, match=r"it took 7\.0 s, and its server lost its lease by that"):
        holdings.spawn(BALL, "ball", {}, Fence(1), Ownership(ADA, 1))
    assert len(holdings) == 0
    assert server.box._page[0] == 0


def test_that_it_cost_a_lease_is_known_after_a_restart_and_where_home_tells_of_it(tmp_path: Path) -> None:
    server = Server(None, CrashGuard(tmp_path, float))
    life = server.life()
    server.world.slow = "dehydrate"
    life.at_rest()
    assert CrashGuard(tmp_path, float).deaths(BALL) == [1]
    there = Server(None, CrashGuard(tmp_path / "elsewhere", float))
    there.box.heard(BALL, [1])
    came = there.life(Fence(3))
    there.world.slow = "dehydrate"
    came.at_rest()
    assert came.quarantine_reason.startswith(DIED_TWICE)
    assert there.box.deaths(BALL) == [1, 3], "and says so to home"


def test_work_within_other_work_is_written_down_again_when_that_is_done() -> None:
    server = Server(None)
    life = server.life()
    box = server.box
    with box.simulating("alpha.outer", 4):
        with life.at_work():
            assert bytes(box._page[1 : 1 + box._page[0]]) == f"{BALL} 1".encode()
        assert bytes(box._page[1 : 1 + box._page[0]]) == b"alpha.outer 4"
    assert box._page[0] == 0
