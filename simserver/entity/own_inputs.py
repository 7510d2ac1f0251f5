"""Where services of a server are told what became of the inputs that the server gave its entities itself."""

import logging
from collections.abc import Callable
from typing import Final

from batonpass.authority.wire.transfer import InputAck

__all__ = ["OWN_SOURCE", "OwnInputAcks"]

_log = logging.getLogger("batonpass.simserver.entity.own_inputs")

OWN_SOURCE: Final = "@server"
"""No name of a server or player, so that no peer can give inputs as it."""


class OwnInputAcks:
    """How far inputs are applied and kept: other sources are told over the link, the server itself here."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[InputAck], object]] = []

    def listen(self, listener: Callable[[InputAck], object]) -> None:
        """Have it called at once with each acknowledgement.

        It should note it, or ring a bell. One that fails is dropped.
        """
        self._listeners.append(listener)

    def tell(self, ack: InputAck) -> None:
        """Called by the entity."""
        for listener in tuple(self._listeners):
            try:
                listener(ack)
            except Exception:
                self._listeners.remove(listener)
                _log.exception("a service is told of no more of its inputs: it failed on an acknowledgement")
