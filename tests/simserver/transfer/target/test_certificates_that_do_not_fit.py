"""What certificates prove is taken by the letter: with one field that is another one, nothing begins.

Each guard is tried alone. The machine that comes after it would drop much of this too; another line must not be the
only reason why nothing happens.
"""

import hashlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from batonpass.authority.errors import MessageError
from batonpass.authority.fence import Fence
from batonpass.authority.machines import target as machine
from batonpass.authority.trust.certificates import CommitCertificate, DelegationGrant, PassCertificate
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Activate, DirectHandoff
from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.entity.table import Tombstone
from batonpass.simserver.transfer.target.arrivals import Arrivals
from tests.simserver.ports import held_lease, ports_of

HERE, THERE, OTHER, ENTITY, ID = "alpha.s1", "alpha.s2", "alpha.s3", "alpha.ball", "transfer-1"
STATE = EntitySnapshot("ball", 7, {}, EntityInbox().to_data()).encode()
HASH = hashlib.sha256(STATE).hexdigest()
COMMIT = CommitCertificate(
    entity=ENTITY, epoch=2, sub=0, transfer_id=ID, source=THERE, target=HERE, tick=7, state_hash=HASH, incarnation=4
)
GRANT = DelegationGrant(entity=ENTITY, epoch=2, sub=0, holder=THERE, group=(HERE, THERE))
PASS = PassCertificate(
    entity=ENTITY,
    epoch=2,
    sub=1,
    transfer_id=ID,
    source=THERE,
    target=HERE,
    tick=7,
    state_hash=HASH,
    incarnation=4,
    parent="0" * 64,
)
DIRECT = DirectHandoff(
    transfer_id=ID,
    entity=ENTITY,
    epoch=2,
    sub=1,
    kind="ball",
    tick=7,
    state=STATE,
    state_hash=HASH,
    chain=["grant", "pass"],
)


class Place:
    """A server to which an entity comes, whose certificates are believed as they stand; what it would begin with."""

    def __init__(self, certificate: CommitCertificate = COMMIT, last: PassCertificate = PASS) -> None:
        self.lease = held_lease(4)
        self.gone: Tombstone | None = None
        self.permitted: list[str] = []
        holdings: Any = SimpleNamespace(get=lambda _: None, gone=lambda _: self.gone, lived=lambda _: None)
        nothing: Any = SimpleNamespace(get=lambda _: None)
        ports = replace(ports_of(HERE), certificates=cast(Any, self))
        self.arrivals = Arrivals(ports, self.lease, holdings, nothing, nothing, nothing)
        self._certificate, self._last = certificate, last
        self.arrivals._perform = self._done  # type: ignore[method-assign]

    def _done(self, entity: str, effect: machine.Effect) -> None:
        if isinstance(effect, machine.ActivateOffer | machine.AwaitOtherHalf):
            self.permitted.append(entity)

    async def read_untrusted(self, *_: object) -> tuple[str, CommitCertificate]:
        return "alpha.h1", self._certificate

    async def chain_untrusted(self, *_: object) -> tuple[DelegationGrant, tuple[PassCertificate, ...]]:
        return GRANT, (self._last,)

    async def activate(self, sender: str = THERE) -> None:
        message = Activate(transfer_id=ID, certificate="token", inputs=[])
        await self.arrivals.activate(message, OpenedMessage(message, sender, Trace(ID)))

    async def direct(self, message: DirectHandoff = DIRECT, sender: str = THERE) -> None:
        await self.arrivals.direct(message, OpenedMessage(message, sender, Trace(ID)))


async def test_what_fits_is_permitted() -> None:
    committed, passed = Place(), Place()
    await committed.activate()
    await passed.direct()
    assert committed.permitted
    assert passed.permitted


async def test_the_inputs_of_a_commit_are_brought_by_its_source_alone() -> None:
    """Else whichever server got hold of the certificate could say which inputs came meanwhile."""
    place = Place()
    with pytest.raises(MessageError, match=f"{OTHER} activates what {THERE} handed over"):
        await place.activate(OTHER)
    assert not place.permitted


@pytest.mark.parametrize(
    "wrong",
    [
        {"target": OTHER},
        {"source": OTHER},
        {"transfer_id": "transfer-2"},
        {"epoch": 3},
        {"sub": 2},
        {"state_hash": "0" * 64},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_a_pass_with_one_field_that_is_another_one_hands_nothing_over(wrong: dict[str, Any]) -> None:
    place = Place(last=PASS.model_copy(update=wrong))
    with pytest.raises(MessageError, match="is not this hand-over"):
        await place.direct()
    assert not place.permitted


async def test_a_pass_is_brought_by_the_server_that_made_it() -> None:
    place = Place()
    with pytest.raises(MessageError, match="is not this hand-over"):
        await place.direct(sender=OTHER)
    assert not place.permitted


@pytest.mark.parametrize("wrong", [{"target": OTHER}, {"entity": "beta.ball"}], ids=["target", "home"])
async def test_a_commit_of_another_target_or_home_begins_nothing(wrong: dict[str, Any]) -> None:
    place = Place(COMMIT.model_copy(update=wrong))
    with pytest.raises(MessageError, match=r"names alpha\.s3|not from its home"):
        await place.activate()
    assert not place.permitted


@pytest.mark.parametrize("way", ["commit", "pass"])
async def test_what_was_given_to_another_life_of_the_server_begins_nothing_in_this_one(way: str) -> None:
    other = {"incarnation": 3}
    place = Place(COMMIT.model_copy(update=other), PASS.model_copy(update=other))
    await (place.activate() if way == "commit" else place.direct())
    assert not place.permitted


@pytest.mark.parametrize("way", ["commit", "pass"])
async def test_without_a_lease_nothing_begins(way: str) -> None:
    place = Place()
    place.lease.lasts = False
    await (place.activate() if way == "commit" else place.direct())
    assert not place.permitted


@pytest.mark.parametrize("way", ["commit", "pass"])
async def test_after_a_restart_what_it_gave_away_under_a_later_fence_does_not_begin_by_late_mail(way: str) -> None:
    """The machine of the entity is new then; the tombstone alone knows of the fence."""
    place = Place()
    place.gone = Tombstone(THERE, Fence(5))
    await (place.activate() if way == "commit" else place.direct())
    assert not place.permitted
