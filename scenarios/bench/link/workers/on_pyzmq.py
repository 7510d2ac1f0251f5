"""CurveZMQ: libzmq's own encryption with long-term keys on both sides, over TCP, DEALER to ROUTER."""

import sys

import zmq

from batonpass.scenarios.bench.link.workers.conversation import (
    BULK,
    BULK_WINDOW,
    COUNTED,
    COUNTED_WINDOWS,
    SMALL,
    WINDOW,
    Stopwatch,
    answer_to,
    other_end,
    ready,
    rtt,
)
from batonpass.scenarios.bench.loops import arguments, tell

MODULE = "batonpass.scenarios.bench.link.workers.on_pyzmq"


def serve() -> None:
    """Answer every message, until the process is ended."""
    public, secret = zmq.curve_keypair()
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.curve_server = True
        router.curve_secretkey = secret
        port = router.bind_to_random_port("tcp://127.0.0.1")
        ready(port, public.decode())
        while True:
            client, message = router.recv_multipart()
            answer = answer_to(message)
            if answer is not None:
                router.send_multipart((client, answer))


def one_way(dealer: zmq.Socket[bytes], seconds: float) -> float:
    """Counted messages per second; which of them share a segment is the library's business."""

    def send_window() -> None:
        for _ in range(WINDOW):
            dealer.send(COUNTED)

    for _ in range(COUNTED_WINDOWS - 1):
        send_window()
    watch = Stopwatch(seconds)
    while True:
        send_window()
        dealer.recv()
        if not watch.count(WINDOW):
            return watch.per_second


def measure(work: str, seconds: float) -> float:
    """The figure of one work."""
    public, secret = zmq.curve_keypair()
    with other_end(MODULE) as (port, server_key), zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.curve_publickey, dealer.curve_secretkey = public, secret
        dealer.curve_serverkey = server_key.encode()
        dealer.linger = 0
        dealer.connect(f"tcp://127.0.0.1:{port}")
        if work == "rtt":

            def there_and_back() -> None:
                dealer.send(SMALL)
                dealer.recv()

            return rtt(there_and_back, seconds)
        if work == "messages":
            return one_way(dealer, seconds)
        message, window = (SMALL, WINDOW) if work == "echo" else (BULK, BULK_WINDOW)
        for _ in range(window):
            dealer.send(message)
        watch = Stopwatch(seconds)
        while True:
            dealer.recv()
            dealer.send(message)
            if not watch.count(1):
                return watch.per_second if message is SMALL else watch.per_second * len(BULK) / 1e6


if __name__ == "__main__":
    todo, duration_s = arguments("pyzmq")
    if todo == "serve":
        serve()
    else:
        tell(measure(todo, duration_s))
    sys.stdout.flush()
