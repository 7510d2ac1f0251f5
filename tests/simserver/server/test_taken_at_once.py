"""What somebody waits for is taken where it was received, if nobody has to be asked for keys; else by a task."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from batonpass.actors.net.inbox import Received
from batonpass.authority.wire.base import MessageModel
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage, Sealer
from batonpass.authority.wire.transfer import Activated, DirectHandoff, Grant, Parcel
from batonpass.crypto.keys import Identity, PublicIdentity
from batonpass.simserver.server.dispatch import SimserverNode

NOW_S = 1_000_000.0
HERE, THERE = (Sealer.without_log(name, Identity.generate()) for name in ("alpha.s1", "alpha.s2"))
FENCED: dict[str, Any] = {"transfer_id": "transfer-1", "entity": "alpha.e", "epoch": 1, "sub": 1}
MESSAGES = {
    "activated": Activated(**FENCED),
    "direct": DirectHandoff(**FENCED, kind="ball", tick=3, state=b"x", state_hash="a" * 64, chain=["a", "b"]),
    "grant": Grant(certificate="a"),
}


class Server:
    """A node of which only the way of a parcel is real; it takes hand-overs if their signers are `known`."""

    def __init__(self, *, keys: PublicIdentity | None, known: bool = True) -> None:
        self.taken: list[str] = []
        self.counts: Counter[str] = Counter()
        clock = SimpleNamespace(monotonic_ns=lambda: 90, unix_s=lambda: NOW_S)

        def take(message: MessageModel, _opened: OpenedMessage) -> bool:
            self.taken.append(type(message).__name__)
            return known

        self._node: SimpleNamespace = SimpleNamespace(
            clock=clock,
            sealer=HERE,
            home=SimpleNamespace(keys_at_hand=lambda _name, _kid: keys),
            arrivals=SimpleNamespace(direct_at_hand=take, grant_at_hand=take),
            departures=SimpleNamespace(activated=lambda opened, message: take(message, opened)),
            _done_at_once=lambda opened, received: SimserverNode._done_at_once(cast(Any, self._node), opened, received),
            _failed=lambda _received, error: self.counts.update([type(error).__name__]),
        )

    def takes(self, parcel: Parcel, peer: str = THERE.name) -> bool:
        received = Received(peer, b"", 0, ("127.0.0.1", 1))
        return SimserverNode._take_at_once(cast(Any, self._node), parcel, received)


def parcel_of(kind: str) -> Parcel:
    message = cast(Any, MESSAGES[kind])
    keys = HERE.identity.public
    return THERE.seal(message, Trace("transfer-1"), to=HERE.name, keys=keys, now_ns=30, now_s=NOW_S)


@pytest.mark.parametrize("kind", MESSAGES)
def test_it_is_done_at_once_if_all_keys_are_at_hand(kind: str) -> None:
    server = Server(keys=THERE.identity.public)
    assert server.takes(parcel_of(kind))
    assert server.taken == [type(MESSAGES[kind]).__name__]
    assert not server.counts


@pytest.mark.parametrize("kind", MESSAGES)
def test_it_is_left_to_a_task_if_the_sender_has_to_be_looked_up(kind: str) -> None:
    server = Server(keys=None)
    assert not server.takes(parcel_of(kind))
    assert not server.taken


@pytest.mark.parametrize("kind", ["direct", "grant"])
def test_it_is_left_to_a_task_if_those_who_signed_have_to_be_looked_up(kind: str) -> None:
    assert not Server(keys=THERE.identity.public, known=False).takes(parcel_of(kind))


def test_what_is_not_the_peers_or_does_not_verify_is_dropped_and_not_taken_again() -> None:
    parcel = parcel_of("activated")
    for keys, peer, error in (
        (THERE.identity.public, "alpha.s3", "MessageError"),
        (Identity.generate().public, THERE.name, "MessageError"),
    ):
        server = Server(keys=keys)
        assert server.takes(parcel, peer)
        assert not server.taken
        assert server.counts == {error: 1}
