"""A player's inputs for one entity: numbered, repeated until they are acknowledged, and following the entity. No I/O.

A stream repeats what is not acknowledged (go-back-N) to the server that it believes has authority. Like TCP it keeps
few inputs in flight after a silence and more with every acknowledgement. It waits longer after each repetition that was
in vain. So a crowd of streams cannot keep a slow server busy with repetitions. At the end the stream knows what it
sent, as a number and as a fold over every byte. That can be held against what the entity applied.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from batonpass.authority.model.input_fold import fold
from batonpass.authority.wire.transfer import Input, InputAck, NotHere, NotOwner

__all__ = [
    "ASKING",
    "ASK_AFTER_S",
    "MAX_IN_FLIGHT",
    "MAX_RESEND_S",
    "MIN_IN_FLIGHT",
    "NOBODY",
    "PRESENT_S",
    "RESEND_S",
    "WINDOW",
    "EntityGone",
    "InputStream",
]

RESEND_S: Final = 0.25
MAX_RESEND_S: Final = 4.0
# What was applied is durable half a second later. After this time the client asks whether it still counts. If it was
# lost with an authority, no other server knows that there is a player to be told.
ASK_AFTER_S: Final = 2.0
# A player without inputs says that it is there, to each server to which a stream leads, well within the first silence
# that counts (`simserver.owners.inactivity`).
PRESENT_S: Final = 3.0
# Unacknowledged inputs per stream; at 50 a second this covers ten seconds without an authority.
WINDOW: Final = 512
# Applied inputs that may have to be given again, because no copy of the entity has them yet.
MAX_KEPT: Final = 8192
# An input of this number is never applied, as it follows none; what is answered says how far the entity is.
ASKING: Final = 2**63 - 1
# A server keeps this number of inputs of one entity that wait for their tick (`simserver.entity.inputs`).
_MAX_PENDING: Final = 2048
# How many of them are under way at a time: the first after a silence, the second at most when all is well.
MIN_IN_FLIGHT: Final = 4
MAX_IN_FLIGHT: Final = 64
# In place of a player, where an entity has no owner.
NOBODY: Final = "nobody"


class EntityGone(Exception):
    """The entity was deleted, so it takes no inputs any more."""

    code: Final = "not_found"


@dataclass
class InputStream:
    """The inputs of this player for one entity."""

    entity: str
    target: str
    owner_rev: int = 1
    """The revision of the ownership under which the player gives its inputs; 1 is that of its spawner."""
    owner: str = ""
    """Who owns the entity instead of the player, as far as that is known; nothing is sent then."""
    sent: int = 0
    used: int = 0
    """The highest number under which an input was ever given: no number is used twice after an ownership is over."""
    floor: int = 0
    """Up to here numbers are of ownerships before this one, or were lost. The folds begin anew above it."""
    acknowledged: int = 0
    durable: int = 0
    fence: tuple[int, int] = (0, 0)
    """The highest under which something was acknowledged."""
    led_by: tuple[int, int] = (0, 0)
    """The fence of the last notice that was followed, since the last repetition."""
    durable_digest: bytes = b"\0" * 16
    applied_digest: bytes = b"\0" * 16
    digest: bytes = b"\0" * 16
    waiting: deque[tuple[int, bytes]] = field(default_factory=deque)
    kept: deque[tuple[int, bytes]] = field(default_factory=deque)
    """What was applied and is not durable: if the authority dies, it may have to be given again."""
    refused: deque[tuple[int, bytes]] = field(default_factory=deque)
    """What was not applied when its ownership ended. If an authority died, an earlier state may have it after all."""
    given_again: int = 0
    """How many inputs had to be given again that had been applied."""
    lost: int = 0
    """How many were lost that had been durable."""
    in_flight: int = 0
    """How many of those waiting have been sent to `target`."""
    max_in_flight: int = MAX_IN_FLIGHT
    progressed_at_s: float = 0.0
    """When something was acknowledged last, or repeated, or sent after nothing was waiting."""
    resend_after_s: float = RESEND_S
    heard_at_s: float = 0.0
    """When `target` said last how far it is, or was asked."""
    asked_in_vain: bool = False
    """`target` was asked, and has said nothing since; or cannot be asked."""
    looking_up: bool = False
    is_gone: bool = False
    """The entity was deleted: no server takes anything for it any more."""

    def as_question(self) -> Input:
        """Ask how far the entity is, before the first input."""
        return Input(entity=self.entity, owner_rev=self.owner_rev, seq=ASKING, data=b"")

    def begin(self, applied: int, fence: tuple[int, int], apart: int = 0) -> None:
        """The entity has applied `applied` inputs of this player, all of a program that ran before.

        The first number here is beyond what that program may have given and was not applied yet. Under a number that
        was used, an input would be taken for the other one. `apart`, thrown with dice, keeps it from those of a program
        that begins at the same time.
        """
        self.fence = max(self.fence, fence)
        self.used = applied + _MAX_PENDING + apart
        self._begin_anew()

    def is_of_another(self, applied: int, fence: tuple[int, int]) -> bool:
        """Whether an authority has applied numbers that were never given here: another program of the player gives."""
        return fence >= self.fence and applied > max(self.used, self.sent)

    def add(self, data: bytes, now_s: float) -> None:
        """Number the next input and remember it until it is acknowledged."""
        if not self.waiting:
            # The silence until now was because there was nothing to say.
            self.progressed_at_s = now_s
        self.sent += 1
        self.used = max(self.used, self.sent)
        self.digest = fold(self.digest, self.sent, data)
        self.waiting.append((self.sent, data))

    def next_to_send(self) -> list[tuple[int, bytes]]:
        """The inputs that may be sent now; counts them as under way."""
        upto = 0 if self.owner else min(len(self.waiting), self.max_in_flight)
        inputs = list(islice(self.waiting, self.in_flight, upto))
        self.in_flight = max(self.in_flight, upto)
        return inputs

    def as_input(self, seq: int, data: bytes) -> Input:
        """An input as it is given now."""
        return Input(
            entity=self.entity, owner_rev=self.owner_rev, seq=seq, data=data, base=self.durable, floor=self.floor
        )

    def acknowledge(self, applied: int, now_s: float) -> int:
        """Everything up to `applied` has been applied; how many of them are news."""
        news = max(0, min(applied, self.sent) - self.acknowledged)
        if news:
            self.acknowledged += news
            self.progressed_at_s, self.resend_after_s = now_s, RESEND_S
            self.max_in_flight = min(2 * self.max_in_flight, MAX_IN_FLIGHT)
            for _ in range(news):
                self.kept.append(self.waiting.popleft())
                self.applied_digest = fold(self.applied_digest, *self.kept[-1])
            self.in_flight = max(0, self.in_flight - news)
        return news

    def acknowledged_as(self, ack: InputAck, now_s: float) -> int:
        """An authority says how far it has come, and how far is durable; how many more were applied.

        One that went on from a copy may be behind the last: what is missing is given again, but nothing durable. What
        the last one says after that is dropped.
        """
        fence, applied = (ack.epoch, ack.sub), max(ack.applied, self.floor)
        self._learn_fence(fence, applied, now_s)
        if fence != self.fence:
            return 0
        news = self.acknowledge(applied, now_s)
        self.durable = max(self.durable, min(ack.durable, self.acknowledged))
        while self.kept and (self.kept[0][0] <= self.durable or len(self.kept) > MAX_KEPT):
            self.durable_digest = fold(self.durable_digest, *self.kept.popleft())
        return news

    def _learn_fence(self, fence: tuple[int, int], applied: int, now_s: float) -> None:
        """A server has authority under this fence, and has come so far."""
        if fence < self.fence:
            return
        self.heard_at_s = now_s
        # What waits still has not been refused: perhaps it was applied before the ownership ended.
        is_past = bool(self.owner) and not self.waiting
        if fence > self.fence:
            self.fence = fence
            self._give_again(applied)
        if is_past:
            self._correct_the_past(applied)

    def _correct_the_past(self, applied: int) -> None:
        """Its ownership is over: what counts of it is what the authority has, which may have changed if one died."""
        while self.waiting:
            self.refused.appendleft(self.waiting.pop())
        while self.refused and self.refused[0][0] == self.acknowledged + 1 <= applied:
            self.kept.append(self.refused.popleft())
            self.acknowledged += 1
            self.applied_digest = fold(self.applied_digest, *self.kept[-1])
        self.sent, self.digest = self.acknowledged, self.applied_digest

    def _give_again(self, applied: int) -> None:
        """The authority has applied no more than this; what is kept beyond it waits again."""
        while self.kept and self.kept[-1][0] > applied:
            self.waiting.appendleft(self.kept.pop())
            self.acknowledged -= 1
            self.given_again += not self.owner
            self.in_flight = 0
        if self.acknowledged > applied:
            self._lose(self.acknowledged - applied)
            return
        self.applied_digest = self.durable_digest
        for item in self.kept:
            self.applied_digest = fold(self.applied_digest, *item)

    def _lose(self, inputs: int) -> None:
        """`inputs` were durable, and all that had them are dead. They are not given again.

        No number is used twice: the log that gave the entity to one of those may come back from a backup.
        """
        self.lost += inputs
        self.floor, self.in_flight = self.acknowledged, 0
        self.digest = self.applied_digest = self.durable_digest = bytes(16)
        for item in self.waiting:
            self.digest = fold(self.digest, *item)

    def corrected(self, correction: NotOwner, player: str, now_s: float) -> None:
        """An authority refused what it has not applied.

        If the player owns the entity all the same, under another revision than it said, it says the same again under
        that one. Else its inputs have lost their meaning and are forgotten; `sent` and `digest` go back to what counts.
        An authority of before knows who owns it, as that has a revision, but not how far the entity is by now.
        """
        fence, applied = (correction.epoch, correction.sub), max(correction.applied, self.floor)
        self._learn_fence(fence, applied, now_s)
        if fence == self.fence:
            self.acknowledge(applied, now_s)
        if correction.owner_rev < self.owner_rev:
            # Said by a server that knows less than this player; it asks the log.
            return
        self.in_flight = 0
        if correction.owner == player:
            self._own_again(correction.owner_rev)
            return
        self.owner_rev, self.owner = correction.owner_rev, correction.owner or NOBODY
        self._correct_the_past(self.acknowledged)

    def _own_again(self, owner_rev: int) -> None:
        """What was applied under an ownership before this one is not given again, whatever becomes of the authority."""
        if self.owner:
            self.durable, self.durable_digest = self.acknowledged, self.applied_digest
            self.kept.clear()
            self.refused.clear()
            if not self.waiting:
                # What waits was never refused, and is given again under its numbers.
                self._begin_anew()
        self.owner_rev, self.owner = owner_rev, ""

    def _begin_anew(self) -> None:
        """Number on after all that was ever used: a state may be resumed that has some of what was refused."""
        self.floor = self.sent = self.acknowledged = self.durable = self.used
        self.digest = self.applied_digest = self.durable_digest = bytes(16)

    def of_this_ownership(self, applied: int, digest: bytes) -> tuple[int, bytes]:
        """How far a cursor has come with what counts since `floor`, and its fold over that."""
        return (applied, digest) if applied > self.floor else (self.floor, bytes(16))

    def learn_owner(self, owner: str, owner_rev: int, player: str) -> None:
        """The log says who owns the entity. A player that has become its owner may give inputs again."""
        if owner_rev > self.owner_rev:
            self.in_flight = 0
            if owner == player:
                self._own_again(owner_rev)
            else:
                self.owner_rev, self.owner = owner_rev, owner or NOBODY

    def ended(self) -> None:
        """Its home says that there is no such entity: what was not applied never will be."""
        self.is_gone = True
        self._correct_the_past(self.acknowledged)
        self.refused.clear()
        self.kept.clear()

    def overdue(self, now_s: float) -> bool:
        """Whether what is waiting should be sent again by now."""
        return bool(self.waiting) and now_s - self.progressed_at_s > self.resend_after_s

    def to_ask_with(self, now_s: float) -> tuple[int, bytes] | None:
        """What was applied last, to be sent once more, if it was not said for long whether it will stay so; else None.

        It is applied no second time. The server that has authority says how far the entity is. If that was resumed from
        an earlier state, what is missing is given again. If the player is its owner no more, it is known to be lost.
        """
        if not self.kept or (self.waiting and not self.owner) or now_s - self.heard_at_s <= ASK_AFTER_S:
            return None
        self.heard_at_s = now_s
        return self.kept[-1]

    def start_over(self, now_s: float) -> None:
        """Nothing is under way any more: it was in vain, so begin with few, and be more patient next time."""
        self.in_flight, self.max_in_flight, self.led_by = 0, MIN_IN_FLIGHT, (0, 0)
        self.progressed_at_s, self.resend_after_s = now_s, min(2 * self.resend_after_s, MAX_RESEND_S)

    def follow(self, notice: NotHere) -> bool:
        """A former authority names who has the entity; whether that leads anywhere.

        Only towards higher fences until the next repetition. Two servers that each name the other must not have the
        player send everything to and fro, at once and each time more of it.
        """
        fence = (notice.epoch, notice.sub)
        if not notice.moved_to or fence <= self.led_by or fence < self.fence:
            return False
        self.led_by = fence
        if notice.moved_to != self.target:
            self.retarget(notice.moved_to)
        return True

    def retarget(self, target: str) -> None:
        """Another has authority now: what is waiting has to be sent there, and asked how far that one is."""
        self.target, self.in_flight, self.heard_at_s = target, 0, -math.inf
        self.asked_in_vain = False
