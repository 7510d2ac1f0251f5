"""Renewals of leases at a homeserver: over the link alone, and only the instance's own servers have a place there."""

from collections import Counter
from typing import Any, cast

import pytest
import trio

from batonpass.actors.net.endpoint import Received
from batonpass.authority.errors import UnregisteredSender
from batonpass.authority.wire.batch import Letter
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.lease import RENEWAL_CHANNEL, Renew, RenewReply
from batonpass.authority.wire.transfer import Parcel, encode_link
from batonpass.homeserver.failover.renewal_lane import RenewalResponder
from batonpass.tree.raft.submissions import NoQuorum
from tests.homeserver.rest.test_server_routes import Server
from tests.homeserver.served import Home, until

NONCE = "0" * 32


def renew(number: int, server: str = "alpha.p1") -> Renew:
    return Renew(server=server, incarnation=1, nonce=NONCE, renewal=number)


async def test_a_renewal_over_rest_is_refused_there_is_one_way_for_them(alpha: Home) -> None:
    server = Server(alpha, "alpha.p1")
    await server.register()
    await alpha.api.refused(400, "bad_message", "POST", "/v1/handoffs", {"parcel": server.seal(renew(1))})


class Lane:
    """The lane of a running homeserver, whose link is a list."""

    def __init__(self, home: Home, nursery: trio.Nursery) -> None:
        self.home = home
        self.send, self._inbox = trio.open_memory_channel[Received](100)
        self.posted: list[tuple[str, int]] = []
        self.answered_at: set[tuple[str, int]] = set()
        self.dropped: Counter[str] = Counter()
        node = home.node
        self.lane = RenewalResponder(cast(Any, self), node.store, node.parcels, node.leases, self._dropped)

    def claim(self, channel: int) -> trio.MemoryReceiveChannel[Received]:
        assert channel == RENEWAL_CHANNEL
        return self._inbox

    def post(self, to: str, address: tuple[str, int], _message: bytes, *, channel: int) -> None:
        self.posted.append((to, channel))
        self.answered_at.add(address)

    def _dropped(self, peer: str, error: Exception) -> None:
        self.dropped[f"{peer} {type(error).__name__}"] += 1

    def arrives(self, peer: str, parcel: Any) -> None:
        data = encode_link(Parcel.from_data_untrusted(parcel)) if isinstance(parcel, dict) else parcel
        self.send.send_nowait(Received(peer, data, RENEWAL_CHANNEL, ("127.0.0.1", 9)))


@pytest.fixture
async def lane(alpha: Home, nursery: trio.Nursery) -> Lane:
    made = Lane(alpha, nursery)
    await nursery.start(made.lane.serve)
    return made


async def test_nobody_but_a_simulation_server_of_this_instance_is_even_read(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def opened(_parcel: Parcel) -> Any:
        raise AssertionError("a stranger's parcel was opened")

    await lane.home.player("alpha.ada")
    server = Server(lane.home, "alpha.p1")
    await server.register()
    parcel = server.seal(renew(1))
    monkeypatch.setattr(lane.home.node.parcels, "open_untrusted", opened)
    for peer in ("alpha.ada", "alpha.nobody", "beta.s1", "alpha.h1"):
        lane.arrives(peer, parcel)
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert lane.dropped == {
        f"{peer} {UnregisteredSender.__name__}": 1 for peer in ("alpha.ada", "alpha.nobody", "beta.s1", "alpha.h1")
    }


async def test_what_a_server_sends_while_its_renewal_is_under_way_waits_as_one_the_newest(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And delays nobody else: a server that floods the lane has one place in it, as every other."""
    first, second = Server(lane.home, "alpha.p1"), Server(lane.home, "alpha.p2")
    await first.register()
    await second.register()
    held, answered = trio.Event(), list[tuple[str, int]]()

    async def renewed(opened: Any) -> RenewReply:
        if opened.sender == "alpha.p1":
            await held.wait()
        answered.append((opened.sender, opened.message.renewal))
        fields = {"server": opened.sender, "incarnation": 1, "renewal": opened.message.renewal, "verdict": "held"}
        return RenewReply.model_validate(fields)

    monkeypatch.setattr(lane.home.node.leases, "renewed", renewed)
    for number in range(1, 40):
        lane.arrives("alpha.p1", first.seal(renew(number)))
    lane.arrives("alpha.p2", second.seal(renew(1, "alpha.p2")))
    await until(lambda: ("alpha.p2", RENEWAL_CHANNEL) in lane.posted)
    assert answered == [("alpha.p2", 1)]
    held.set()
    await until(lambda: len(lane.posted) == 3)
    assert answered[1:] == [("alpha.p1", 1), ("alpha.p1", 39)]


async def test_what_is_no_renewal_or_sealed_by_another_is_dropped_and_the_lane_goes_on(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Server(lane.home, "alpha.p1"), Server(lane.home, "alpha.p2")
    await first.register()
    await second.register()
    node, failed = lane.home.node, trio.Event()

    async def broken(opened: Any) -> RenewReply:
        failed.set()
        raise ZeroDivisionError("a fault of ours")

    lane.arrives("alpha.p1", b"no parcel")
    await until(lambda: lane.dropped.total() == 1)
    lane.arrives("alpha.p1", second.seal(renew(1, "alpha.p2")))
    await until(lambda: lane.dropped.total() == 2)
    lane.arrives("alpha.p1", first.seal(renew(2, "alpha.p2")))
    await until(lambda: lane.dropped.total() == 3)
    with monkeypatch.context() as patched:
        patched.setattr(node.leases, "renewed", broken)
        lane.arrives("alpha.p1", first.seal(renew(3)))
        await until(failed.is_set)
    assert lane.dropped == {"alpha.p1 MessageError": 3}
    assert lane.posted == []
    lane.arrives("alpha.p1", first.seal(renew(4)))
    await until(lambda: lane.posted)
    assert lane.answered_at == {("127.0.0.1", 9)}, "it goes to where the renewal came from"


async def test_a_renewal_that_cannot_be_decided_is_answered_with_the_reason(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(lane.home, "alpha.p1")
    await server.register()
    node, said, seal = lane.home.node, list[Letter](), lane.home.node.parcels.seal

    async def undecided(_opened: Any) -> RenewReply:
        raise NoQuorum("there is no majority")

    async def sealed(message: Any, trace: Trace, to: str, *, on_path: bool) -> Any:
        said.append(Letter(message, trace))
        return await seal(message, trace, to, on_path=on_path)

    monkeypatch.setattr(node.leases, "renewed", undecided)
    monkeypatch.setattr(node.parcels, "seal", sealed)
    lane.arrives("alpha.p1", server.seal(renew(1)))
    await until(lambda: lane.posted)
    (letter,) = said
    assert (letter.message.type, getattr(letter.message, "reason", "")) == ("no_answer", "there is no majority")


async def test_leases_are_renewed_while_not_a_single_request_over_rest_is_answered(
    alpha: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await alpha.simserver("alpha.s1")

    async def silent(*_args: Any, **_more: Any) -> Any:
        await trio.sleep_forever()

    monkeypatch.setattr(node.home, "_request", silent)
    # Long ago, so that they would be asked for if the lane did.
    node.home._keys.clear()
    before = node.lease.holder.until_ns
    renewed = trio.Event()
    node.lease.once_renewed(renewed.set)
    await renewed.wait()
    assert node.lease.holder.until_ns > before
