"""Whatever way a state came, it is held against the hash that goes with it before anything is made of it."""

import hashlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from authority.errors import MessageError
from authority.hops import Trace
from authority.messages import StateTransfer
from authority.sealing import Opened
from simserver.arrivals import Arrivals
from simserver.inputs import Inbox
from simserver.life import Snapshot

STATE = Snapshot("ball", 3, {"x": 1.5}, Inbox().to_data()).encode()
HASH = hashlib.sha256(STATE).hexdigest()


def offered(state: bytes, state_hash: str) -> StateTransfer:
    return StateTransfer(
        transfer_id="transfer-1",
        entity="alpha.e",
        epoch=1,
        sub=0,
        kind="ball",
        tick=3,
        state=state,
        state_hash=state_hash,
    )


def checked(message: StateTransfer, came: StateTransfer, hashed: str = "") -> Snapshot:
    opened = Opened(came, "alpha.s2", Trace("transfer-1"), state_hash=hashed)
    return Arrivals._checked(cast(Any, SimpleNamespace()), message, opened)


def test_a_state_with_its_hash_is_read() -> None:
    message = offered(STATE, HASH)
    assert checked(message, message).tick == 3
    assert checked(message, message, HASH).tick == 3
    assert checked(message, offered(b"", HASH), "b" * 64).tick == 3


def test_a_state_with_another_hash_is_refused() -> None:
    message = offered(STATE, "b" * 64)
    for hashed in ("", HASH):
        with pytest.raises(MessageError, match="does not fit its hash"):
            checked(message, message, hashed)


def test_what_was_put_together_is_hashed_even_if_a_part_had_the_hash_of_the_whole() -> None:
    whole = offered(STATE, "b" * 64)
    with pytest.raises(MessageError, match="does not fit its hash"):
        checked(whole, offered(b"part", "b" * 64), "b" * 64)
