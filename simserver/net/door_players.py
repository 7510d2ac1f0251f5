"""Players that are connected to this server by its door: what they are told goes there, and not over the link."""

from collections.abc import Callable
from typing import Final

from batonpass.authority.wire.transfer import LinkMessage

__all__ = ["DoorPlayers"]

_Tell = Callable[[LinkMessage], object]


class DoorPlayers:
    """By player, what its connections are told by."""

    def __init__(self) -> None:
        self._tells: Final[dict[str, list[_Tell]]] = {}

    def attach(self, player: str, tell: _Tell) -> None:
        """A connection of a player is told what the player is told, until `detach`."""
        self._tells.setdefault(player, []).append(tell)

    def detach(self, player: str, tell: _Tell) -> None:
        """A connection has ended."""
        tells = self._tells[player]
        tells.remove(tell)
        if not tells:
            del self._tells[player]

    def tell(self, player: str, message: LinkMessage) -> bool:
        """Tell a player something by all its connections; whether it has any."""
        tells = self._tells.get(player, ())
        for tell in tells:
            tell(message)
        return bool(tells)
