"""Record what two real ends of a link say to each other: `python -m tests.actors.link.record_vectors`.

Writes tests/vectors/link/*.json, which `second_decoder` reads. Keys, dice and clock are fixed, so a new recording
differs from the old one only where the protocol or the links' behaviour does, and in the ECDSA signatures, which have
dice of their own.
"""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from batonpass.actors.link import LARGE_MESSAGE_BYTES
from batonpass.actors.link.frames import DatagramKind, write_header
from batonpass.actors.link.gate import HandshakeGate
from batonpass.crypto.key_forms import encode_point, encode_scalar
from batonpass.crypto.session import echo_cookie, prove_cookie, read_hello_untrusted
from batonpass.crypto.static_secrets import StaticSecrets
from tests.actors.link.network import IDENTITIES, Faults, Network, Node, Transit

DIRECTORY = Path(__file__).parent.parent.parent / "vectors" / "link"


class Recorder:
    """A network whose nodes' ephemeral keys and messages are written down."""

    def __init__(self, **more: Any) -> None:
        self.network = Network(seed=7, **more)
        self.ephemerals: list[ec.EllipticCurvePrivateKey] = []
        self.received: list[dict[str, Any]] = []
        for node in self.network.nodes:
            self._watch(node)

    def _watch(self, node: Node) -> None:
        draw = node.link._sessions._new_ephemeral

        def remembered() -> ec.EllipticCurvePrivateKey:
            key = draw()
            self.ephemerals.append(key)
            return key

        node.link._sessions._new_ephemeral = remembered

    def restart(self, node: Node) -> None:
        """The process dies, with what it had received written down, and begins anew."""
        self.write_down()
        node.start(self.network.now)
        self._watch(node)

    def write_down(self) -> None:
        """What the applications have received since this was called last."""
        for node in self.network.nodes:
            for message in node.received:
                sender = self.network.other(node).name
                life = node.link._sessions._incarnation
                said = {"from": sender, "to_incarnation": life, "channel": message.channel}
                self.received.append(said | {"contents": message.data.hex()})
            node.received.clear()

    def exchange(self, *messages: tuple[str, int, bytes]) -> None:
        """Send these (sender, channel, contents), and run until all have arrived."""
        nodes = {node.name: node for node in self.network.nodes}
        wanted = {node.name: len(node.received) for node in self.network.nodes}
        for sender, channel, contents in messages:
            self.network.send(nodes[sender], contents, channel)
            wanted[self.network.other(nodes[sender]).name] += 1
        self.network.run(lambda: all(len(nodes[name].received) >= count for name, count in wanted.items()))

    def recording(self, about: str) -> dict[str, Any]:
        """As JSON."""
        self.write_down()
        servers = {
            name: {
                "signing": encode_point(identity.public.signing).hex(),
                "agreement": encode_point(identity.public.agreement).hex(),
            }
            for name, identity in IDENTITIES.items()
        }
        return {
            "about": about,
            "servers": servers,
            "agreement_private_keys": {
                name: encode_scalar(identity.agreement).hex() for name, identity in IDENTITIES.items()
            },
            "ephemeral_private_keys": [encode_scalar(key).hex() for key in self.ephemerals],
            "datagrams": [_transit(transit) for transit in self.network.history],
            "received": self.received,
        }


def _transit(transit: Transit) -> dict[str, str]:
    source, destination = (f"{host}:{port}" for host, port in (transit.source, transit.destination))
    return {"from": source, "to": destination, "bytes": transit.datagram.hex()}


def _first_messages() -> dict[str, Any]:
    recorder = Recorder()
    recorder.exchange(("alpha", 0, b"hello"), ("alpha", 3, b""), ("alpha", 15, b"other channel"))
    recorder.exchange(("beta", 0, b"hello yourself"), ("alpha", 0, b"again"))
    recorder.network.run_for(0.1)
    for datagram, destination in recorder.network.alpha.link.close(recorder.network.now):
        recorder.network.put(Transit(recorder.network.alpha.address, destination, datagram))
    recorder.network.run_for(0.1)
    return recorder.recording("a handshake, small messages on three channels both ways, a CLOSE")


def _large_messages() -> dict[str, Any]:
    recorder = Recorder(faults=Faults(lose=0.2))
    dice = random.Random("contents")
    recorder.exchange(("alpha", 1, dice.randbytes(9_000)), ("alpha", 2, b"small beside large"))
    recorder.exchange(("beta", 1, dice.randbytes(3_000)))
    recorder.network.run_for(0.1)
    return recorder.recording("large messages in pieces, datagrams lost and sent again, ACKs with several ranges")


def _both_open() -> dict[str, Any]:
    recorder = Recorder()
    recorder.exchange(("alpha", 0, b"from alpha"), ("beta", 0, b"from beta"))
    recorder.network.run_for(0.5)
    return recorder.recording("both open at once: two handshakes cross, and both prefer the same session")


def _restart() -> dict[str, Any]:
    recorder = Recorder()
    recorder.exchange(("alpha", 0, b"to the first life"), ("beta", 0, b"from the first life"))
    recorder.network.run_for(0.5)
    recorder.restart(recorder.network.beta)
    recorder.exchange(("beta", 0, b"from the second life"), ("alpha", 0, b"to the second life"))
    recorder.network.run_for(0.1)
    return recorder.recording("beta restarts with another incarnation; messages are numbered anew")


def _new_keys() -> dict[str, Any]:
    settings = replace(Network().settings, rekey_after_datagrams=4)
    recorder = Recorder(settings=settings)
    for number in range(6):
        recorder.exchange(("alpha", 0, f"message {number}".encode()))
        recorder.network.run_for(0.05)
    return recorder.recording("a session is replaced after four datagrams; counters and numbers go on")


def _cookie() -> dict[str, Any]:
    recorder = Recorder()
    network = recorder.network
    gate = HandshakeGate(b"secret of the gate" + bytes(14), rate_per_s=1.0, burst=1.0, now=0.0)

    def under_load(transit: Transit) -> bool:
        """Beta's endpoint answers the first HELLO with a COOKIE, as the endpoint does under load, and twice so: before
        and after it has looked the keys of alpha up."""
        if transit.datagram[0] != DatagramKind.HELLO or any(transit.datagram[8:16]):
            return True
        keys = IDENTITIES["beta"].public
        hello = read_hello_untrusted(transit.datagram[16:], responder="beta", responder_keys=keys)
        header = write_header(DatagramKind.COOKIE, hello.session_id, gate.cookie(hello, transit.source, network.now))
        secrets = StaticSecrets(IDENTITIES["beta"], IDENTITIES["alpha"].public)
        for proof in (echo_cookie(header, hello.mac), prove_cookie(secrets, hello, header)):
            network.put(Transit(transit.destination, transit.source, header + proof))
        return False

    network.passes = under_load
    recorder.exchange(("alpha", 0, b"worth a cookie"))
    network.run_for(0.1)
    return recorder.recording("the responder is under load: a COOKIE, and the HELLO again with it")


def _move() -> dict[str, Any]:
    recorder = Recorder()
    recorder.exchange(("alpha", 0, b"from the first address"), ("beta", 0, b"to the first address"))
    recorder.network.run_for(0.2)
    recorder.network.alpha.address = ("10.0.0.77", 77)
    recorder.exchange(("alpha", 0, b"from the second address"))
    recorder.network.run_for(2.0)
    recorder.exchange(("beta", 0, b"to the second address"))
    recorder.network.run_for(0.1)
    return recorder.recording("alpha's address changes: CHALLENGE and RESPONSE")


def _asked_for() -> dict[str, Any]:
    recorder = Recorder(settings=replace(Network().settings, initial_flight_bytes=1))
    network = recorder.network
    recorder.exchange(("alpha", 0, b"before"), ("alpha", 16, b"without order"), ("alpha", 31, b"nor this"))
    network.send(network.alpha, b"\x2a" * (LARGE_MESSAGE_BYTES + 1), 4)
    network.run(lambda: sum(len(transit.datagram) == 1200 for transit in network.history) >= 6)
    return recorder.recording(
        "a message above 4 MiB is asked for and granted; its beginning; channels without an order"
    )


SCENES: dict[str, Callable[[], dict[str, Any]]] = {
    "first-messages": _first_messages,
    "large-messages": _large_messages,
    "both-open": _both_open,
    "restart": _restart,
    "new-keys": _new_keys,
    "cookie": _cookie,
    "move": _move,
    "asked-for": _asked_for,
}


def main() -> None:
    """Write all of them."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name, scene in SCENES.items():
        text = json.dumps(scene(), indent=1)
        (DIRECTORY / f"{name}.json").write_text(f"{text}\n", encoding="ascii")


if __name__ == "__main__":
    main()
