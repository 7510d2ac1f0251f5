"""Commands that wait to be carried out and answered, in the order in which they came."""

from collections.abc import Iterator
from typing import Final

import trio

from batonpass.tree.machine.commands import Command
from batonpass.tree.raft.submissions import CommandId

__all__ = ["CommandQueue", "QueuedCommand"]


class QueuedCommand:
    """A command whose answer a caller waits for; several callers may wait for the same one."""

    __slots__ = ("answer", "answered", "command", "refused", "sent", "waiters")

    def __init__(self, command: Command) -> None:
        self.command: Final = command
        self.answered: Final = trio.Event()
        self.answer: bytes | None = None
        # Whether it has ever been part of a request: from then on it may be carried out, whatever we hear.
        self.sent = False
        self.waiters = 0
        self.refused = ""
        """Why etcd took nothing of it, in etcd's words; empty if it was not refused."""

    @property
    def command_id(self) -> CommandId:
        """Which command it is."""
        return (self.command.client, self.command.number)


class CommandQueue:
    """All commands of this process that have no answer yet."""

    def __init__(self) -> None:
        self._waiting: dict[CommandId, QueuedCommand] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[QueuedCommand]:
        """The commands in the order in which they came, those without an answer only."""
        return (waiting for waiting in list(self._waiting.values()) if waiting.answer is None)

    def enter(self, command: Command) -> QueuedCommand:
        """Begin to wait for this command; `leave` when done."""
        waiting = self._waiting.get((command.client, command.number))
        if waiting is None:
            waiting = self._waiting[command.client, command.number] = QueuedCommand(command)
        waiting.waiters += 1
        return waiting

    def leave(self, waiting: QueuedCommand) -> None:
        """One caller waits no more; without any, the command is not carried out any more by this process."""
        waiting.waiters -= 1
        if waiting.waiters == 0:
            del self._waiting[waiting.command_id]

    def get(self, command_id: CommandId) -> QueuedCommand | None:
        """The command with this id, if a caller waits for it."""
        return self._waiting.get(command_id)

    def answer(self, client: str, number: int, answer: bytes) -> None:
        """The command was carried out; a caller may be waiting for it here."""
        waiting = self._waiting.get((client, number))
        if waiting is not None and waiting.answer is None:
            waiting.answer = answer
            waiting.answered.set()

    def refuse(self, why: str) -> None:
        """Nothing was done of what was never sent, nor will be soon."""
        for waiting in self:
            if not waiting.sent:
                waiting.refused = why
                waiting.answered.set()

    def give_up(self) -> None:
        """Wake all callers: there will be no more answers."""
        for waiting in self._waiting.values():
            waiting.answered.set()
