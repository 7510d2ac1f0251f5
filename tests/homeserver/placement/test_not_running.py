"""What stands still is known from the reports of its server, and a drain stops whose entities do not run elsewhere."""

from typing import Any

import pytest
import trio

from batonpass.authority.wire.placement import MAX_STILL, Load, StillRow
from batonpass.homeserver.placement.not_running import NotRunning
from tests.homeserver.served import DEADLINE_S, Home
from tests.homeserver.transfer.test_refused_orders import COOL, SOURCE, Instance

S = 1_000_000_000
WHY = "ValueError: cannot migrate ball from 1"


def load(quarantined: int, untaken: int = 0) -> Load:
    fixed: dict[str, Any] = {"tick_ppm": 0, "leaving": 0, "inputs_per_s": 0, "bytes_per_s": 0}
    return Load(entities=quarantined + untaken, quarantined=quarantined, untaken=untaken, **fixed)


def still(entity: str, *, still_ms: int = 0, failed_here: bool = False) -> StillRow:
    return StillRow(entity=entity, why=WHY, still_ms=still_ms, failed_here=failed_here)


def test_what_failed_on_a_server_is_known_until_its_next_report_and_what_stands_still_otherwise_is_not() -> None:
    known = NotRunning()
    for server, name, still_ms in ((COOL, "alpha.e0", 1000), (SOURCE, "alpha.e1", 2000)):
        rows = [still(name, still_ms=still_ms, failed_here=True), still("alpha.old")]
        known.heard(server, rows, 10 * S)
    assert [(one.row.entity, one.server) for one in known.failed_since(0)] == [("alpha.e1", SOURCE), ("alpha.e0", COOL)]
    assert [one.row.entity for one in known.failed_since(9 * S)] == ["alpha.e0"]
    known.heard(COOL, [still("alpha.old")], 11 * S)
    assert [one.row.entity for one in known.failed_since(0)] == ["alpha.e1"]


class Upgraded(Instance):
    """A server is drained onto one of the next release, whose world fails on whatever comes."""

    def __init__(self, schema_version: int = 2) -> None:
        super().__init__()
        self.schema_version = schema_version
        self.works = False
        self.rooms = True
        self.held.pop("alpha.s3")

    def load(self, name: str) -> Load:
        found = super().load(name) if name in self.held else load(0)
        return found.model_copy(update={"schema_version": self.schema_version if name == COOL else 1})

    def report(self) -> None:
        for name in self.held:
            failed = [] if name == SOURCE or self.works else self.held[name]
            rows = [still(entity, still_ms=10, failed_here=True) for entity in failed[:MAX_STILL]]
            self.balancer.reported(name, self.load(name), rows)
            for entity in self.held[name]:
                key = ("entities", entity)
                self.rows.put(key, self.rows.get(key) | {"authority": name})


async def rounds(instance: Upgraded, count: int = 20) -> None:
    instance.report()
    for _ in range(count):
        await instance.balancer._round()
        instance.clock.now_s += 0.25
        instance.report()


async def test_failures_row_28_a_drain_stops_with_the_first_that_does_not_run_on_a_server_of_another_world(
    caplog: pytest.LogCaptureFixture,
) -> None:
    instance = Upgraded()
    for number in range(20):
        instance.put(f"alpha.e{number:02d}")
    await rounds(instance)
    assert len(instance.held[COOL]) == 1, "the others run on where they are"
    (drain,) = instance.balancer._store.drains()
    text = f"alpha.e00 has not run on {COOL} since it came there: {WHY}"
    assert instance.balancer.why_stopped(drain) == text
    assert caplog.text.count(f"the drain of {SOURCE} stops: {text}") == 1
    assert await instance.balancer._round() is False, "nobody looks again ten times a second"
    instance.works = True
    await rounds(instance)
    assert instance.balancer.why_stopped(drain) == ""
    assert not instance.held[SOURCE], "it was released, and runs"


async def test_a_drain_stops_too_if_what_it_moved_to_a_server_of_the_same_version_does_not_run() -> None:
    instance = Upgraded(schema_version=1)
    for number in range(1000):
        instance.put(f"alpha.e{number:04d}")
    await rounds(instance, 8)
    gone = len(instance.held[COOL])
    assert gone
    await rounds(instance, 8)
    assert len(instance.held[COOL]) == gone < 1000


async def test_what_failed_before_a_drain_began_does_not_stop_it() -> None:
    instance = Upgraded()
    instance.put("alpha.e0")
    (drain,) = instance.balancer._store.drains()
    began_s = instance.clock.unix_s() - drain.since_s
    old = still("alpha.old", still_ms=round(began_s * 1000) + 1000, failed_here=True)
    instance.balancer.reported(COOL, instance.load(COOL), [old])
    assert instance.balancer.why_stopped(drain) == ""
    instance.balancer.reported(COOL, instance.load(COOL), [old.model_copy(update={"still_ms": 1})])
    assert "alpha.old has not run" in instance.balancer.why_stopped(drain)


async def test_what_stands_still_is_shown_with_its_reason_and_counted_with_the_load(world: Home) -> None:
    async def counted() -> tuple[int, int] | None:
        """None while its lease is not renewed, on a machine that is busy."""
        rows = {row["server"]: row for row in (await world.api.get("/v1/servers/load"))["servers"]}
        row = rows.get("alpha.s1")
        return None if row is None else (row["quarantined"], row["schema_version"])

    async def until_counted(quarantined: int) -> None:
        with trio.fail_after(DEADLINE_S):
            while True:
                if await counted() == (quarantined, 1):
                    return

    ada = await world.player("alpha.ada")
    for number in range(2):
        await world.entity(f"alpha.ball-{number}", ada, "alpha.s1")
    holding = world.simservers["alpha.s1"].holdings.get("alpha.ball-0")
    assert holding is not None
    await until_counted(0)
    holding.life.enter_quarantine(WHY)
    await until_counted(1)
    standings = [(await world.api.get(f"/v1/entities/alpha.ball-{number}"))["standing"] for number in range(2)]
    assert standings == ["quarantined", "simulated"]
    assert WHY in (await world.api.get("/v1/entities/alpha.ball-0/why"))["text"]
    assert holding.life.release()
    await until_counted(0)


async def test_why_a_drain_has_stopped_is_in_its_view(world: Home) -> None:
    ada = await world.player("alpha.ada")
    for number in range(3):
        await world.entity(f"alpha.ball-{number}", ada, "alpha.s1")
    world_there: Any = world.simservers["alpha.s2"].environment.world
    original = world_there.step

    def fails(*_: Any) -> Any:
        raise ValueError("cannot do that")

    world_there.step = fails
    operator = {"authorization": f"Bearer {(world.directory / 'operator').read_text()}"}
    view = await world.api.do("POST", "/v1/servers/alpha.s1/drain", headers=operator, token=False)
    assert view["stopped"] == ""
    with trio.fail_after(60.0):
        while not view["stopped"]:
            await trio.sleep(0.1)
            view = await world.api.get("/v1/servers/alpha.s1/drain")
    assert "has not run on alpha.s2 since it came there: ValueError: cannot do that" in view["stopped"]
    world_there.step = original
    for holding in world.simservers["alpha.s2"].holdings:
        holding.life.release()
    with trio.fail_after(60.0):
        while view["stopped"] or not view["empty"]:
            await trio.sleep(0.1)
            view = await world.api.get("/v1/servers/alpha.s1/drain")
