"""Creations that are asked for together share steps of the log, and each comes to what it deserves."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
import trio

from batonpass.actors.base.batcher import Batcher
from batonpass.actors.base.clock import Clock
from batonpass.authority.errors import Reason, Refused
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.procedures.table import MAX_STEPS
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import Spawn, Spawned
from batonpass.homeserver.transfer.creation import EntityCreation
from batonpass.tree.raft.submissions import Aborted, NoQuorum
from tests.authority.log import ADA, BALL, S1, S2, new_log

FULL = "alpha.full"
"""A name that no server would have."""


class KeptLog:
    """A store of one member, what was submitted to it, and servers that answer what they are sent at once."""

    def __init__(self) -> None:
        self.log = new_log()
        self.submitted: list[tuple[str, int]] = []
        self.spawned: list[str] = []
        self.creation = EntityCreation(cast(Any, self), self.post, Clock(), partial(Batcher, most=MAX_STEPS))
        self.fails: Callable[[str], Exception | None] = no_failure

    async def submit(self, procedure: str, **args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.submitted.append((procedure, len(args.get("steps", [0]))))
        if (error := self.fails(procedure)) is not None:
            raise error
        return self.log.run(procedure, **args)

    def entity(self, entity: str) -> EntityRecord | None:
        data = self.log.rows.get_or(("entities", entity), None)
        return None if data is None else EntityRecord.from_data(data)

    async def post(self, message: Spawn, trace: Trace, to: str, *, on_path: bool) -> None:
        await trio.lowlevel.checkpoint()
        self.spawned.append(message.entity)
        reason = "it is full" if message.entity == FULL else ""
        self.creation.spawned(Spawned(entity=message.entity, reason=reason, epoch=message.epoch), to)

    async def create(self, *entities: str, server: str = S2) -> dict[str, Any]:
        """What each of these creations, asked for at one moment, comes to: the record, why not, or the exception."""
        found: dict[str, Any] = {}

        async def create(entity: str) -> None:
            try:
                record, reason = await self.creation.create(
                    {}, entity=entity, kind="ball", spawner=ADA, server=server, rule="ask"
                )
                found[entity] = reason or record
            except (Refused, NoQuorum) as error:
                found[entity] = error

        async with trio.open_nursery() as nursery:
            for entity in entities:
                nursery.start_soon(create, entity)
        return found


def no_failure(_procedure: str) -> None:
    """Everything is decided."""


@pytest.fixture
def kept() -> KeptLog:
    return KeptLog()


async def test_many_share_steps_of_the_log_and_are_confirmed_before_anybody_is_told(kept: KeptLog) -> None:
    names = [f"alpha.n{number}" for number in range(100)]
    found = await kept.create(*names)
    # How many servers' words come at one moment is a matter of the network: here, of the scheduler.
    created, *confirmed = kept.submitted
    assert created == ("entity.each", 100)
    assert sum(steps for _, steps in confirmed) == 100
    assert len(confirmed) < 20
    assert [found[name].authority for name in names] == [S2] * 100
    assert all((record := kept.entity(name)) is not None and not record.unconfirmed for name in names)


async def test_each_fails_by_itself_and_what_a_server_would_not_have_is_taken_back(kept: KeptLog) -> None:
    found = await kept.create("alpha.new", FULL, BALL, "alpha.newer")
    assert found[FULL] == "it is full"
    assert found[BALL].reason is Reason.ALREADY_EXISTS, "it is on another server"
    assert found["alpha.new"].id == "alpha.new"
    assert found["alpha.newer"].id == "alpha.newer"
    assert kept.entity(FULL) is None
    assert BALL not in kept.spawned


async def test_a_repetition_creates_nothing_twice(kept: KeptLog) -> None:
    first = await kept.create("alpha.new", "alpha.newer")
    assert await kept.create("alpha.new", "alpha.newer") == first
    assert (await kept.create("alpha.new", server=S1))["alpha.new"].reason is Reason.ALREADY_EXISTS


async def test_without_a_quorum_all_hear_so_and_nothing_is_begun(kept: KeptLog) -> None:
    kept.fails = lambda procedure: NoQuorum("nobody leads")
    found = await kept.create("alpha.new", "alpha.newer")
    assert [type(one) for one in found.values()] == [NoQuorum, NoQuorum]
    assert not kept.spawned


async def test_where_many_cannot_be_one_command_they_are_done_one_by_one(kept: KeptLog) -> None:
    kept.fails = lambda procedure: Aborted("too_much", "it is too long") if procedure == "entity.each" else None
    found = await kept.create("alpha.new", "alpha.newer", BALL)
    assert [found["alpha.new"].id, found["alpha.newer"].id] == ["alpha.new", "alpha.newer"]
    assert found[BALL].reason is Reason.ALREADY_EXISTS


async def test_one_alone_is_a_command_of_its_own(kept: KeptLog) -> None:
    await kept.create("alpha.new")
    assert kept.submitted == [("entity.create", 1), ("entity.confirm", 1)]
