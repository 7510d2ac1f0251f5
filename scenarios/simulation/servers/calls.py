"""Questions over the simulated mail, as REST requests: answered, refused, failed, or never heard of again."""

from dataclasses import dataclass
from typing import Any, Final

from batonpass.scenarios.simulation.servers.mail import SimulatedMail
from batonpass.scenarios.simulation.servers.tasks import AwaitedAnswer, SimulatedProcess

__all__ = ["AuthorityAsked", "CallRefused", "CallUnanswered", "Calls", "OpenCall"]

_TIMEOUT_S: Final = 0.7
"""To the lease's term as the real ones of two seconds are to six."""


class CallUnanswered(Exception):
    """No server answered in time, or the one that was asked could not decide; it may have been done all the same."""


class CallRefused(Exception):
    """The server that was asked said no, for good."""


@dataclass(frozen=True, slots=True)
class AuthorityAsked:
    """A question for `GET /v1/entities/{id}`: which server simulates an entity."""

    entity: str


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A question under way."""

    caller: str
    number: int
    message: Any


@dataclass(frozen=True, slots=True)
class _Reply:
    """Its answer: a value, or why there is none."""

    number: int
    value: Any
    refused: str = ""
    has_failed: bool = False


class Calls:
    """One process's questions and answers."""

    def __init__(self, process: SimulatedProcess, mail: SimulatedMail) -> None:
        self._process: Final = process
        self._mail: Final = mail
        self._waiting: dict[int, AwaitedAnswer] = {}
        # Continues counting after a crash: answers to a former life's questions must not be taken for this one's.
        self._number = 0

    async def call(self, to: str, message: Any) -> Any:
        """Ask; raises `CallUnanswered` or `CallRefused`."""
        self._number += 1
        number, answer = self._number, AwaitedAnswer()
        self._waiting[number] = answer
        self._process.after(_TIMEOUT_S, lambda: answer.fail(CallUnanswered(f"{to} did not answer")))
        self._mail.send(self._process.name, to, OpenCall(self._process.name, number, message))
        try:
            return await answer.wait()
        finally:
            self._waiting.pop(number, None)

    def took(self, message: Any) -> bool:
        """Whether the message was an answer."""
        if not isinstance(message, _Reply):
            return False
        answer = self._waiting.get(message.number)
        if answer is not None:
            if message.refused:
                answer.fail(CallRefused(message.refused))
            elif message.has_failed:
                answer.fail(CallUnanswered("it could not be decided"))
            else:
                answer.give(message.value)
        return True

    def answer(self, call: OpenCall, value: Any) -> None:
        """Answer a question."""
        self._mail.send(self._process.name, call.caller, _Reply(call.number, value))

    def refuse(self, call: OpenCall, why: str) -> None:
        """Say no to it."""
        self._mail.send(self._process.name, call.caller, _Reply(call.number, None, refused=why or "refused"))

    def fail(self, call: OpenCall) -> None:
        """Say that nothing could be decided."""
        self._mail.send(self._process.name, call.caller, _Reply(call.number, None, has_failed=True))
