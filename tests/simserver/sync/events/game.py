"""A stream and those who ask it, in few words."""

from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from batonpass.simserver.sync.events.limits import StreamLimits
from batonpass.simserver.sync.events.messages import PostedEvent, StreamReply, StreamRequest
from batonpass.simserver.sync.events.refusals import RefusalCode, StreamRefusal
from batonpass.simserver.sync.events.stream import StreamMachine

ONE: Final = "0123456789abcdef0123456789abcdef"
OTHER: Final = "fedcba9876543210fedcba9876543210"


@dataclass
class Game:
    """One stream whose clock follows its ticks."""

    limits: StreamLimits = field(default_factory=StreamLimits)
    incarnation: str = ONE

    def __post_init__(self) -> None:
        self.stream = StreamMachine(self.incarnation, self.limits)
        self.now_ms = 0

    def wait(self, ticks: int = 0, *, ms: int = 0) -> "Game":
        self.stream.advance(ticks)
        self.now_ms += 50 * ticks + ms
        return self

    def ask(self, me: str, known: int = 0, *types: str, **others: Any) -> StreamReply:
        posted = tuple(PostedEvent(kind, f"of {me}") for kind in types)
        request = StreamRequest(me, known, **{"events": posted, **others})
        return self.stream.apply(request, self.now_ms)

    def refused(self, me: str, known: int = 0, *types: str, **others: Any) -> RefusalCode:
        with pytest.raises(StreamRefusal) as caught:
            self.ask(me, known, *types, **others)
        assert 400 <= caught.value.status < 500
        return caught.value.code


def told(reply: StreamReply) -> list[str]:
    """The events of a reply as `tick type body`, or `tick type origin` for those of clients."""
    return [
        f"{event.tick} {event.type} {event.body if event.origin == '_' else event.origin}" for event in reply.events
    ]
