"""Commands that wait for their answer, and the way each of them takes to the leader. Knows no sockets and no clock.

A command is handed over once per *route* (who leads, in which term, by which connection). When the route changes, all
that wait are handed over again: what was on the old one may be lost, or may still arrive, and being applied once is
the machine's business. On a route through another member a command is also repeated after a while, because that
member may have dropped it when it stopped leading.
"""

from collections.abc import Callable
from typing import Any, Final

import trio

__all__ = [
    "FORWARD_AGAIN_S",
    "Aborted",
    "CommandId",
    "NoQuorum",
    "OutcomeUnknown",
    "Route",
    "Submission",
    "Submissions",
]

CommandId = tuple[str, int]
# the leader, its term, and which connection to it this is
Route = tuple[str, int, int]

FORWARD_AGAIN_S: Final = 1.0


class Aborted(Exception):
    """The procedure answered with an error; the tree is as it was. `code` is stable."""

    def __init__(self, code: str, message: str, details: Any = None) -> None:
        super().__init__(f"{message} ({code})" if message else code)
        self.code: Final = code
        self.message: Final = message
        self.details: Final = details


class NoQuorum(Exception):
    """There is no leader that could be reached in time. The command was not submitted and will not be applied."""


class OutcomeUnknown(Exception):
    """The command was submitted, and it is not known whether it was or will be applied.

    Submit it again with `command_id=error.command_id`: it is applied once however often it is submitted.
    """

    def __init__(self, message: str, command_id: CommandId) -> None:
        super().__init__(message)
        self.command_id: Final = command_id


class Submission:
    """A command that waits for its answer; several callers may wait for the same one."""

    __slots__ = ("answer", "answered", "command", "command_id", "forwarded_at_s", "handed_over", "waiters")

    def __init__(self, command_id: CommandId, command: bytes) -> None:
        self.command_id: Final = command_id
        self.command: Final = command
        self.answered: Final = trio.Event()
        self.answer: bytes | None = None
        self.handed_over = False
        self.forwarded_at_s = 0.0
        self.waiters = 0

    def answer_with(self, answer: bytes) -> None:
        """The encoded answer has come, however the command got into the log."""
        self.answer = answer
        self.handed_over = True
        self.answered.set()


class Submissions:
    """All commands of this member's callers that have no answer yet."""

    def __init__(self) -> None:
        self._waiting: dict[CommandId, Submission] = {}
        self._to_hand_over: dict[CommandId, Submission] = {}
        self._route: Route | None = None
        self._repeat_at_s = 0.0

    def enter(self, command_id: CommandId, command: bytes) -> Submission:
        """Begin to wait for this command; leave when done."""
        submission = self._waiting.get(command_id)
        if submission is None:
            submission = self._waiting[command_id] = self._to_hand_over[command_id] = Submission(command_id, command)
        submission.waiters += 1
        return submission

    def leave(self, submission: Submission) -> None:
        """One caller waits no more; without any, the command is forgotten here (but may be in the log)."""
        submission.waiters -= 1
        if submission.waiters == 0:
            del self._waiting[submission.command_id]
            self._to_hand_over.pop(submission.command_id, None)

    def answered(self, command_id: CommandId, answer: bytes) -> None:
        """A command was applied; somebody may be waiting for it here."""
        submission = self._waiting.get(command_id)
        if submission is not None:
            submission.answer_with(answer)

    def look_up(self, answer_to: Callable[[str, int], bytes | None]) -> None:
        """The state was replaced by a newer one, in which some of the answers may be found."""
        for command_id, submission in self._waiting.items():
            answer = answer_to(*command_id)
            if answer is not None:
                submission.answer_with(answer)

    def give_up(self) -> None:
        """Wake everybody: there will be no more answers."""
        for submission in self._waiting.values():
            submission.answered.set()

    def take_route(self, route: Route | None) -> None:
        """Use this route from now on; if it is another one than before, hand everything over again."""
        if route != self._route:
            self._route = route
            self._to_hand_over = dict(self._waiting)

    def hand_over(self, give: Callable[[bytes], bool]) -> None:
        """Give every command that needs it to `give`, until it says that it takes no more."""
        while self._to_hand_over:
            submission = next(iter(self._to_hand_over.values()))
            if not give(submission.command):
                return
            submission.handed_over = True
            del self._to_hand_over[submission.command_id]

    def forward(self, give: Callable[[bytes], bool], now_s: float) -> None:
        """The same on a route through another member, repeating what was forwarded `FORWARD_AGAIN_S` ago."""
        if now_s >= self._repeat_at_s:
            self._repeat_at_s = now_s + FORWARD_AGAIN_S / 2
            for command_id, submission in self._waiting.items():
                if submission.handed_over and now_s - submission.forwarded_at_s > FORWARD_AGAIN_S:
                    self._to_hand_over[command_id] = submission
        given = list(self._to_hand_over.values())
        self.hand_over(give)
        for submission in given:
            if submission.command_id not in self._to_hand_over:
                submission.forwarded_at_s = now_s
