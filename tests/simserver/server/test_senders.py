"""What only simulation servers say to each other is taken from nobody else, whoever has keys."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from batonpass.authority.errors import MessageError
from batonpass.authority.model.records import Role
from batonpass.authority.wire.base import MessageModel
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import OpenedMessage
from batonpass.authority.wire.transfer import (
    ForwardInputs,
    OwnerHint,
    Precopy,
    Reserve,
    StageDiscard,
    StageState,
    StateTransfer,
)
from batonpass.simserver.server.dispatch import SimserverNode

FENCED: dict[str, Any] = {"transfer_id": "transfer-1", "entity": "alpha.e", "epoch": 1, "sub": 0}
STATE: dict[str, Any] = {**FENCED, "kind": "ball", "tick": 3, "state": b"x", "state_hash": "a" * 64}
MESSAGES = (
    StateTransfer(**STATE),
    StageState(**STATE),
    StageDiscard(**FENCED),
    Precopy(transfer_id="transfer-1", entity="alpha.e", round=1, state=b"x", lengths=[1]),
    ForwardInputs(**FENCED, inputs=[]),
    OwnerHint(entity="alpha.e", owner_rev=2, epoch=1, sub=0),
    Reserve(kind="ball", schema_version=1, state_bytes=10, places=1),
)


class Server:
    """A node of which only the choice of who is listened to is real."""

    def __init__(self, role: Role | None) -> None:
        self.taken: list[str] = []

        async def later(message: MessageModel, _opened: OpenedMessage) -> None:
            self.taken.append(type(message).__name__)

        def at_once(message: Any, _more: Any = None) -> None:
            self.taken.append(type(message if isinstance(message, MessageModel) else _more).__name__)

        async def role_of(_name: str) -> Role | None:
            return role

        self._node: Any = SimpleNamespace(
            home=SimpleNamespace(role_of=role_of),
            arrivals=SimpleNamespace(
                state=later,
                stage=later,
                forwarded=later,
                precopy=at_once,
                stage_void=lambda _transfer, _sender: self.taken.append("StageDiscard"),
                hints=SimpleNamespace(came=at_once),
            ),
            reception=SimpleNamespace(asked=at_once),
        )
        for name in ("_check_simserver", "_dispatch_to_departures"):
            setattr(self._node, name, getattr(SimserverNode, name).__get__(self._node))

    async def take(self, message: Any, sender: str) -> None:
        await SimserverNode._dispatch(cast(Any, self._node), OpenedMessage(message, sender, Trace("transfer-1")))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.type)
@pytest.mark.parametrize("role", [Role.PLAYER, Role.HOMESERVER, None])
async def test_what_servers_hand_over_is_taken_from_no_player_and_no_stranger(message: Any, role: Role | None) -> None:
    server = Server(role)
    with pytest.raises(MessageError, match="no simulation server"):
        await server.take(message, "alpha.mallory")
    assert server.taken == []


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.type)
async def test_it_is_taken_from_a_simulation_server_of_any_instance_with_keys(message: Any) -> None:
    server = Server(Role.SIMSERVER)
    await server.take(message, "beta.s1")
    assert server.taken == [type(message).__name__]
