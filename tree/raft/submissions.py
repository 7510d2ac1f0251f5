"""Commands that wait for their answer, and the way each of them takes to the leader. Pure.

A command is handed over once per *route* (who leads, in which term, by which connection). When the route changes, all
that wait are handed over again: what was on the old one may be lost, or may still arrive, and being applied once is
the machine's business. On a route through another member a command is also repeated after a while, because that
member may have dropped it when it stopped leading.

What waits at the same moment travels as one entry of the log: Raft's work, the disk's and the network's is per entry.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from batonpass.tree.machine.commands import CommandAnswer, encode_entry

__all__ = [
    "FORWARD_AGAIN_S",
    "MAX_ENTRY_BYTES",
    "MAX_ENTRY_COMMANDS",
    "Aborted",
    "CommandId",
    "NoQuorum",
    "OutcomeUnknown",
    "Route",
    "Submission",
    "Submissions",
    "value_of",
]

CommandId = tuple[str, int]
# the leader, its term, and which connection to it this is
Route = tuple[str, int, int]
Wake = Callable[[], None]

FORWARD_AGAIN_S: Final = 1.0
# One entry is applied in one go, so these bound how long a member does nothing else: some 5 ms.
MAX_ENTRY_COMMANDS: Final = 512
MAX_ENTRY_BYTES: Final = 256 * 1024


class Aborted(Exception):
    """The procedure answered with an error; the tree is as it was. `code` is stable."""

    def __init__(self, code: str, message: str, details: Any = None) -> None:
        super().__init__(f"{message} ({code})" if message else code)
        self.code: Final = code
        self.message: Final = message
        self.details: Final = details


def value_of(answer: CommandAnswer) -> Any:
    """What the procedure returned; raises `Aborted` if it did not."""
    if answer.code is not None:
        raise Aborted(answer.code, answer.message, answer.details)
    return answer.value


class NoQuorum(Exception):
    """There is no leader that could be reached in time. This call did not submit the command.

    So it will not be applied, unless an earlier call with the same `command_id` did submit it.
    """


class OutcomeUnknown(Exception):
    """The command was submitted, and it is not known whether it was or will be applied.

    Submit it again with `command_id=error.command_id`: it is applied once however often it is submitted. That is None
    if it is known to be applied, and only what it led to could not be read.
    """

    def __init__(self, message: str, command_id: CommandId | None) -> None:
        super().__init__(message)
        self.command_id: Final = command_id


class Submission:
    """A command that waits for its answer; several callers may wait for the same one."""

    __slots__ = ("answer", "command", "command_id", "forwarded_at_s", "handed_over", "waiting")

    def __init__(self, command_id: CommandId, command: bytes) -> None:
        self.command_id: Final = command_id
        self.command: Final = command
        self.answer: bytes | None = None
        self.handed_over = False
        self.forwarded_at_s = 0.0
        self.waiting: list[Wake] = []

    def answer_with(self, answer: bytes) -> None:
        """The encoded answer has come, however the command got into the log."""
        self.answer = answer
        self.handed_over = True
        self.wake_all()

    def wake_all(self) -> None:
        """Wake all that wait, each once."""
        waiting, self.waiting = self.waiting, []
        for wake in waiting:
            wake()

    def wake_one(self, wake: Wake) -> None:
        """Wake this one, unless that happened before."""
        if wake in self.waiting:
            self.waiting.remove(wake)
            wake()


class Submissions:
    """All commands of this member's callers that have no answer yet.

    `handed_over_last` is how many were handed over the last time that there were any: about as many will be the next.
    """

    def __init__(self, max_entry_bytes: int = MAX_ENTRY_BYTES) -> None:
        """An entry has at most `max_entry_bytes`, or one command; less than a message of Raft's takes."""
        self._max_entry_bytes: Final = max_entry_bytes
        self._waiting: dict[CommandId, tuple[Submission, int]] = {}  # with the number of callers
        self._to_hand_over: dict[CommandId, Submission] = {}
        self._route: Route | None = None
        self._repeat_at_s = 0.0
        self.handed_over_last = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, command_id: CommandId, command: bytes) -> Submission:
        """Begin to wait for this command; leave when done."""
        known = self._waiting.get(command_id)
        if known is None:
            submission = self._to_hand_over[command_id] = Submission(command_id, command)
            self._waiting[command_id] = (submission, 1)
            return submission
        submission, callers = known
        self._waiting[command_id] = (submission, callers + 1)
        return submission

    def leave(self, submission: Submission) -> None:
        """One caller waits no more; without any, the command is forgotten here (but may be in the log)."""
        _, callers = self._waiting.pop(submission.command_id)
        if callers > 1:
            self._waiting[submission.command_id] = (submission, callers - 1)
        else:
            self._to_hand_over.pop(submission.command_id, None)

    def answered(self, command_id: CommandId, answer: bytes) -> None:
        """A command was applied; a caller may be waiting for it here."""
        known = self._waiting.get(command_id)
        if known is not None:
            known[0].answer_with(answer)

    def look_up(self, answer_to: Callable[[str, int], bytes | None]) -> None:
        """The state was replaced by a newer one, in which some of the answers may be found."""
        for command_id, (submission, _) in self._waiting.items():
            answer = answer_to(*command_id)
            if answer is not None:
                submission.answer_with(answer)

    def give_up(self) -> None:
        """Wake all callers: there will be no more answers."""
        for submission, _ in self._waiting.values():
            submission.wake_all()

    def take_route(self, route: Route | None) -> None:
        """Use this route from now on; if it is another one than before, hand everything over again."""
        if route != self._route:
            self._route = route
            self._to_hand_over = {command_id: submission for command_id, (submission, _) in self._waiting.items()}

    def hand_over(self, give: Callable[[bytes], bool]) -> list[Submission]:
        """Give what needs it to `give`, as few entries of the log, until it takes no more; what was given."""
        given: list[Submission] = []
        for batch in self._batches():
            if not give(encode_entry([submission.command for submission in batch])):
                break
            for submission in batch:
                submission.handed_over = True
                del self._to_hand_over[submission.command_id]
            given += batch
        if given:
            self.handed_over_last = len(given)
        return given

    def forward(self, give: Callable[[bytes], bool], now_s: float) -> None:
        """The same on a route through another member, repeating what was forwarded `FORWARD_AGAIN_S` ago."""
        if now_s >= self._repeat_at_s:
            self._repeat_at_s = now_s + FORWARD_AGAIN_S / 2
            for command_id, (submission, _) in self._waiting.items():
                if submission.handed_over and now_s - submission.forwarded_at_s > FORWARD_AGAIN_S:
                    self._to_hand_over[command_id] = submission
        for submission in self.hand_over(give):
            submission.forwarded_at_s = now_s

    def _batches(self) -> Iterator[list[Submission]]:
        batch: list[Submission] = []
        size = 0
        for submission in list(self._to_hand_over.values()):
            if batch and (len(batch) >= MAX_ENTRY_COMMANDS or size + len(submission.command) > self._max_entry_bytes):
                yield batch
                batch, size = [], 0
            batch.append(submission)
            size += len(submission.command)
        if batch:
            yield batch
