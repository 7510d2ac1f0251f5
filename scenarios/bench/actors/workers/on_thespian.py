"""thespian, its simpleSystemBase: everything in the calling thread, synchronously."""

from typing import Any

from thespian.actors import Actor, ActorSystem

from batonpass.scenarios.bench.loops import CHUNK, FLOOD, arguments, expect, rate, tell


class Counting(Actor):
    """Counts the ones, answers the zeros with the count."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def receiveMessage(self, msg: Any, sender: Any) -> None:  # noqa: N802 - the library's name
        """Count."""
        if not isinstance(msg, int):
            return
        self.count += msg
        if msg == 0:
            self.send(sender, self.count)


def measure(work: str, seconds: float) -> float:
    """Calls or casts per second."""
    system = ActorSystem("simpleSystemBase")
    actor = system.createActor(Counting)
    sent = 0

    def calls() -> int:
        for _ in range(CHUNK):
            system.ask(actor, 0)
        return CHUNK

    def casts() -> int:
        nonlocal sent
        for _ in range(FLOOD):
            system.tell(actor, 1)
        sent += FLOOD
        expect(system.ask(actor, 0), sent)
        return FLOOD

    try:
        return rate(calls if work == "call" else casts, seconds)
    finally:
        system.shutdown()


if __name__ == "__main__":
    tell(measure(*arguments("thespian")))
