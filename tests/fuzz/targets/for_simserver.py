"""What reaches a simulation server over the link."""

from collections import Counter
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import trio
from trio.testing import MockClock

from batonpass.actors.net.inbox import Received
from batonpass.authority.errors import MessageError
from batonpass.authority.node.config import RejectedPeers
from batonpass.authority.wire.lease import RENEWAL_CHANNEL
from batonpass.authority.wire.transfer import Input, KeyAhead, LetGo, Parcel, Present, encode_link
from batonpass.crypto.errors import CryptoError
from batonpass.simserver.entity.inputs import EntityInbox
from batonpass.simserver.entity.snapshot import EntitySnapshot
from batonpass.simserver.lease.renewal_lane import RenewalLane
from batonpass.simserver.mail.entity_mail import EntityMail
from batonpass.simserver.mail.items import MailBudget, MailItem
from batonpass.simserver.server.dispatch import SimserverNode
from batonpass.simserver.transfer.target.offers import OfferedStates
from tests.fuzz.plain import from_cbor, to_cbor
from tests.fuzz.target import Failed, Target
from tests.fuzz.targets.for_authority import SEALERS, parcel
from tests.fuzz.targets.for_homeserver import CLOCK, KnownServers, run_at_once


def _open(data: bytes) -> object:
    node = SimpleNamespace(home=KnownServers(), sealer=SEALERS["beta.h1"], clock=CLOCK)
    return run_at_once(SimserverNode._open_untrusted(cast(Any, node), Parcel.from_data_untrusted(from_cbor(data))))


def _open_answer(data: bytes) -> object:
    lane = RenewalLane(cast(Any, KnownServers()), SEALERS["beta.h1"], cast(Any, None), cast(Any, CLOCK))
    return run_at_once(lane._opened_untrusted(Received("alpha.h1", data, RENEWAL_CHANNEL, ("10.0.0.1", 1))))


def _messages() -> dict[str, Any]:
    """What an entity has of messages that has sent one, was sent another, and has one refused."""
    mail = EntityMail(MailBudget())
    mail.send(1, 8, [("alpha.b", b"hello"), ("no name", b"")])
    mail.received.offer("alpha.b", [MailItem((1, 1), (0, 0), b"x")], (0, 0, 0), (1, 0, 8), "alpha.s1")
    return mail.to_data()


def _state_seeds() -> list[bytes]:
    inbox = {"cursors": {"alpha.ada": [3, 3]}, "pending": [["alpha.ada", 4, b"x"]]}
    return [
        EntitySnapshot("ball", 9, {"x": 1.5}, EntityInbox().to_data()).encode(),
        EntitySnapshot("ball", 9, None, inbox).encode(),
        EntitySnapshot("ball", 9, None, inbox, messages=_messages()).encode(),
    ]


class _Inbox:
    """What the link hands out: messages of a registered peer, and those of another among them."""

    is_empty = False

    def __init__(self, hostile: list[bytes]) -> None:
        self._messages = [Received(_HONEST, _INPUT, 0, _HERE)]
        for message in hostile:
            self._messages += [
                Received("alpha.h1", message, 0, _HERE),
                Received("alpha.h1", message, 0, _HERE),
                Received(_HONEST, _INPUT, 0, _HERE),
            ]
        self.of_honest = len(hostile) + 1

    async def __aiter__(self) -> AsyncIterator[Received]:
        for message in self._messages:
            yield message

    def hold(self, _peer: str) -> None:
        """Nothing waits here for long."""

    def go_on(self, _peer: str) -> None:
        """The other half of it."""


class _Serving(SimserverNode):
    """A node of which only the way of messages is real: what they are for does nothing, or fails."""

    def __init__(self, inbox: _Inbox) -> None:
        self.link = cast(Any, SimpleNamespace(inbox=inbox))
        self.home, self.sealer, self.clock = cast(Any, KnownServers()), SEALERS["beta.h1"], cast(Any, CLOCK)
        self.counts, self.audit = Counter(), RejectedPeers()
        self.lease = cast(Any, SimpleNamespace(log_went_back=False, may_act=lambda _now_ns: True))
        self.outbox, self.inactivity, self.holdings = MagicMock(), MagicMock(), MagicMock()
        self.holdings.get.return_value = None
        self.holdings.gone.return_value = None
        self.arrivals = MagicMock()
        self.arrivals.keep_early.return_value = False
        fails = MagicMock(side_effect=ZeroDivisionError)
        self.replication = cast(Any, SimpleNamespace(keep=fails, kept=fails))
        self.departures = cast(Any, SimpleNamespace(let_go=fails))


def _stream(data: bytes) -> None:
    """Any messages of one registered peer, each of them twice, among those of another, of which none may be missed."""
    value = from_cbor(data)
    hostile = (
        [item if isinstance(item, bytes) else to_cbor(item) for item in value[:20]]
        if isinstance(value, list)
        else [data]
    )
    inbox = _Inbox(hostile)
    node = _Serving(inbox)

    async def serve() -> None:
        with trio.move_on_after(1):
            await node.serve_link()

    trio.run(serve, clock=MockClock(autojump_threshold=0.0))
    heard = [call.args for call in cast(Any, node.inactivity).heard.call_args_list].count((_HONEST,))
    if heard != inbox.of_honest:
        raise Failed(f"of {inbox.of_honest} messages of another peer {heard} were taken, beside {hostile}")


_HONEST, _HERE = "alpha.ada", ("127.0.0.1", 1)
_INPUT = encode_link(Input(entity="alpha.e", owner_rev=1, seq=1, data=b"x", base=0, floor=0))


def _stream_seeds() -> list[bytes]:
    bare: list[Any] = [
        Input(entity="alpha.e", owner_rev=1, seq=1, data=b"x", base=0, floor=0),
        LetGo(entity="alpha.e"),
        Present(),
        KeyAhead(header=b"x"),
        parcel(),
    ]
    return [to_cbor([from_cbor(encode_link(message)) for message in bare] + [b"", b"x"]), b"x"]


TARGETS = [
    Target(
        "simserver-renewal",
        _open_answer,
        ["batonpass.simserver.lease.renewal_lane:RenewalLane._opened_untrusted"],
        lambda: [encode_link(parcel())],
        (MessageError, CryptoError),
        plain="cbor",
    ),
    Target(
        "simserver-inbox",
        _stream,
        ["batonpass.simserver.server.dispatch:SimserverNode._take_link_untrusted"],
        _stream_seeds,
        plain="cbor",
        slow=True,
    ),
    Target(
        "simserver-parcel",
        _open,
        ["batonpass.simserver.server.dispatch:SimserverNode._open_untrusted"],
        lambda: [to_cbor(parcel().to_data())],
        (MessageError, CryptoError),
        plain="cbor",
    ),
    Target(
        "simserver-state",
        lambda data: OfferedStates().read_untrusted(data, "", "alpha.e"),
        [
            "batonpass.simserver.transfer.target.offers:_decoded_untrusted",
            "batonpass.simserver.transfer.target.offers:OfferedStates.read_untrusted",
        ],
        _state_seeds,
        (MessageError,),
        plain="cbor",
    ),
]
