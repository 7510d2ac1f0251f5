"""pykka: one thread per actor, `ask` and `tell`."""

import pykka

from batonpass.scenarios.bench.loops import CHUNK, FLOOD, arguments, expect, rate, tell


class PykkaCounting(pykka.ThreadingActor):
    """Counts the ones, answers the zeros with the count."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def on_receive(self, message: int) -> int:
        """Count."""
        self.count += message
        return self.count


class PykkaCasts:
    """Floods of `tell`."""

    def __init__(self, ref: pykka.ActorRef[PykkaCounting]) -> None:
        self.ref = ref
        self.sent = 0

    def __call__(self) -> int:
        """One flood, and an `ask` to make sure that it has arrived."""
        for _ in range(FLOOD):
            self.ref.tell(1)
        self.sent += FLOOD
        expect(self.ref.ask(0), self.sent)
        return FLOOD


def measure(work: str, seconds: float) -> float:
    """Calls or casts per second."""
    ref = PykkaCounting.start()

    def calls() -> int:
        for _ in range(CHUNK):
            ref.ask(0)
        return CHUNK

    try:
        return rate(calls if work == "call" else PykkaCasts(ref), seconds)
    finally:
        ref.stop()


if __name__ == "__main__":
    tell(measure(*arguments("pykka")))
