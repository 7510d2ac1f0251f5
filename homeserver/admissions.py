"""Asking the home of a target in another instance whether it would have an entity, in case 1, and for how long.

The entity stands still meanwhile. Its own home alone decides, and without an admission it has committed nothing: so it
may give the transfer up when the other home says nothing, whatever that says later (FAILURES rows 11 and 21).
"""

import logging
from typing import Final

from actors.clock import Clock
from authority.errors import Reason
from authority.hops import Trace
from authority.messages import AdmitReply, AdmitRequest, HandoffRequest
from authority.names import instance_of
from homeserver.federation import Federation, PeerUnreachable

__all__ = ["GIVEN_UP_NS", "PATIENCE_S", "PAUSE_NS", "TRY_S", "Admissions", "Unanswered"]

_log = logging.getLogger("homeserver.transfers")

# As long as a link waits for its peer: a homeserver is restarted, or another member found, in less.
PATIENCE_S: Final = 5.0
# Who asks waits for two seconds (`simserver.home.REQUEST_TIMEOUT_S`) before it turns to another member, and repeats.
TRY_S: Final = 1.5
# While its old authority waits, a transfer is asked about every four seconds at least, but of a member in turn, so each
# of nine hears of it every 36 s or, where each takes its time, 50 s. After a longer pause it is waited for anew.
PAUSE_NS: Final = 120_000_000_000
MAX_UNANSWERED: Final = 65_536
# Who was given up is tried once for each transfer after that, not waited for, whatever it says in between: one that
# comes and goes would have an entity stand still for the whole time with each move that is ordered.
GIVEN_UP_NS: Final = 30_000_000_000


class Unanswered:
    """Since when the answer about each transfer is awaited, as far as one member knows; without clocks."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[int, int]] = {}

    def since_ns(self, transfer_id: str, now_ns: int) -> int:
        """It is asked about now: when it was for the first time."""
        first_ns, last_ns = self._asked.pop(transfer_id, (now_ns, now_ns))
        if now_ns - last_ns > PAUSE_NS:
            first_ns = now_ns
        if len(self._asked) >= MAX_UNANSWERED:
            self._asked.pop(next(iter(self._asked)))
        self._asked[transfer_id] = (first_ns, now_ns)
        return first_ns

    def over(self, transfer_id: str) -> None:
        """It is answered, or given up."""
        self._asked.pop(transfer_id, None)


class Admissions:
    """One member's questions to the homes of targets.

    Args:
        federation: the way to them.
        clock: monotonic time.
        patience_s: how long one of them may be silent about a transfer, before that is refused for `home_unreachable`.
    """

    def __init__(self, federation: Federation, clock: Clock, patience_s: float = PATIENCE_S) -> None:
        self._federation: Final = federation
        self._clock: Final = clock
        self._patience_ns: Final = round(patience_s * 1e9)
        self._unanswered: Final = Unanswered()
        # Until when each instance is not waited for; of those that there is a way to.
        self._given_up: Final[dict[str, int]] = {}

    async def ask(self, request: HandoffRequest, trace: Trace) -> tuple[AdmitReply, Trace]:
        """Whether the home of its target would have the entity there, and by which incarnation.

        Raises:
            PeerUnreachable: it does not answer, and has not been silent for so long that this is an answer.
        """
        home = instance_of(request.target)
        if self._federation.hops_to(home) is None:
            return _no(request, Reason.UNKNOWN_TARGET), trace
        since_ns = self._unanswered.since_ns(request.transfer_id, self._clock.monotonic_ns())
        try:
            answer = await self._exchange(request, trace)
        except PeerUnreachable as error:
            now_ns = self._clock.monotonic_ns()
            if now_ns - since_ns < self._patience_ns and now_ns >= self._given_up.get(home, 0):
                raise
            self._given_up[home] = now_ns + GIVEN_UP_NS
            _log.warning("%s is refused: %s", request.transfer_id, error)
            answer = _no(request, Reason.HOME_UNREACHABLE), trace
        self._unanswered.over(request.transfer_id)
        return answer

    async def _exchange(self, request: HandoffRequest, trace: Trace) -> tuple[AdmitReply, Trace]:
        home = instance_of(request.target)
        message = AdmitRequest(transfer_id=request.transfer_id, entity=request.entity, target=request.target)
        reply, trace = await self._federation.exchange(home, message, trace, on_path=True, within_s=TRY_S)
        if not isinstance(reply, AdmitReply) or reply.transfer_id != request.transfer_id:
            # As if it had said nothing: it must not be able to have the entity stand still for ever either.
            raise PeerUnreachable(f"{home} answered an admission with something else")
        return reply, trace


def _no(request: HandoffRequest, reason: Reason) -> AdmitReply:
    return AdmitReply(transfer_id=request.transfer_id, accepted=False, reason=reason.value)
