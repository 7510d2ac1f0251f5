"""The floor: bare UDP with trio between as many processes, and of cryptography what a hand-over needs.

Nothing is decided, looked up, encoded, repeated or written down; the log's round of a case 2 is not in it. Every
message is an envelope: its sender makes a fresh key, agrees, encrypts and signs; its receiver verifies, reads a point,
agrees and decrypts. It travels over an encrypted link, too. Beside that, case 3 signs a pass and verifies it, and with
every fourth hand-over, which is how often there is a new one, the grant before it; case 2 signs a certificate and
verifies it. The state is hashed once at each end, and encrypted once on its way.

case 3   A ─▶ B ─▶ A                 case 2   A ─▶ H ─▶ B ─▶ A, and the state A ─▶ B meanwhile

First one follows on the other, then they are paced like those of a cluster, which are asked for one at a time: who has
slept finds the code and the tables that he needs out of the processor's caches.
"""

import hashlib
import itertools
import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import trio
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crypto.keys import decode_point_untrusted, encode_point
from scenarios.bench.loops import arguments, tell_all
from scenarios.report.statistics import percentile

MODULE: Final = "scenarios.bench.transfers.workers.on_floor"
_BYTES: Final = {"300": 300, "1M": 1024 * 1024}
_MESSAGE: Final = bytes(range(250)) * 8
"""About what a message of a hand-over is, once it is sealed."""
_DATAGRAM_BYTES: Final = 60_000
_BUFFER_BYTES: Final = 4 * 1024 * 1024
_ECDSA: Final = ec.ECDSA(hashes.SHA256())
_NONCE: Final = bytes(12)
_LAST: Final = b"\1"
_MORE: Final = b"\0"
_WARM_UP: Final = 20
# About as long as the pause between two hand-overs of a cluster, which are asked for, and looked for, by REST.
_PACE_S: Final = 0.025
_PASSES_OF_A_GRANT: Final = 4
_PATIENCE_S: Final = 10.0


class Cryptography:
    """Of one process: keys that outlive the hand-overs (the same in all), and what is done with them."""

    def __init__(self) -> None:
        self._key = ec.derive_private_key(7, ec.SECP256R1())
        self._public = self._key.public_key()
        self._signature = self._key.sign(_MESSAGE, _ECDSA)
        self._point = encode_point(self._public)
        self._shared = AESGCM(self._agree(self._public))
        self._sealed = self._shared.encrypt(_NONCE, _MESSAGE, None)

    def _agree(self, public: ec.EllipticCurvePublicKey) -> bytes:
        return self._key.exchange(ec.ECDH(), public)[:16]

    def seal(self) -> None:
        """An envelope, for the link."""
        fresh = ec.generate_private_key(ec.SECP256R1())
        AESGCM(fresh.exchange(ec.ECDH(), self._public)[:16]).encrypt(_NONCE, _MESSAGE, None)
        self.sign()
        self._shared.encrypt(_NONCE, _MESSAGE, None)

    def open(self) -> None:
        """An envelope that came, over the link."""
        self._shared.decrypt(_NONCE, self._sealed, None)
        self.verify()
        AESGCM(self._agree(decode_point_untrusted(self._point))).decrypt(_NONCE, self._sealed, None)

    def sign(self) -> None:
        """A certificate."""
        self._key.sign(_MESSAGE, _ECDSA)

    def verify(self, times: int = 1) -> None:
        """Certificates that came."""
        for _ in range(times):
            self._public.verify(self._signature, _MESSAGE, _ECDSA)

    def seal_state(self, state: bytes) -> bytes:
        """Its hash, and its encryption for the way."""
        hashlib.sha256(state).digest()
        return self._shared.encrypt(_NONCE, state, None)

    def open_state(self, sealed: bytes) -> None:
        """The other way round."""
        hashlib.sha256(self._shared.decrypt(_NONCE, sealed, None)).digest()


class Node:
    """One process's socket."""

    def __init__(self) -> None:
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            udp.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        udp.bind(("127.0.0.1", 0))
        self.port: int = udp.getsockname()[1]
        self._udp = trio.socket.from_stdlib_socket(udp)
        self._parts: dict[int, list[bytes]] = defaultdict(list)

    def close(self) -> None:
        """Close it."""
        self._udp.close()

    async def send(self, data: bytes, port: int) -> None:
        """A message, in as many datagrams as it takes."""
        for start in range(0, len(data), _DATAGRAM_BYTES):
            part = data[start : start + _DATAGRAM_BYTES]
            mark = _LAST if start + _DATAGRAM_BYTES >= len(data) else _MORE
            await self._udp.sendto(mark + part, ("127.0.0.1", port))

    async def receive(self) -> bytes:
        """The next message; loopback keeps the order of each sender."""
        while True:
            datagram, (_, port) = await self._udp.recvfrom(65_536)
            self._parts[port].append(datagram[1:])
            if datagram[:1] == _LAST:
                return b"".join(self._parts.pop(port))


async def serve_home(target: int, _driver: int) -> None:
    """H of case 2: what the home instance does, without its log."""
    crypto, node = Cryptography(), Node()
    print(node.port, flush=True)  # noqa: T201
    while True:
        await node.receive()
        crypto.open()
        crypto.sign()
        crypto.seal()
        await node.send(_MESSAGE, target)


async def serve_target(case: str, driver: int) -> None:
    """B: takes the state, and what allows it to simulate."""
    crypto, node = Cryptography(), Node()
    print(node.port, flush=True)  # noqa: T201
    for number in itertools.count():
        # In case 2 state and grant come from two sides, in either order.
        messages = [await node.receive() for _ in range(2 if case == "2" else 1)]
        state = max(messages, key=len)[len(_MESSAGE) :]
        for _ in messages:
            crypto.open()
        has_new_grant = case == "3" and number % _PASSES_OF_A_GRANT == 0
        crypto.verify(2 if has_new_grant else 1)
        crypto.open_state(state)
        crypto.seal()
        await node.send(_MESSAGE, driver)


@contextmanager
def _process(*arguments: object) -> Iterator[int]:
    """Another process; the port on which it listens."""
    argv = [sys.executable, "-m", MODULE, "serve", "0", *map(str, arguments)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None  # noqa: S101 - for the type checker: it was asked for
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def measure(work: str, seconds: float) -> dict[str, float]:
    """p50 and p99 of one hand-over after the other, and of paced ones, in milliseconds."""
    case, size, _ = work.split("-")
    node = Node()
    with closing(node), _process("target", case, node.port) as target:
        if case == "3":
            return await _drive(node, case, _BYTES[size], seconds, target, 0)
        with _process("home", target, node.port) as home:
            return await _drive(node, case, _BYTES[size], seconds, target, home)


async def _drive(node: Node, case: str, size: int, seconds: float, target: int, home: int) -> dict[str, float]:
    crypto, state = Cryptography(), os.urandom(size)

    async def hand_over() -> float:
        began_s = time.perf_counter()
        if case == "2":
            crypto.seal()
            await node.send(_MESSAGE, home)
        else:
            crypto.sign()
        sealed = crypto.seal_state(state)
        crypto.seal()
        await node.send(_MESSAGE + sealed, target)
        with trio.fail_after(_PATIENCE_S):
            await node.receive()
        crypto.open()
        return (time.perf_counter() - began_s) * 1e3

    figures: dict[str, float] = {}
    for name, pace_s in (("", 0.0), ("paced-", _PACE_S)):
        took_ms: list[float] = []
        until_s = time.perf_counter() + seconds / 2
        while time.perf_counter() < until_s or len(took_ms) < 2 * _WARM_UP:
            if pace_s:
                await trio.sleep(pace_s)
            took_ms.append(await hand_over())
        figures |= {f"{name}p{rank}": percentile(took_ms[_WARM_UP:], rank) for rank in (50, 99)}
    return figures


def main() -> None:
    """Measure, or be one of the other processes."""
    work, seconds = arguments("cryptography")
    if work == "serve":
        role, what, driver = sys.argv[3], sys.argv[4], int(sys.argv[5])
        trio.run(serve_home, int(what), driver) if role == "home" else trio.run(serve_target, what, driver)
    else:
        tell_all(trio.run(measure, work, seconds))


if __name__ == "__main__":
    main()
