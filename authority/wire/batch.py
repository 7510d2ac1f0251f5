"""Messages that leave for the same receiver at the same moment, as one sealed parcel.

Sealing and opening a parcel takes some 350 microseconds of elliptic curves, whatever is in it. When hundreds of
entities move at once that would be most of the work, so what waits for one receiver is sealed together. A `Batch` is a
list of messages with their traces. What that changes for safety:

- *Who said it, to whom, until when*: sender, receiver and expiry are signed for the batch as they are for one message.
- *Hop traces* are inside the seal. They are better protected than beside it, and cannot be extended on the way. So a
  batch that goes through relays has a trace of its own, which they extend. The server that opens it completes each
  numbered hop in it by that.
- *Repetition*: the messages are idempotent by transfer id, in a batch as alone. A message may be in several.
- *One bad message* spoils its batch, as the sender has signed it all.
- Certificates, which are shown to others than their receiver, are signed apart (`crypto.jose.sign_all`).
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import Field

from batonpass.authority.wire.base import MessageModel
from batonpass.authority.wire.envelope import Manifest
from batonpass.authority.wire.hops import Trace

__all__ = ["MAX_BATCH", "MAX_BATCH_BYTES", "MAX_WAITING", "Batch", "BatchItem", "BatchQueue", "Letter", "take_batch"]

# Enough that the seal does not count any more; what is opened in one go keeps its receiver busy for some 10 ms.
MAX_BATCH: Final = 128
MAX_BATCH_BYTES: Final = 256 * 1024
# More wait for one receiver only while its address is looked up and does not come; what is lost is repeated.
MAX_WAITING: Final = 65_536
# About what a message weighs, with its trace, beside its state, its inputs and its chain of certificates.
_PLAIN_BYTES: Final = 1024
_INPUT_BYTES: Final = 130


class BatchItem(MessageModel):
    """One message of a batch: its trace as plain data, whether it is a numbered hop, and its bytes."""

    trace: dict[str, Any]
    on_path: bool
    body: bytes


class Batch(MessageModel):
    """Several messages to one receiver. It holds no batches, and no states that travel beside their messages.

    They are in `columns` (`authority.wire.columnar`), or in `messages`, one after the other, for those who do not know
    columns. Over the link, there may be only the `manifest` of a batch that travels beside.
    """

    type: Literal["batch"] = "batch"
    messages: list[BatchItem] = Field(default_factory=list, max_length=MAX_BATCH)
    columns: dict[str, Any] | None = None
    manifest: Manifest | None = None


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that is to leave, with its trace; a numbered hop if it is `on_path`."""

    message: Any
    trace: Trace
    on_path: bool = False

    @property
    def weight_bytes(self) -> int:
        """About how long it will be."""
        # Not by `getattr`: of a field that a message does not have that takes longer than all the rest.
        fields = vars(self.message)
        inputs, state, chain = fields.get("inputs", ()), fields.get("state", b""), fields.get("chain", ())
        return (
            _PLAIN_BYTES
            + len(state)
            + sum(_INPUT_BYTES + len(item.data) for item in inputs)
            + sum(len(token) for token in chain)
        )


def take_batch(waiting: deque[Letter]) -> list[Letter]:
    """Take the next letters that go into one parcel, oldest first; one at least, if there is one."""
    taken: list[Letter] = []
    weight_bytes = 0
    while waiting and len(taken) < MAX_BATCH:
        weight_bytes += waiting[0].weight_bytes
        if taken and weight_bytes > MAX_BATCH_BYTES:
            break
        taken.append(waiting.popleft())
    return taken


class BatchQueue:
    """What waits to leave, by destination. The sender of the first letter in an empty one sees to it that it goes."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[Letter]] = {}

    def put(self, destination: Hashable, letter: Letter) -> bool:
        """Add a letter; whether it is the first, so that a task has to come and take it."""
        waiting = self._waiting.get(destination)
        if waiting is None:
            waiting = self._waiting[destination] = deque()
        waiting.append(letter)
        return len(waiting) == 1

    def is_full(self, destination: Hashable) -> bool:
        """Whether so much waits to leave for there that nothing more is to be put to it."""
        waiting = self._waiting.get(destination)
        return waiting is not None and len(waiting) >= MAX_WAITING

    def holds(self, destination: Hashable) -> bool:
        """Whether something waits to leave for there."""
        return destination in self._waiting

    def take(self, destination: Hashable) -> list[Letter]:
        """The next letters that go into one parcel, oldest first; none if there are no more."""
        waiting = self._waiting.get(destination, deque())
        taken = take_batch(waiting)
        if not waiting:
            self._waiting.pop(destination, None)
        return taken
