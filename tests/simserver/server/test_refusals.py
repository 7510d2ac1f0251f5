"""What a simulation server does not do: without a lease, or for a peer that did not seal what it sent."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from batonpass.actors.net.inbox import Received
from batonpass.authority.errors import MessageError
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import Activated, Input, Parcel
from batonpass.crypto import jose
from batonpass.simserver.server.dispatch import SimserverNode
from tests.simserver.ports import HeldLease

ENTITY, ADA = "alpha.ball", "alpha.ada"


class Server:
    """A node with one entity, of which only what it does with a tick and an input is real."""

    def __init__(self, *, lasts: bool) -> None:
        self.cast: list[str] = []
        self.early: list[str] = []
        self.counts: Counter[str] = Counter()
        lease = HeldLease()
        lease.lasts = lasts
        life = SimpleNamespace(frozen=False, sleep=None)
        holding = SimpleNamespace(life=life, cast=lambda message: self.cast.append(type(message).__name__))
        table = {ENTITY: holding}
        members = {"get": staticmethod(table.get), "__iter__": lambda _: iter([holding]), "batch": None}
        holdings: Any = type("Table", (), members)()
        self.node: Any = SimpleNamespace(
            lease=lease,
            clock=SimpleNamespace(monotonic_ns=lambda: 90),
            counts=self.counts,
            holdings=holdings,
            neighbours=None,
            inactivity=SimpleNamespace(heard=lambda _: None),
            environment=SimpleNamespace(
                rounds=SimpleNamespace(count=0), feed=SimpleNamespace(round_begins=lambda _: None)
            ),
            arrivals=SimpleNamespace(keep_early=self._keep_early),
        )

    def _keep_early(self, entity: str, _item: object) -> bool:
        self.early.append(entity)
        return True


@pytest.mark.parametrize("lasts", [True, False], ids=["lease", "no lease"])
def test_without_a_lease_no_entity_is_told_of_a_tick(lasts: bool) -> None:
    server = Server(lasts=lasts)
    assert SimserverNode.tick_all(server.node) is lasts
    assert server.cast == (["TickNow"] if lasts else [])
    assert server.counts["ticks_without_lease"] == (not lasts)


@pytest.mark.parametrize("lasts", [True, False], ids=["lease", "no lease"])
@pytest.mark.parametrize("entity", [ENTITY, "alpha.other"], ids=["here", "on its way"])
def test_without_a_lease_no_input_is_taken_nor_kept_for_later(entity: str, lasts: bool) -> None:
    """It is not acknowledged, so its player repeats it to the authority of that time."""
    server = Server(lasts=lasts)
    SimserverNode._input(server.node, Input(entity=entity, owner_rev=1, seq=1, data=b""), ADA)
    assert bool(server.cast or server.early) is lasts
    assert server.counts["input_without_lease"] == (not lasts)


class Opener:
    """A node of which only the way of a parcel is real; `seals` is the name that its contents turn out to be of."""

    def __init__(self, seals: str) -> None:
        self.done: list[str] = []
        message = Activated(transfer_id="transfer-1", entity=ENTITY, epoch=1, sub=1)
        self._opened = [OpenedMessage(message, seals, Trace("transfer-1"), in_batch=True)] * 2
        self.node: Any = SimpleNamespace(_open_untrusted=self._open, _done_at_once=self._did)

    async def _open(self, _parcel: Parcel) -> list[OpenedMessage]:
        return self._opened

    def _did(self, opened: OpenedMessage, _received: Received) -> bool:
        self.done.append(opened.sender)
        return True


@pytest.mark.parametrize(
    ("named", "seals"),
    [("alpha.s2", "alpha.s2"), ("alpha.s3", "alpha.s2"), ("alpha.s2", "alpha.s3")],
    ids=["its own", "named", "sealed"],
)
async def test_of_many_messages_in_one_parcel_none_is_taken_that_its_peer_did_not_seal(
    monkeypatch: pytest.MonkeyPatch, named: str, seals: str
) -> None:
    """Looked at twice: before keys are asked for, and by what the seal proves."""
    monkeypatch.setattr(jose, "peek_sender_untrusted", lambda _: named)
    opener = Opener(seals)
    parcel, received = cast(Any, SimpleNamespace(sealed="")), Received("alpha.s2", b"", 0, ("127.0.0.1", 1))
    if (named, seals) == ("alpha.s2", "alpha.s2"):
        await SimserverNode._take(opener.node, parcel, received)
        assert opener.done == ["alpha.s2"] * 2
        return
    with pytest.raises(MessageError, match="not by the peer that sent it"):
        await SimserverNode._take(opener.node, parcel, received)
    assert opener.done == []
