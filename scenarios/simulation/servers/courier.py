"""What a simulated server sends to other servers and to players, in place of `simserver.net.outbox.Outbox`."""

from typing import Any, Final, Protocol

from batonpass.authority.fence import Fence
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import Despawned, ImminentLoss, InputAck, Message, Spawned
from batonpass.scenarios.simulation.servers.company import SimulatedOutbox
from batonpass.scenarios.simulation.servers.mail import SimulatedMail
from batonpass.scenarios.simulation.servers.promises.notices import NoticeWatch
from batonpass.simserver.net.door_players import DoorPlayers

__all__ = ["VirtualCourier"]


class Ear(Protocol):
    """Hears what a server says; see `simserver.Witness`."""

    def heard_of_end(self, server: str, entity: str, epoch: int) -> None:
        """A server says that it does nothing with an entity under an earlier epoch."""

    def said_to_live(self, server: str, entity: str) -> None:
        """A server tells home that a new entity lives."""

    def told_durable(self, entity: str, fence: Fence, source: str, upto: int) -> None:
        """A source of inputs is told how many of them are durable."""


class VirtualCourier:
    """As `Outbox`: traces are for people, and stay behind."""

    def __init__(
        self, server: str, outbox: SimulatedOutbox, mail: SimulatedMail, ear: Ear, notices: NoticeWatch
    ) -> None:
        self._server: Final = server
        self._outbox: Final = outbox
        self._mail: Final = mail
        self._ear: Final = ear
        self._notices: Final = notices
        self.door_players: Final = DoorPlayers()

    def send(self, message: Message, trace: Trace, to: str, **how: Any) -> bool:
        """As `Outbox.send`."""
        if isinstance(message, Despawned):
            self._ear.heard_of_end(self._server, message.entity, message.epoch)
        if isinstance(message, Spawned) and not message.reason:
            self._ear.said_to_live(self._server, message.entity)
        self._outbox.send(to, message)
        return True

    def doubt(self, peer: str) -> None:
        """As `Outbox.doubt`; here every server stays where it was."""

    def is_under_way(self, _transfer_id: str, to: str) -> bool:
        """As `Outbox.is_under_way`, of any transfer."""
        return (self._server, to) in self._mail.under_way

    def tell_player(self, player: str, message: Any) -> None:
        """As `Outbox.tell_player`."""
        if isinstance(message, ImminentLoss):
            self._notices.told(message)
        if isinstance(message, InputAck):
            self._ear.told_durable(message.entity, Fence(message.epoch, message.sub), player, message.durable)
        if not self.door_players.tell(player, message):
            self._mail.send(self._server, player, message)
