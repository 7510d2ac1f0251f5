"""The old authority's side of one transfer: a machine with one table.

Rules it keeps, whatever the network does:

1. The entity is frozen before anything is sent, and does not tick again under the old fence.
2. Only the log ends the wait. A silent peer is asked again; silence is never taken for a refusal. In staged mode the
   old authority asks for the commit only when the target has the state on its disk. Until then nothing can lead to the
   target, so it may give up. It does so through the log, which raises the epoch and tells the server that asked. When
   the freeze budget is over it does the same after it has asked for the commit. The log, which decides once, says which
   of the two came first. Only a direct pass that was sent cannot be taken back. Nothing that may commit is asked for or
   sent for the first time after the budget is over.
3. The frozen copy is dropped only when the new authority has said that it simulates (R4 in FAILURES).
4. A refusal resumes the entity under the fence that the log names, which is the next after the one it froze under. A
   higher one cannot be meant: the entity has been elsewhere since, and this copy of it is of the past.
5. The tombstone carries the fence that this transfer led to, however far the log has gone on since. The entity may be
   on its way back here, under a fence that must still be listened to.
6. A direct pass that was signed cannot be taken back, so the log does not refuse it. If the target stays silent the log
   is told of the pass. It knows whether the target is alive to act on it, or has the entity recovered, perhaps from
   this very copy.

Events go in together with `now_ns`; effects come out and are performed by the shell in the order given.
"""

import zlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from batonpass.authority.errors import Reason
from batonpass.authority.fence import Fence

__all__ = [
    "ASK_EVERY",
    "ATTEMPTS_WITHOUT_HOME",
    "STAGE_PATIENCE_NS",
    "AskAbort",
    "AskHome",
    "Case",
    "Effect",
    "Event",
    "ForwardJournal",
    "Lost",
    "Mode",
    "Outgoing",
    "OutgoingPhase",
    "OverBudget",
    "PeerActive",
    "ReportTransfer",
    "Resume",
    "Retire",
    "SendActivate",
    "SendDirect",
    "SendDiscard",
    "SendStage",
    "SendState",
    "StageRefused",
    "StateStaged",
    "StepDown",
    "Superseded",
    "TimePassed",
    "TransferCommitted",
    "TransferRefused",
]


class Case(StrEnum):
    """Which of the three cases of TRANSFER.md this transfer takes."""

    DIFFERENT_HOMES = "1"
    SAME_HOME = "2"
    DIRECT = "3"


class Mode(StrEnum):
    """What the commit waits for (docs/reference/transfer.md)."""

    EAGER = "eager"
    STAGED = "staged"


class OutgoingPhase(StrEnum):
    """Where the transfer stands, as far as the old authority knows."""

    STAGING = "staging"
    ABORTING = "aborting"
    REQUESTED = "requested"
    COMMITTED = "committed"
    RETIRED = "retired"
    RESUMED = "resumed"
    LOST = "lost"


# --- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TransferCommitted:
    """The home answered: committed. `fence` is the one that the target holds."""

    fence: Fence
    certificate: str


@dataclass(frozen=True, slots=True)
class TransferRefused:
    """The home answered: refused; authority stays here, under `fence`."""

    reason: str
    fence: Fence


@dataclass(frozen=True, slots=True)
class Lost:
    """The home answered: you do not have authority any more; another does, under `fence`."""

    authority: str
    fence: Fence


@dataclass(frozen=True, slots=True)
class PeerActive:
    """The target said that it simulates under `fence`."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class StateStaged:
    """The target has the frozen state on its disk."""


@dataclass(frozen=True, slots=True)
class StageRefused:
    """The target will not take the state."""

    reason: str


@dataclass(frozen=True, slots=True)
class OverBudget:
    """The entity was frozen for as long as it may be, and home has not said yet that the hand-over is committed."""

    reason: str = Reason.FREEZE_BUDGET.value


@dataclass(frozen=True, slots=True)
class Superseded:
    """A certificate proves that the log has gone on to `fence`, which is this server's: the entity has come back."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed."""


Event = (
    StateStaged
    | StageRefused
    | OverBudget
    | TransferCommitted
    | TransferRefused
    | Lost
    | PeerActive
    | Superseded
    | TimePassed
)


# --- effects ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendState:
    """Send the frozen state to the target (off the numbered path)."""


@dataclass(frozen=True, slots=True)
class SendStage:
    """Send, or repeat, the frozen state to the target, which answers when it is on its disk (staged mode)."""

    attempt: int


@dataclass(frozen=True, slots=True)
class AskAbort:
    """Ask, or ask again, the home instance to give the transfer up for `reason` and to raise the epoch."""

    reason: str
    attempt: int


@dataclass(frozen=True, slots=True)
class SendDiscard:
    """Tell the target that nothing will come of the state that it may have staged."""


@dataclass(frozen=True, slots=True)
class AskHome:
    """Send, or repeat, the request to the home instance; `attempt` counts from 1."""

    attempt: int


@dataclass(frozen=True, slots=True)
class SendDirect:
    """Send, or repeat, state and certificate chain to the target (case 3)."""

    attempt: int


@dataclass(frozen=True, slots=True)
class SendActivate:
    """Send, or repeat, the log's certificate to the target (case 1, last hop)."""

    certificate: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ForwardJournal:
    """Send the inputs that came since the freeze (and were not sent yet) to the target."""


@dataclass(frozen=True, slots=True)
class Retire:
    """Drop the frozen copy; keep a tombstone with the new authority's name and its fence."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class Resume:
    """Simulate again under `fence`, from the frozen state and the journal."""

    fence: Fence
    reason: str


@dataclass(frozen=True, slots=True)
class StepDown:
    """Another has authority: drop the entity and forward what it was owed."""

    authority: str
    fence: Fence


@dataclass(frozen=True, slots=True)
class ReportTransfer:
    """Tell the home instance how it went."""


Effect = (
    SendStage
    | AskAbort
    | SendDiscard
    | SendState
    | AskHome
    | SendDirect
    | SendActivate
    | ForwardJournal
    | Retire
    | Resume
    | StepDown
    | ReportTransfer
)

# Every legal transition. An event that is absent for a phase is stale: a repetition or a late answer. Nothing may
# follow from it, because the phase already holds the log's word.
TABLE: Final[dict[tuple[OutgoingPhase, type[Event]], OutgoingPhase]] = {
    (OutgoingPhase.STAGING, StateStaged): OutgoingPhase.REQUESTED,
    (OutgoingPhase.STAGING, StageRefused): OutgoingPhase.ABORTING,
    (OutgoingPhase.STAGING, OverBudget): OutgoingPhase.ABORTING,
    (OutgoingPhase.STAGING, Superseded): OutgoingPhase.RETIRED,
    (OutgoingPhase.STAGING, TimePassed): OutgoingPhase.STAGING,
    (OutgoingPhase.ABORTING, TransferCommitted): OutgoingPhase.COMMITTED,
    (OutgoingPhase.ABORTING, TransferRefused): OutgoingPhase.RESUMED,
    (OutgoingPhase.ABORTING, Lost): OutgoingPhase.LOST,
    (OutgoingPhase.ABORTING, PeerActive): OutgoingPhase.RETIRED,
    (OutgoingPhase.ABORTING, Superseded): OutgoingPhase.RETIRED,
    (OutgoingPhase.ABORTING, TimePassed): OutgoingPhase.ABORTING,
    (OutgoingPhase.REQUESTED, OverBudget): OutgoingPhase.ABORTING,
    (OutgoingPhase.REQUESTED, TransferCommitted): OutgoingPhase.COMMITTED,
    (OutgoingPhase.REQUESTED, TransferRefused): OutgoingPhase.RESUMED,
    (OutgoingPhase.REQUESTED, Lost): OutgoingPhase.LOST,
    (OutgoingPhase.REQUESTED, PeerActive): OutgoingPhase.RETIRED,
    (OutgoingPhase.REQUESTED, Superseded): OutgoingPhase.RETIRED,
    (OutgoingPhase.REQUESTED, TimePassed): OutgoingPhase.REQUESTED,
    (OutgoingPhase.COMMITTED, Lost): OutgoingPhase.LOST,
    (OutgoingPhase.COMMITTED, PeerActive): OutgoingPhase.RETIRED,
    (OutgoingPhase.COMMITTED, Superseded): OutgoingPhase.RETIRED,
    (OutgoingPhase.COMMITTED, TimePassed): OutgoingPhase.COMMITTED,
}

# The first repetition comes well after a healthy transfer is over (tens of milliseconds on one machine). Later ones
# back off to a second, in which the target may have been started again.
FIRST_RETRY_NS: Final = 250_000_000
MAX_RETRY_NS: Final = 1_000_000_000
# Home decides for all, and hundreds that ask it again every second would keep it from that for good. A server that has
# heard that it is back asks at once (`asks`).
MAX_ASK_NS: Final = 8_000_000_000
# A target that has not answered this many times may be dead, or have handed the entity on. Only the log knows.
ATTEMPTS_WITHOUT_HOME: Final = 3
# After that home is asked with the attempts that are powers of two, and then with every one after that number.
ASK_EVERY: Final = 16
# How long a target may take to stage a state: the entity is frozen meanwhile. A server that has its disk and its
# network needs milliseconds for it, and one that is not there would be waited for in vain.
STAGE_PATIENCE_NS: Final = 2_000_000_000


class Outgoing:
    """One transfer, seen from the server that hands over.

    Args:
        case: which path the transfer takes.
        fence: the fence under which the entity was frozen; `leads_to` is the target's, as far as is known.
        now_ns: monotonic time of the freeze.
        first_retry_ns: after how long without an answer it repeats for the first time.
        mode: whether the state must be on the target's disk before the commit.
        patience_ns: how long the target may take for that; then it is given up (`target_failed`).
        budget_ns: how long the entity may be frozen before the commit, in either mode, then it is given up
            (`freeze_budget`); 0 for as long as that takes.
        seed: of what repetitions come earlier than they would have to, by up to a quarter. What one server hands over
            has the same one, so that it is asked for together; that of others comes at other times.
    """

    def __init__(
        self,
        case: Case,
        fence: Fence,
        now_ns: int,
        first_retry_ns: int = FIRST_RETRY_NS,
        mode: Mode = Mode.EAGER,
        patience_ns: int = STAGE_PATIENCE_NS,
        budget_ns: int = 0,
        seed: str = "",
    ) -> None:
        self._seed: Final = seed
        self.case = case
        self.fence = fence
        self.mode = mode
        self.phase = OutgoingPhase.STAGING if mode is Mode.STAGED else OutgoingPhase.REQUESTED
        self._staged_by_ns = now_ns + patience_ns
        self._budget_ends_ns = now_ns + budget_ns if budget_ns else None
        # Whether anything has been asked for that may have been committed.
        self._has_asked = mode is Mode.EAGER
        self._abort_reason = ""
        self.attempt = 0
        self.leads_to = fence.passed() if case is Case.DIRECT else fence.raised()
        self._certificate = ""
        self._retry_at_ns = now_ns
        self._first_retry_ns = first_retry_ns

    @property
    def over(self) -> bool:
        """Whether the transfer has its result."""
        return self.phase in (OutgoingPhase.RETIRED, OutgoingPhase.RESUMED, OutgoingPhase.LOST)

    @property
    def next_timer_ns(self) -> int | None:
        """When the next `TimePassed` is due, or None."""
        return None if self.over else self._retry_at_ns

    def may_lead_to(self, fence: Fence) -> bool:
        """Whether the target may have got the entity under this fence by this very transfer.

        Of a commit that is further on than the next one where another history of the log may have given that
        (`authority.procedures.log_rollback`).
        """
        return fence == self.leads_to or (
            self.case is not Case.DIRECT and fence > self.leads_to and fence.may_follow(self.fence)
        )

    def asks(self) -> list[Effect]:
        """What home is being asked at the moment, for a server that has heard that it can answer again."""
        if self.phase is OutgoingPhase.ABORTING:
            return [AskAbort(self._abort_reason, self.attempt)]
        return [AskHome(self.attempt)] if self._waits_for_home else []

    @property
    def _waits_for_home(self) -> bool:
        is_requested = self.phase is OutgoingPhase.REQUESTED and self.case is not Case.DIRECT
        return is_requested or self.phase is OutgoingPhase.ABORTING

    def start(self, now_ns: int) -> list[Effect]:
        """The effects that begin the transfer."""
        return self.handle(TimePassed(), now_ns)

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        """Take one event; return what must be done, in order."""
        if isinstance(event, TimePassed):
            if now_ns < self._retry_at_ns:
                return []
            event = self._given_up(now_ns) or event
        elif self._budget_ends_ns is not None and isinstance(event, StateStaged) and self._is_over_budget(now_ns):
            # No timer has fired yet, but it is too late to ask for the commit.
            event = OverBudget()
        target = TABLE.get((self.phase, type(event)))
        if target is None or not self._believable(event):
            return []
        self.phase = target
        if isinstance(event, TransferCommitted | PeerActive) and self.may_lead_to(event.fence):
            self.leads_to = event.fence
        match event:
            case TimePassed():
                return self._repeat(now_ns)
            case StateStaged():
                self._has_asked = True
                return self._begin_anew(now_ns)
            case StageRefused(reason=reason) | OverBudget(reason=reason):
                # Before the first attempt nothing has been asked for in eager mode either.
                self._has_asked = self._has_asked and self.attempt > 0
                self._abort_reason = reason
                return self._begin_anew(now_ns)
            case TransferCommitted(certificate=certificate):
                self._certificate = certificate
                # In case 2 the home tells the target itself; the old authority steps in only when that takes long.
                if self.case is Case.DIFFERENT_HOMES:
                    return self._begin_anew(now_ns)
                self.attempt, self._retry_at_ns = 0, now_ns + self._first_retry_ns
                return []
            case _:
                return self._end(event)

    def _given_up(self, now_ns: int) -> Event | None:
        """What time alone brings about, if anything."""
        if self._budget_ends_ns is not None and self._is_over_budget(now_ns):
            return OverBudget()
        if self.phase is OutgoingPhase.STAGING and now_ns >= self._staged_by_ns:
            return StageRefused(Reason.TARGET_FAILED.value)
        return None

    def _is_over_budget(self, now_ns: int) -> bool:
        return self._must_end_by_ns is not None and now_ns >= self._must_end_by_ns

    @property
    def _must_end_by_ns(self) -> int | None:
        """When the budget is over, if anything can still be given up for that."""
        is_open = self.phase is OutgoingPhase.STAGING or (
            # A pass is as good as sent with the first attempt.
            self.phase is OutgoingPhase.REQUESTED and (self.case is not Case.DIRECT or self.attempt == 0)
        )
        return self._budget_ends_ns if is_open else None

    def _end(self, event: Event) -> list[Effect]:
        """What ends the transfer."""
        match event:
            case TransferRefused(reason=reason, fence=fence):
                discard: list[Effect] = [SendDiscard()] if self.mode is Mode.STAGED else []
                return [Resume(fence, reason), *discard]
            case Lost(authority=authority, fence=fence):
                return [StepDown(authority, fence)]
            case _:
                return [ForwardJournal(), Retire(self.leads_to), ReportTransfer()]

    def _believable(self, event: Event) -> bool:
        """Whatever ends the wait carries the fence that follows from the one frozen under; else it is of the past."""
        is_passed = self.case is Case.DIRECT and self.phase in (OutgoingPhase.REQUESTED, OutgoingPhase.COMMITTED)
        match event:
            case TransferCommitted(fence=fence) | PeerActive(fence=fence):
                return self._has_asked and fence >= self.leads_to
            case Superseded(fence=fence):
                return fence >= self.leads_to
            case TransferRefused(reason=reason, fence=fence):
                # A pass is not taken back, unless by a chain by which no server can have begun.
                is_void = not is_passed or reason == Reason.NO_DELEGATION
                return is_void and fence == self.fence.raised()
            case Lost(fence=fence):
                # After the commit the log says whose it is under `leads_to`; further on the entity may have ended.
                is_given = is_passed or self.phase is OutgoingPhase.COMMITTED
                return fence > self.leads_to if is_given else fence >= self.fence
            case OverBudget():
                return self._must_end_by_ns is not None
            case TimePassed() | StateStaged() | StageRefused():
                return True

    def _begin_anew(self, now_ns: int) -> list[Effect]:
        """Another phase has begun, in which nothing has been tried yet."""
        self.attempt = 0
        self._retry_at_ns = now_ns
        return self._repeat(now_ns)

    def _repeat(self, now_ns: int) -> list[Effect]:
        self.attempt += 1
        self._retry_at_ns = now_ns + self._wait_ns()
        if self._must_end_by_ns is not None:
            self._retry_at_ns = min(self._retry_at_ns, max(self._must_end_by_ns, now_ns + 1))
        if self.phase is OutgoingPhase.STAGING:
            self._retry_at_ns = min(self._retry_at_ns, max(self._staged_by_ns, now_ns + 1))
            return [SendStage(self.attempt)]
        if self.phase is OutgoingPhase.ABORTING:
            return [AskAbort(self._abort_reason, self.attempt)]
        ask: list[Effect] = [AskHome(self.attempt)] if _asks_home(self.attempt) else []
        if self.case is Case.DIRECT:
            return [SendDirect(self.attempt), *ask]
        if self.phase is OutgoingPhase.REQUESTED:
            # The request leaves first: it has the longer way to go. What is staged need not be sent beside it.
            is_there = self.mode is Mode.STAGED and self.attempt == 1
            return [AskHome(self.attempt)] if is_there else [AskHome(self.attempt), SendState()]
        # A repetition re-sends the state too: the target may have restarted and lost what it had staged in memory.
        resend: list[Effect] = [SendState()] if self.attempt > 1 else []
        return [*resend, SendActivate(self._certificate, self.attempt), *ask]

    def _wait_ns(self) -> int:
        """How long to wait for an answer to this attempt."""
        # The exponent is bounded, because an attempt number is not: a home instance may be gone for days.
        longest_ns = max(self._first_retry_ns, MAX_ASK_NS if self._waits_for_home else MAX_RETRY_NS)
        wait_ns = min(self._first_retry_ns << min(self.attempt - 1, 8), longest_ns)
        if not self._seed or self.attempt == 1:
            return wait_ns
        share = zlib.crc32(f"{self._seed}/{self.attempt}".encode())
        return wait_ns - (wait_ns * share >> 34)


def _asks_home(attempt: int) -> bool:
    """Whether home is asked with this attempt about what was sent to the target."""
    is_power_of_two = attempt & (attempt - 1) == 0
    return attempt > ATTEMPTS_WITHOUT_HOME and (is_power_of_two or attempt % ASK_EVERY == 0)
