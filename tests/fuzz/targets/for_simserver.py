"""What reaches a simulation server over the link."""

from types import SimpleNamespace
from typing import Any, cast

from actors.inbox import Received
from authority.errors import MessageError
from authority.lease_messages import RENEWAL_CHANNEL
from authority.messages import Parcel, encode_link
from crypto.errors import CryptoError
from simserver.inputs import Inbox
from simserver.life import Snapshot
from simserver.node import Node
from simserver.offered_states import OfferedStates
from simserver.renewal_lane import RenewalLane
from tests.fuzz.plain import from_cbor, to_cbor
from tests.fuzz.target import Target
from tests.fuzz.targets.for_authority import SEALERS, parcel
from tests.fuzz.targets.for_homeserver import CLOCK, KnownServers, run_at_once


def _open(data: bytes) -> object:
    node = SimpleNamespace(home=KnownServers(), sealer=SEALERS["beta.h1"], clock=CLOCK)
    return run_at_once(Node._open_untrusted(cast(Any, node), Parcel.from_data_untrusted(from_cbor(data))))


def _open_answer(data: bytes) -> object:
    lane = RenewalLane(cast(Any, KnownServers()), SEALERS["beta.h1"], cast(Any, None), cast(Any, CLOCK))
    return run_at_once(lane._opened_untrusted(Received("alpha.h1", data, RENEWAL_CHANNEL, ("10.0.0.1", 1))))


def _state_seeds() -> list[bytes]:
    inbox = {"cursors": {"alpha.ada": [3, 3]}, "pending": [["alpha.ada", 4, b"x"]]}
    return [Snapshot("ball", 9, {"x": 1.5}, Inbox().to_data()).encode(), Snapshot("ball", 9, None, inbox).encode()]


TARGETS = [
    Target(
        "simserver-renewal",
        _open_answer,
        ["simserver.renewal_lane:RenewalLane._opened_untrusted"],
        lambda: [encode_link(parcel())],
        (MessageError, CryptoError),
        plain="cbor",
    ),
    Target(
        "simserver-parcel",
        _open,
        ["simserver.node:Node._open_untrusted"],
        lambda: [to_cbor(parcel().to_data())],
        (MessageError, CryptoError),
        plain="cbor",
    ),
    Target(
        "simserver-state",
        lambda data: OfferedStates().read_untrusted(data, "", "alpha.e"),
        ["simserver.offered_states:_decoded_untrusted", "simserver.offered_states:OfferedStates.read_untrusted"],
        _state_seeds,
        (MessageError,),
        plain="cbor",
    ),
]
