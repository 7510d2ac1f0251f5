"""A player with a stream of inputs for every entity: the real stream over the simulated mail."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from batonpass.authority.fence import Fence
from batonpass.authority.model.input_fold import fold
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.names import instance_of
from batonpass.authority.wire.transfer import ImminentLoss, InputAck, LetGo, NotHere, NotOwner, Present
from batonpass.client.input_stream import WINDOW, InputStream
from batonpass.scenarios.simulation.servers.mail import SimulatedMail
from batonpass.scenarios.simulation.servers.tasks import SimulatedProcess, VirtualClock
from batonpass.simserver.entity.inputs import Cursor

__all__ = ["SimulatedPlayer"]

_LOOK_AGAIN_S: Final = 0.125
_LOOK_UP_S: Final = 0.003
_PRESENT_S: Final = 0.3
"""A fraction of the shortest silence that is noticed."""
_LETS_GO_SHARE: Final = 0.5
_FINISHES_S: Final = (0.0, 0.4)
_LATE_S: Final = 3.0
"""How long it may take until a log hears of a silence: homes answer late, or not at all at first."""


class SimulatedPlayer:
    """Gives inputs now and then, repeats what is not acknowledged, and follows entities.

    Args:
        look_up: the record of an entity as its home would tell it now, or None when it cannot be asked.
        inputs_per_s: for all of its entities together.
        is_present: it says now and then that it is there.
        shows: told of what it believes of an entity: under which fence, and how many of its inputs are applied.
    """

    def __init__(
        self, name: str, mail: SimulatedMail, process: SimulatedProcess, clock: VirtualClock, dice: random.Random,
        look_up: Any,
        inputs_per_s: float, stream: type[InputStream] = InputStream,
        is_present: bool = False, *, shows: Callable[[str, str, Fence, int], None],
    ) -> None:  # fmt: skip
        self.name: Final = name
        self.streams: Final[dict[str, InputStream]] = {}
        self._mail: Final = mail
        self._process: Final = process
        self._clock: Final = clock
        self._dice: Final = dice
        self._look_up: Final = look_up
        self._inputs_per_s: Final = inputs_per_s
        self._new_stream: Final = stream
        self._shows: Final = shows
        self.resting = False
        mail.join(name, lambda sender, message: process.do(lambda: self._arrived(sender, message)))
        self._later()
        process.after(_LOOK_AGAIN_S, self._repeat)
        self._absent_since_s: float | None = None
        self._was_away_s, self._returns = 0.0, 0
        if is_present:
            self._say_present()

    def follow(self, record: EntityRecord) -> None:
        """Have a stream for this entity, silent as long as another player owns it."""
        stream = self._new_stream(record.id, record.authority, progressed_at_s=self._now_s())
        stream.learn_owner(record.owner, record.owner_rev, self.name)
        if record.owner != self.name:
            stream.owner = record.owner
        self.streams[record.id] = stream

    def agrees(self, stream: InputStream, cursor: Cursor | None, taken_over: tuple[int, int] = (0, 0)) -> bool:
        """Whether the entity has applied exactly what this player sent and was not told to forget.

        A former owner may not have heard how far that went before, nor that it was `taken_over` since,
        under that fence. A player who is away does not hear what of it was lost with a server.
        """
        applied, applied_digest = (0, bytes(16)) if cursor is None else (cursor.applied, cursor.digest)
        applied, applied_digest = stream.of_this_ownership(applied, applied_digest)
        digest = stream.applied_digest
        past = [*stream.waiting, *stream.refused] if stream.owner else []
        for seq, data in past:
            if seq <= applied:
                digest = fold(digest, seq, data)
        if self.is_absent:
            return stream.durable <= applied
        if stream.owner and stream.fence < taken_over and applied < stream.acknowledged and not stream.kept:
            # Applied under an ownership before the last one: that is not asked about, nor given again. If it was
            # durable, the judge knows. What is kept is asked about.
            return True
        if stream.lost:
            # What was durable was lost with two servers. Whether it might be, is for the judge.
            return True
        return stream.acknowledged <= applied <= stream.acknowledged + len(past) and digest == applied_digest

    # --- coming and going --------------------------------------------------------------------------------------------

    @property
    def is_absent(self) -> bool:
        """Whether it has fallen silent."""
        return self._absent_since_s is not None

    def silent_s(self) -> float:
        """For how long it has been away; or was, if it came back so late that it may have been reported before."""
        away_s = 0.0 if self._absent_since_s is None else self._now_s() - self._absent_since_s
        return max(self._was_away_s, away_s)

    def go_away(self) -> None:
        """Fall silent: nothing is sent, and nothing heard that comes."""
        self._absent_since_s = self._now_s()
        self._process.stand_still()

    def come_back(self) -> None:
        """Continue, with all that has come meanwhile."""
        self._was_away_s, self._absent_since_s = self.silent_s(), None
        self._returns += 1
        self._process.after(_LATE_S, partial(self._is_back, self._returns))
        self._process.go_on()

    def _is_back(self, returns: int) -> None:
        if returns == self._returns:
            # It has not been away once more since.
            self._was_away_s = 0.0

    def _say_present(self) -> None:
        """To the authorities of what it owns; it looks up what that is and where, as only inputs are answered."""
        for stream in self.streams.values():
            self._find(stream)
        for server in sorted({stream.target for stream in self.streams.values() if not stream.owner}):
            self._mail.send(self.name, server, Present())
        self._process.after(_PRESENT_S, self._say_present)

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def _later(self) -> None:
        self._process.after(self._dice.expovariate(self._inputs_per_s), self._give)

    def _give(self) -> None:
        mine = [stream for stream in self.streams.values() if not stream.owner and len(stream.waiting) < WINDOW]
        if mine and not self.resting:
            self._add(self._dice.choice(mine))
        if not self.resting:
            self._later()

    def give(self, entity: str) -> None:
        """Give this entity an input now, if it is this player's and there is room for one."""
        stream = self.streams[entity]
        if not stream.owner and len(stream.waiting) < WINDOW:
            self._process.do(partial(self._add, stream))

    def _add(self, stream: InputStream) -> None:
        # The world wants to know which number may follow on which.
        stream.add(b"%d after %d" % (self._dice.randrange(10), stream.floor), self._now_s())
        self._send(stream)

    @staticmethod
    def _say_anew(stream: InputStream) -> None:
        """What waits was given before it was known that what is before it is lost."""
        waiting = [(seq, b"%s after %d" % (data.split()[0], stream.floor)) for seq, data in stream.waiting]
        stream.waiting.clear()
        stream.waiting.extend(waiting)
        stream.digest = stream.applied_digest
        for item in waiting:
            stream.digest = fold(stream.digest, *item)

    def _send(self, stream: InputStream) -> None:
        if stream.waiting and int(stream.waiting[0][1].split()[-1]) != stream.floor:
            self._say_anew(stream)
        for item in stream.next_to_send():
            self._send_one(stream, *item)

    def _send_one(self, stream: InputStream, seq: int, data: bytes) -> None:
        self._mail.send(self.name, stream.target, stream.as_input(seq, data))

    def _arrived(self, sender: str, message: Any) -> None:
        stream = self.streams.get(getattr(message, "entity", ""))
        if stream is not None:
            self._heard(sender, message, stream)
            self._shows(self.name, stream.entity, Fence(*stream.fence), stream.acknowledged)

    def _heard(self, sender: str, message: Any, stream: InputStream) -> None:
        match message:
            case InputAck():
                if stream.acknowledged_as(message, self._now_s()):
                    self._send(stream)
            case NotOwner() if sender == stream.target:
                stream.corrected(message, self.name, self._now_s())
                self._send(stream)
            case NotHere() if sender == stream.target:
                if stream.follow(message):
                    self._send(stream)
                else:
                    self._find(stream)
            case ImminentLoss() if self._dice.random() < _LETS_GO_SHARE:
                self._process.after(self._dice.uniform(*_FINISHES_S), lambda: self._let_go(sender, message.entity))
            case _:
                pass

    def _let_go(self, server: str, entity: str) -> None:
        self._mail.send(self.name, server, LetGo(entity=entity))

    def _turn_to(self, stream: InputStream, server: str) -> None:
        if server != stream.target:
            stream.retarget(server)
            self._send(stream)

    def _find(self, stream: InputStream) -> None:
        def found() -> None:
            stream.looking_up = False
            record: EntityRecord | None = self._look_up(instance_of(stream.entity), stream.entity)
            if record is not None and record.authority:
                stream.learn_owner(record.owner, record.owner_rev, self.name)
                self._turn_to(stream, record.authority)

        if not stream.looking_up:
            stream.looking_up = True
            self._process.after(_LOOK_UP_S, found)

    def _repeat(self) -> None:
        for stream in self.streams.values():
            if stream.overdue(self._now_s()):
                stream.start_over(self._now_s())
                self._send(stream)
                self._find(stream)
            elif (asked := stream.to_ask_with(self._now_s())) is not None:
                self._send_one(stream, *asked)
                self._find(stream)
            elif stream.owner and self._dice.random() < 0.1:
                self._find(stream)
        self._process.after(_LOOK_AGAIN_S, self._repeat)
