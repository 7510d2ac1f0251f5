"""Masters: players (or programs) that answer, by a function of the user's, who may have their entities.

A question is one round trip. A request for `/v1/players/{master}/asks` waits at the instance, and is answered with the
question as soon as there is one. The master's signed answer goes back. The instance lists it until it is answered,
times out or is cancelled. The function is called once for each question, also when the answer has to be sent again.
"""

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.actors.base.errors import is_stopping
from batonpass.authority.names import instance_of
from batonpass.crypto import jose
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.crypto.keys import Identity
from batonpass.homeserver.transfer.master_questions import MAX_SEEN
from batonpass.scenarios.players.rest_client import ApiFailure, RestClient

__all__ = ["Decide", "Master", "Question"]

_log = logging.getLogger("batonpass.scenarios.players.masters")

# After a question that could not be answered, or an instance that keeps no request waiting.
LOOK_S: Final = 0.1
# Below the patience of the client with one request.
WAIT_S: Final = 4.0
PROOF_LIFETIME_S: Final = 60.0
MAX_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Question:
    """May `requester` own `entity`, on the server `target` (where it is already, if it `stay`s)?"""

    transfer_id: str
    entity: str
    requester: str
    target: str
    stay: bool


Decide = Callable[[Question], bool | None]
"""Yes, no, or (None) no answer: the question times out. Nothing else is one; nor is it awaited (`async def`)."""


class Master:
    """Answers the questions that an instance puts to one player.

    Args:
        name: the player's; its keys must be registered.
        identity: its keys, to sign with.
        client: for talking to the instance.
        decide: the user's function; other questions, and all else in this thread, wait for it. One that raises, or
            says anything but yes, no and None, leaves the question without an answer.
        clock: for the expiry of signatures.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        client: RestClient,
        decide: Decide,
        clock: Clock | None = None,
    ) -> None:
        self._name = name
        self._identity = identity
        self._client = client
        self._decide = decide
        self._clock = clock or Clock()
        self._decided: FifoTable[str, bool | None] = FifoTable(MAX_REMEMBERED)

    async def serve(
        self, instance: str | None = None, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Answer the questions about entities of `instance` (the player's own, if not given) until cancelled."""
        instance = instance or instance_of(self._name)
        task_status.started()
        while True:
            began_s = trio.current_time()
            if not await self.answer_all(instance, WAIT_S) and trio.current_time() - began_s < LOOK_S:
                await trio.sleep(LOOK_S)

    async def answer_all(self, instance: str, wait_s: float = 0.0) -> int:
        """Answer what is asked now, in the order that the instance gives; how many that were.

        What cannot be answered now waits. It is waited up to `wait_s` for a question if there is none.
        """
        answered = 0
        try:
            unanswered = [known for known, allow in self._decided.items() if allow is None][-MAX_SEEN:]
            path = f"/v1/players/{self._name}/asks"
            asks = await self._client.call(instance, "GET", path, wait_s=f"{wait_s:g}", seen=",".join(unanswered))
            for ask in asks:
                answered += await self._answer(instance, ask)
        except ApiFailure as error:
            _log.info("%s cannot answer now: %s", self._name, error)
        return answered

    async def _answer(self, instance: str, ask: dict[str, Any]) -> bool:
        """Whether there is an answer, and it was taken."""
        question = Question(ask["transfer_id"], ask["entity"], ask["requester"], ask["target"], ask["stay"])
        allow = self._decision(question)
        if allow is None:
            return False
        answer = {"allow": allow, "master_rev": ask["master_rev"]}
        statement = {"action": "answer", "transfer_id": question.transfer_id, **answer}
        statement["expires_at_s"] = self._clock.unix_s() + PROOF_LIFETIME_S
        proof = jose.sign(statement, sender=self._identity, sender_id=self._name)
        body = {"by": self._name, **answer, "proof": proof}
        try:
            await self._client.call(instance, "POST", f"/v1/transfers/{question.transfer_id}/answer", body)
        except ApiFailure as error:
            if error.code == "unreachable":
                raise
            # Cancelled or timed out meanwhile, locked, or another is master now: nothing was changed.
            _log.info("the answer to %s was refused: %s", question.transfer_id, error)
            return False
        return True

    def _decision(self, question: Question) -> bool | None:
        if question.transfer_id not in self._decided:
            try:
                allow = _checked(self._decide(question))
            except BaseException as error:
                if is_stopping(error):
                    raise
                _log.exception("%s could not decide about %s", self._name, question)
                allow = None
            self._decided[question.transfer_id] = allow
        return self._decided[question.transfer_id]


def _checked(said: object) -> bool | None:
    """What the user's function said; raises `TypeError` if that is no answer."""
    if said is None or isinstance(said, bool):
        return said
    if inspect.iscoroutine(said):
        # Else Python warns of it, somewhere else.
        said.close()
    raise TypeError(f"decide has to say True, False or None, not {said!r:.80}")
