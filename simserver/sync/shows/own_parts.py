"""What a process has of its own in a show: a key by which it signs, and dice."""

import random
import threading  # noqa: TID251 — an engine runs in a thread of its own (`engine_thread`)
from collections.abc import Mapping
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from batonpass.simserver.sync.followers.frame_clock import FrameRate
from batonpass.simserver.sync.followers.node import NodeMachine
from batonpass.simserver.sync.followers.sealing import Ed25519Signing
from batonpass.simserver.sync.followers.settings import FenceKind, ShowMode, ShowSettings

__all__ = ["OwnParts", "settings_of"]


def settings_of(state: Mapping[str, Any], more: Mapping[str, Any]) -> ShowSettings:
    """Of a show in this state. Raises TypeError, ValueError: `more` makes no sense."""
    rate, mode, fence = FrameRate(*state["rate"]), ShowMode(state["mode"]), FenceKind(state["fence"])
    return ShowSettings(rate=rate, mode=mode, fence=fence, **more)


class OwnParts:
    """Of one show. The key is drawn anew in each life of the process, so that no life uses the nonces of another.

    Args:
        more: fields of `ShowSettings` beside those that the state of the show has.
    """

    def __init__(self, more: Mapping[str, Any]) -> None:
        private = Ed25519PrivateKey.generate()
        self._more: Final = more
        self._signing: Final = Ed25519Signing(private)
        self.public: Final = private.public_key().public_bytes_raw()

    def thread(self) -> int:
        """A number of the thread that calls."""
        return threading.get_ident()

    def machine(self, server: str, state: Mapping[str, Any], now_ns: int) -> NodeMachine:
        """The machine of this node, for a show in this state. Raises as `settings_of`."""
        settings = settings_of(state, self._more)
        return NodeMachine(server, settings, self._signing, random.SystemRandom(), now_ns)
