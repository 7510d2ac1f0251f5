"""aioquic: QUIC in Python. One bidirectional stream, messages behind four bytes of length, datagrams of 1200 bytes."""

import asyncio
import datetime
import ssl
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.asyncio import serve as serve_quic
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent, StreamDataReceived
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from batonpass.scenarios.bench.link.workers.conversation import (
    BULK,
    BULK_WINDOW,
    COUNTED,
    COUNTED_WINDOWS,
    SMALL,
    WINDOW,
    Stopwatch,
    answer_to,
    async_rtt,
    is_lost,
    other_end,
    ready,
    share_left,
)
from batonpass.scenarios.bench.loops import arguments, tell

MODULE = "batonpass.scenarios.bench.link.workers.on_aioquic"
_LENGTH = struct.Struct("<I")
_PROTOCOL = ["bench"]


def framed(message: bytes | bytearray | memoryview) -> bytes:
    """A message behind its length."""
    return _LENGTH.pack(len(message)) + message


class Messages(QuicConnectionProtocol):  # type: ignore[misc, unused-ignore]
    """Takes messages out of streams. A server answers them, a client counts them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.buffer = bytearray()
        self.came: asyncio.Queue[int] = asyncio.Queue()

    def quic_event_received(self, event: QuicEvent) -> None:
        """More of a stream."""
        if not isinstance(event, StreamDataReceived):
            return
        self.buffer += event.data
        count = 0
        answers = b""
        while len(self.buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self.buffer)[0]
            if len(self.buffer) < end:
                break
            message = self.buffer[_LENGTH.size : end]
            del self.buffer[:end]
            count += 1
            if not self._quic.configuration.is_client:
                answer = answer_to(message)
                answers += framed(answer) if answer is not None else b""
        if answers:
            self.say(event.stream_id, answers)
        if count:
            self.came.put_nowait(count)

    def say(self, stream: int, data: bytes) -> None:
        """Send on a stream."""
        self._quic.send_stream_data(stream, data)
        self.transmit()


class LossyTransport:
    """Loses some datagrams on the way out; the rest is the transport's."""

    def __init__(self, transport: asyncio.DatagramTransport) -> None:
        self.transport = transport

    def sendto(self, data: bytes, address: Any = None) -> None:
        """Send, or lose it."""
        if not is_lost():
            self.transport.sendto(data, address)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)


class LossyMessages(Messages):
    """Loses one datagram in a hundred on the way out. Both ends do."""

    def connection_made(self, transport: Any) -> None:
        """Of a client and of a server's connection."""
        super().connection_made(LossyTransport(transport))


def protocol_of(work: str) -> type[Messages]:
    """What this work is done with."""
    return LossyMessages if work.endswith("-loss") else Messages


def configured(*, is_client: bool) -> QuicConfiguration:
    """The library's defaults, but for windows that a message of a megabyte fits in."""
    configuration = QuicConfiguration(alpn_protocols=_PROTOCOL, is_client=is_client)
    configuration.max_data = configuration.max_stream_data = 64 * 1024 * 1024
    if is_client:
        configuration.verify_mode = ssl.CERT_NONE
        return configuration
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    begins = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)  # noqa: UP017 - the peer's Python may be old
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(begins).not_valid_after(begins + datetime.timedelta(days=36500))
    certificate = builder.sign(key, hashes.SHA256())
    with tempfile.TemporaryDirectory() as directory:
        (chain := Path(directory) / "chain.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
        private = Path(directory) / "key.pem"
        private.touch(mode=0o600)
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        configuration.load_cert_chain(chain, private)
    return configuration


async def serve(work: str) -> None:
    """Answer every message, until the process is ended."""
    server = await serve_quic(
        "127.0.0.1", 0, configuration=configured(is_client=False), create_protocol=protocol_of(work)
    )
    ready(server._transport.get_extra_info("sockname")[1])
    await asyncio.Event().wait()


async def measure(work: str, seconds: float) -> float:
    """The figure of one work."""
    with other_end(MODULE, work) as (port,):
        client = connect(
            "127.0.0.1",
            int(port),
            configuration=configured(is_client=True),
            create_protocol=protocol_of(work),
            wait_connected=True,
        )
        async with client as quic:
            return await converse(quic, work, seconds)


async def converse(quic: Messages, work: str, seconds: float) -> float:
    """One client's side."""
    stream = quic._quic.get_next_available_stream_id()
    if work == "rtt":

        async def there_and_back() -> None:
            quic.say(stream, framed(SMALL))
            await quic.came.get()

        return await async_rtt(there_and_back, seconds)
    if work == "messages":
        quic.say(stream, framed(COUNTED) * (COUNTED_WINDOWS - 1) * WINDOW)
        watch = Stopwatch(seconds)
        while True:
            quic.say(stream, framed(COUNTED) * WINDOW)
            if not watch.count(WINDOW * await quic.came.get()):
                return watch.per_second
    message, window = (SMALL, WINDOW) if work == "echo" else (BULK, BULK_WINDOW)
    quic.say(stream, framed(message) * window)
    watch = Stopwatch(seconds)
    while watch.count(came := await quic.came.get()):
        quic.say(stream, framed(message) * came)
    return watch.per_second if message is SMALL else watch.per_second * len(BULK) / 1e6


if __name__ == "__main__":
    todo, duration_s = arguments("aioquic")
    if todo == "serve":
        asyncio.run(serve(sys.argv[3]))
    elif todo == "goodput-network":
        tell(asyncio.run(share_left(measure, "bulk", duration_s)))
    else:
        tell(asyncio.run(measure(todo, duration_s)))
    sys.stdout.flush()
