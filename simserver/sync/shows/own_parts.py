"""The parts of a show as they are in production: a key of this process, real dice, real threads."""

import random
import secrets
import threading  # noqa: TID251 — an engine runs in a thread of its own (`engine_thread`)
from collections.abc import Mapping
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from batonpass.simserver.sync.followers.frame_clock import FrameRate
from batonpass.simserver.sync.followers.node import NodeMachine
from batonpass.simserver.sync.followers.sealing import Ed25519Signing, GroupSeal
from batonpass.simserver.sync.followers.settings import FenceKind, ShowMode, ShowSettings
from batonpass.simserver.sync.shows.ports import DatagramSeal, ShowMachine

__all__ = ["OwnShowParts", "random_bytes", "settings_of"]

random_bytes: Final = secrets.token_bytes


def settings_of(state: Mapping[str, Any], more: Mapping[str, Any]) -> ShowSettings:
    """Of a show in this state. Raises TypeError, ValueError: `more` makes no sense."""
    rate, mode, fence = FrameRate(*state["rate"]), ShowMode(state["mode"]), FenceKind(state["fence"])
    return ShowSettings(rate=rate, mode=mode, fence=fence, **more)


class OwnShowParts:
    """Of one show; its key is drawn anew with each life of the process, and so no life uses the nonces of another."""

    def __init__(self) -> None:
        private = Ed25519PrivateKey.generate()
        self._signing: Final = Ed25519Signing(private)
        self.public = private.public_key().public_bytes_raw()

    def thread(self) -> int:
        """As `ShowParts.thread`."""
        return threading.get_ident()

    def machine(self, server: str, state: Mapping[str, Any], more: Mapping[str, Any], now_ns: int) -> ShowMachine:
        """As `ShowParts.machine`."""
        return NodeMachine(server, settings_of(state, more), random.SystemRandom(), now_ns, self._signing)

    def seal(self, key: bytes, epoch: int, number: int) -> DatagramSeal:
        """As `ShowParts.seal`."""
        return GroupSeal(key, epoch, number)
