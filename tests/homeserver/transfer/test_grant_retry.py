"""What the log gave to a server is told to it again when he is dead who should have seen to it."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from batonpass.authority.fence import Fence
from batonpass.authority.model.records import LeaseRow, Phase, TransferRecord
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.wire.transfer import Grant
from batonpass.homeserver.names.federation import InstanceUnreachable
from batonpass.homeserver.transfer.grant_retry import GrantRetry
from tests.simserver.ports import TrioClock

SOURCE, TARGET = "alpha.s1", "alpha.s2"


def committed(**changes: Any) -> TransferRecord:
    fields = {"id": "transfer-1", "entity": "alpha.e", "source": SOURCE, "target": TARGET, "epoch": 3}
    return TransferRecord(**{**fields, "phase": Phase.COMMITTED, "source_incarnation": 4, **changes})


class Place:
    """A log of one transfer, and everything that is told because of it."""

    def __init__(self) -> None:
        self.transfer = committed()
        self.authority: Any = SimpleNamespace(authority=TARGET, fence=Fence(3))
        self.lease = LeaseRow(server=SOURCE, incarnation=4, nonce="", phase=LeasePhase.OVER)
        self.in_office, self.is_down = True, False
        self.told: list[tuple[float, str]] = []
        store: Any = SimpleNamespace(
            transfer_ids=lambda: [f"transfer-{number}" for number in range(250)],
            unreported=lambda ids: [self.transfer] if self.transfer.id in ids else [],
            entity=lambda _id: self.authority,
            leases=lambda: [self.lease],
            lease=lambda _server: self.lease,
        )
        self.grant_retry = GrantRetry(
            "alpha", store, self.post, lambda transfer: f"of {transfer.id}", TrioClock(), lambda: self.in_office
        )

    async def post(self, message: Grant, trace: Any, to: str, *, on_path: bool) -> None:
        assert (message.certificate, on_path) == ("of transfer-1", False)
        self.told.append((trio.current_time(), to))
        if self.is_down:
            raise InstanceUnreachable(to)

    async def passes(self, seconds: float) -> list[str]:
        """Who is told in this time."""
        self.told.clear()
        with trio.move_on_after(seconds):
            await self.grant_retry.serve()
        return [to for _, to in self.told]


async def test_it_is_told_more_and_more_seldom_and_not_for_ever(autojump_clock: MockClock) -> None:
    place = Place()
    assert await place.passes(1000.0) == [TARGET] * len(place.told)
    waits = [after - before for (before, _), (after, _) in zip(place.told, place.told[1:], strict=False)]
    assert len(waits) > 3
    assert waits == sorted(waits)
    assert await place.passes(1000.0) == []
    place.lease = place.lease.changed(incarnation=5, phase=LeasePhase.ALIVE)
    assert await place.passes(10.0) == [TARGET], "somebody has come back, and what was due is said"


async def test_a_server_that_is_down_is_told_when_it_is_back(autojump_clock: MockClock) -> None:
    place = Place()
    place.is_down = True
    await place.passes(30.0)
    place.is_down = False
    assert await place.passes(60.0) != []


@pytest.mark.parametrize(
    "changes",
    [{"epoch": 2}, {"target": "alpha.s3"}, {"source_incarnation": 5}],
    ids=["of before", "given to somebody else", "its source is alive"],
)
async def test_nobody_is_told_of_what_is_not_so(autojump_clock: MockClock, changes: dict[str, Any]) -> None:
    place = Place()
    place.transfer = committed(**changes)
    assert await place.passes(60.0) == []


async def test_servers_of_other_instances_are_not_told_nor_by_anybody_but_the_granter(
    autojump_clock: MockClock,
) -> None:
    place = Place()
    place.in_office = False
    assert await place.passes(60.0) == []
    place.in_office, place.transfer = True, committed(target="beta.s2")
    place.authority = SimpleNamespace(authority="beta.s2", fence=Fence(3))
    assert await place.passes(60.0) == []
