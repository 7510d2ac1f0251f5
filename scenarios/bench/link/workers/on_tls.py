"""TLS 1.3 over TCP with a P-256 certificate: `trio-...` with `trio.SSLStream`, `blocking-...` with Python's ssl module.

Messages have four bytes of length in front. Only the server has a certificate, which is less than the link does.
"""

import datetime
import socket
import ssl
import struct
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio
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
    other_end,
    ready,
    rtt,
)
from batonpass.scenarios.bench.loops import arguments, tell

MODULE = "batonpass.scenarios.bench.link.workers.on_tls"
_LENGTH = struct.Struct("<I")
_READ_BYTES = 256 * 1024


def framed(message: bytes | bytearray | memoryview) -> bytes:
    """A message behind its length."""
    return _LENGTH.pack(len(message)) + message


class Frames:
    """Takes messages out of a stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes | bytearray) -> Iterator[bytearray]:
        """The messages that are whole now."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            yield self._buffer[_LENGTH.size : end]
            del self._buffer[:end]


def answers_to(messages: Iterator[bytearray]) -> bytes:
    """What the server says, in one go."""
    answers = [answer_to(message) for message in messages]
    return b"".join(framed(answer) for answer in answers if answer is not None)


@contextmanager
def server_context() -> Iterator[ssl.SSLContext]:
    """A context with a fresh certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    begins = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begins)
        .not_valid_after(begins + datetime.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        pem = Path(directory) / "both.pem"
        pem.touch(mode=0o600)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        pem.write_bytes(private + certificate.public_bytes(Encoding.PEM))
        context.load_cert_chain(pem)
    yield context


def client_context() -> ssl.SSLContext:
    """Takes any certificate: what is measured is what the messages cost."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def serve_blocking() -> None:
    """Answer one client."""
    with server_context() as context, socket.create_server(("127.0.0.1", 0)) as listener:
        ready(listener.getsockname()[1])
        tcp, _ = listener.accept()
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(tcp, server_side=True) as stream:
            frames = Frames()
            while data := stream.recv(_READ_BYTES):
                answers = answers_to(frames.feed(data))
                if answers:
                    stream.sendall(answers)


async def serve_trio() -> None:
    """Answer one client."""

    async def answer(stream: trio.SSLStream[trio.SocketStream]) -> None:
        frames = Frames()
        while data := await stream.receive_some(_READ_BYTES):
            answers = answers_to(frames.feed(data))
            if answers:
                await stream.send_all(answers)

    with server_context() as context:
        listeners = await trio.open_ssl_over_tcp_listeners(0, context, host="127.0.0.1")
        listener = listeners[0].transport_listener
        if not isinstance(listener, trio.SocketListener):
            raise TypeError("a TCP listener has a socket")
        ready(listener.socket.getsockname()[1])
        await trio.serve_listeners(answer, listeners)


def one_way_blocking(stream: ssl.SSLSocket, receive: Callable[[], int], seconds: float) -> float:
    """Counted messages, a window at a time."""
    stream.sendall(framed(COUNTED) * (COUNTED_WINDOWS - 1) * WINDOW)
    watch = Stopwatch(seconds)
    while True:
        stream.sendall(framed(COUNTED) * WINDOW)
        while not (came := receive()):
            pass
        if not watch.count(came * WINDOW):
            return watch.per_second


async def one_way_trio(
    stream: trio.SSLStream[trio.SocketStream], receive: Callable[[], Awaitable[int]], seconds: float
) -> float:
    """As `one_way_blocking`."""
    await stream.send_all(framed(COUNTED) * (COUNTED_WINDOWS - 1) * WINDOW)
    watch = Stopwatch(seconds)
    while True:
        await stream.send_all(framed(COUNTED) * WINDOW)
        while not (came := await receive()):
            pass
        if not watch.count(came * WINDOW):
            return watch.per_second


def measure_blocking(work: str, seconds: float) -> float:
    """The figure of one work."""
    with other_end(MODULE, "blocking") as (port,), socket.create_connection(("127.0.0.1", int(port))) as tcp:
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with client_context().wrap_socket(tcp) as stream:
            frames = Frames()

            def receive() -> int:
                return sum(1 for _ in frames.feed(stream.recv(_READ_BYTES)))

            if work == "rtt":

                def there_and_back() -> None:
                    stream.sendall(framed(SMALL))
                    while not receive():
                        pass

                return rtt(there_and_back, seconds)
            if work == "messages":
                return one_way_blocking(stream, receive, seconds)
            message, window = (SMALL, WINDOW) if work == "echo" else (BULK, BULK_WINDOW)
            for _ in range(window):
                stream.sendall(framed(message))
            watch = Stopwatch(seconds)
            while watch.count(came := receive()):
                for _ in range(came):
                    stream.sendall(framed(message))
            return watch.per_second if message is SMALL else watch.per_second * len(BULK) / 1e6


async def measure_trio(work: str, seconds: float) -> float:
    """The figure of one work."""
    with other_end(MODULE, "trio") as (port,):
        stream = await trio.open_ssl_over_tcp_stream("127.0.0.1", int(port), ssl_context=client_context())
        frames = Frames()

        async def receive() -> int:
            data = await stream.receive_some(_READ_BYTES)
            return sum(1 for _ in frames.feed(data))

        if work == "rtt":

            async def there_and_back() -> None:
                await stream.send_all(framed(SMALL))
                while not await receive():
                    pass

            return await async_rtt(there_and_back, seconds)
        if work == "messages":
            return await one_way_trio(stream, receive, seconds)
        message, window = (SMALL, WINDOW) if work == "echo" else (BULK, BULK_WINDOW)
        # Sent by a task of its own: a stream that both ends only write to would stall.
        to_send, from_caller = trio.open_memory_channel[int](window)

        async def send_all() -> None:
            async for count in from_caller:
                await stream.send_all(framed(message) * count)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all)
            await to_send.send(window)
            watch = Stopwatch(seconds)
            while watch.count(came := await receive()):
                if came:
                    await to_send.send(came)
            nursery.cancel_scope.cancel()
        return watch.per_second if message is SMALL else watch.per_second * len(BULK) / 1e6


if __name__ == "__main__":
    todo, duration_s = arguments("trio")
    if todo == "serve":
        serve_blocking() if sys.argv[3] == "blocking" else trio.run(serve_trio)
    else:
        kind, _, what = todo.partition("-")
        tell(measure_blocking(what, duration_s) if kind == "blocking" else trio.run(measure_trio, what, duration_s))
