"""The floor: bare UDP with trio between as many processes, and of cryptography what a hand-over needs.

Nothing is decided, looked up, encoded, repeated or written down; the log's round of a case 2 is not in it. Every
message is an envelope: its sender makes a fresh key, agrees, encrypts and signs; its receiver verifies, reads a point,
agrees and decrypts. It travels over an encrypted link, too. Beside that, case 3 signs a pass and verifies it. With
every fourth hand-over, which is how often there is a new one, it does so with the grant before it. Case 2 signs a
certificate and verifies it. The state is hashed once at each end, and encrypted once on its way.

case 3   A ─▶ B ─▶ A                 case 2   A ─▶ H ─▶ B ─▶ A, and the state A ─▶ B meanwhile

First one follows on the other, then they are paced like those of a cluster, which are asked for one at a time. A
process that has slept finds the code and the tables that it needs out of the processor's caches. Last, small ones are
many at once. Each still has an envelope, a certificate and a datagram of its own: what can be shared in company is not
the floor's affair.
"""

import hashlib
import itertools
import os
import socket
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Final

import trio
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from batonpass.crypto.keys import decode_point_untrusted, encode_point
from batonpass.scenarios.bench.loops import arguments, tell_all
from batonpass.scenarios.bench.transfers.cores import ahead_of_others, run_apart
from batonpass.scenarios.bench.transfers.course import BULK, MANY
from batonpass.scenarios.report.statistics import percentile

MODULE: Final = "batonpass.scenarios.bench.transfers.workers.on_floor"
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


class FloorNode:
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
    crypto, node = Cryptography(), FloorNode()
    print(node.port, flush=True)  # noqa: T201
    while True:
        await node.receive()
        crypto.open()
        crypto.sign()
        crypto.seal()
        await node.send(_MESSAGE, target)


async def serve_target(case: str, driver: int) -> None:
    """B: takes the state, and what allows it to simulate."""
    crypto, node = Cryptography(), FloorNode()
    print(node.port, flush=True)  # noqa: T201
    grants, states = 0, deque[bytes]()
    for number in itertools.count():
        # In case 2 state and grant come from two sides, in either order, and of many at once.
        while not states or (case == "2" and not grants):
            message = await node.receive()
            if len(message) > len(_MESSAGE):
                states.append(message[len(_MESSAGE) :])
            else:
                grants += 1
        for _ in range(2 if case == "2" else 1):
            crypto.open()
        grants -= case == "2"
        has_new_grant = case == "3" and number % _PASSES_OF_A_GRANT == 0
        crypto.verify(2 if has_new_grant else 1)
        crypto.open_state(states.popleft())
        crypto.seal()
        await node.send(_MESSAGE, driver)


@contextmanager
def _process(*arguments: object, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Another process, which may be an end of the hand-over; its id, and the port on which it listens."""
    argv = [sys.executable, "-m", MODULE, "serve", "0", *map(str, arguments)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            if end is not None:
                run_apart(process.pid, end)
            assert process.stdout is not None  # noqa: S101 - for the type checker: it was asked for
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()


async def measure(work: str, seconds: float) -> dict[str, float]:
    """The figures of one hand-over after the other, of paced ones, and, of small states, of many at once."""
    if work == "bulk":
        with _driver("3", 300) as driver:
            return {"many-rate": await driver.many_rate(BULK, seconds)}
    case, size, _ = work.split("-")
    with _driver(case, _BYTES[size]) as driver:
        figures = await driver.one_by_one(seconds)
        return figures | ({"many-rate": await driver.many_rate(MANY, seconds)} if size == "300" else {})


@contextmanager
def _driver(case: str, state_bytes: int) -> Iterator["FloorDriver"]:
    node = FloorNode()
    with closing(node), _process("target", case, node.port, end=1) as (pid, target):
        if case == "3":
            run_apart(0, 0)
            yield FloorDriver(node, case, state_bytes, (0, pid), target, 0)
            return
        with _process("home", target, node.port) as (_, home):
            run_apart(0, 0)
            yield FloorDriver(node, case, state_bytes, (0, pid), target, home)


class FloorDriver:
    """A: hands over, and measures."""

    def __init__(
        self, node: FloorNode, case: str, state_bytes: int, ends: tuple[int, int], target: int, home: int
    ) -> None:
        self._node = node
        self._ends = ends
        self._case = case
        self._state = os.urandom(state_bytes)
        self._target = target
        self._home = home
        self._crypto = Cryptography()

    async def _begin(self) -> None:
        if self._case == "2":
            self._crypto.seal()
            await self._node.send(_MESSAGE, self._home)
        else:
            self._crypto.sign()
        sealed = self._crypto.seal_state(self._state)
        self._crypto.seal()
        await self._node.send(_MESSAGE + sealed, self._target)

    async def _end(self) -> None:
        with trio.fail_after(_PATIENCE_S):
            await self._node.receive()
        self._crypto.open()

    async def _hand_over(self) -> float:
        """How long one took, in milliseconds."""
        began_s = time.perf_counter()
        await self._begin()
        await self._end()
        return (time.perf_counter() - began_s) * 1e3

    async def one_by_one(self, seconds: float) -> dict[str, float]:
        """p50 and p99 in milliseconds, each after the one before and paced; of the first, how many in a second."""
        ordinary_ms = await self._to_and_fro(seconds / 2, 0.0)
        with ExitStack() as stack:
            with suppress(PermissionError):
                stack.enter_context(ahead_of_others(self._ends))
            took_ms = await self._to_and_fro(seconds / 2, 0.0)
            paced_ms = await self._to_and_fro(seconds / 2, _PACE_S)
        return {
            "ordinary-p50": percentile(ordinary_ms, 50),
            "p50": percentile(took_ms, 50),
            "p99": percentile(took_ms, 99),
            "rate": 1e3 * len(took_ms) / sum(took_ms),
            "paced-p50": percentile(paced_ms, 50),
            "paced-p99": percentile(paced_ms, 99),
        }

    async def _to_and_fro(self, seconds: float, pace_s: float) -> list[float]:
        """How long each took, in milliseconds, once warm."""
        took_ms: list[float] = []
        until_s = time.perf_counter() + seconds
        while time.perf_counter() < until_s or len(took_ms) < 2 * _WARM_UP:
            if pace_s:
                await trio.sleep(pace_s)
            took_ms.append(await self._hand_over())
        return took_ms[_WARM_UP:]

    async def many_rate(self, count: int, seconds: float) -> float:
        """How many in a second, with `count` of them begun and not ended at any time."""
        for _ in range(count):
            await self._begin()
        began_s, ended = time.perf_counter(), 0
        while ended < 2 * count or time.perf_counter() - began_s < seconds:
            await self._end()
            await self._begin()
            ended += 1
        rate = ended / (time.perf_counter() - began_s)
        for _ in range(count):
            await self._end()
        return rate


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
