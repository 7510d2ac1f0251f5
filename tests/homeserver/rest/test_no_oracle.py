"""Hand-over messages that are forged, misdirected, spoilt or of the past, over a real link: nobody is answered."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.sealing import LIFETIME_S, Sealer
from batonpass.authority.wire.transfer import Parcel, Reserve, encode_link
from batonpass.crypto.keys import Identity
from tests.homeserver.served import Home, until

RESERVE: Final = Reserve(kind="ball", schema_version=1, state_bytes=100, places=1)


class Wire:
    """What `alpha.s1` sends to `alpha.s2` as it likes, and what it gets back."""

    def __init__(self, world: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.sends, self.takes = world, world.simservers["alpha.s1"], world.simservers["alpha.s2"]
        self.back: list[bytes] = []
        post = self.takes.link.post

        def spied(peer: str, address: Any, message: bytes, **how: Any) -> None:
            if peer == self.sends.config.name:
                self.back.append(message)
            post(peer, address, message, **how)

        monkeypatch.setattr(self.takes.link, "post", spied)

    def seal(self, *, by: Identity | None = None, name: str = "alpha.s1", **how: Any) -> Parcel:
        """Sealed as it ought to be, but for what is said otherwise."""
        fields: dict[str, Any] = {
            "to": "alpha.s2",
            "keys": self.takes.sealer.identity.public,
            "now_ns": time.monotonic_ns(),
            "now_s": time.time_ns() / 1e9,
            "on_path": False,
        }
        sealer = Sealer.without_log(name, by or self.sends.sealer.identity)
        return sealer.seal(RESERVE, Trace("transfer-1"), **fields | how)

    def send(self, data: bytes) -> None:
        self.sends.link.post("alpha.s2", self.takes.link.address, data)


def flipped(parcel: Parcel, place: float) -> Parcel:
    at = int(len(parcel.sealed) * place)
    other = "A" if parcel.sealed[at] != "A" else "B"
    return replace(parcel, sealed=parcel.sealed[:at] + other + parcel.sealed[at + 1 :])


def wrong_receiver(wire: Wire) -> bytes:
    return encode_link(wire.seal(to="alpha.h1", keys=wire.home.node.sealer.identity.public))


def other_name(wire: Wire) -> bytes:
    """Good, and sealed by another: what somebody recorded of that one's traffic, or a server that passes it on."""
    return encode_link(wire.seal(by=wire.home.node.sealer.identity, name="alpha.h1"))


BAD: Final[dict[str, Callable[[Wire], bytes]]] = {
    "noise": lambda _: b"\x00noise",
    "forged": lambda wire: encode_link(wire.seal(by=Identity.generate())),
    "forged by a stranger": lambda wire: encode_link(wire.seal(by=Identity.generate(), name="alpha.nobody")),
    "wrong receiver": wrong_receiver,
    "right name, other keys": lambda wire: encode_link(wire.seal(keys=Identity.generate().public)),
    "sealed by another": other_name,
    "flipped at the start": lambda wire: encode_link(flipped(wire.seal(), 0.02)),
    "flipped in the middle": lambda wire: encode_link(flipped(wire.seal(), 0.5)),
    "flipped near the end": lambda wire: encode_link(flipped(wire.seal(), 0.95)),
    "other trace": lambda wire: encode_link(replace(wire.seal(), trace=Trace("transfer-2"))),
    "other kind": lambda wire: encode_link(replace(wire.seal(), kind="state")),
    "recorded, of the past": lambda wire: encode_link(wire.seal(now_s=time.time_ns() / 1e9 - LIFETIME_S - 60.0)),
}


async def test_failures_row_18_whatever_does_not_open_is_counted_and_nobody_is_answered(
    world: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is good is answered, before and after; of the others the sender hears nothing but the link's own acks."""
    wire = Wire(world, monkeypatch)
    counts = wire.takes.counts
    await answered(wire)
    for number, (kind, make) in enumerate(BAD.items(), 1):
        wire.send(make(wire))
        await until(lambda: counts["bad_message"] >= number)  # noqa: B023 — waited for before the next
        assert counts["bad_message"] == number, kind
    # What comes after them in order is answered: all that they would have led to has been done by now.
    heard, wire.back = wire.back, []
    await answered(wire)
    assert heard == []
    assert counts["bad_message"] == len(BAD)
    assert counts["internal_error"] == 0
    # And people are told who it was, once.
    told = [record.getMessage() for record in caplog.records if record.name == "batonpass.audit"]
    assert len(told) == 1, told
    assert told[0].startswith("audit: event=message_dropped peer=alpha.s1 reason=")


async def answered(wire: Wire) -> None:
    wire.send(encode_link(wire.seal()))
    await until(lambda: wire.back)
    wire.back.clear()
