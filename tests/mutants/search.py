"""Hand-overs with one guard taken away each: a search that finds nothing must show that it can find something.

The random walks of tests/authority/machines/test_handover_stateful.py have to notice them too; those also move others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from batonpass.authority.fence import Fence
from batonpass.authority.machines import source as outgoing
from batonpass.authority.machines import target as incoming
from batonpass.authority.machines.source import Outgoing, OutgoingPhase
from batonpass.authority.machines.target import Incoming, Offer, Permission
from batonpass.authority.model.records import EntityRecord
from batonpass.authority.procedures import table as procedures
from batonpass.authority.wire.transfer import StageState, StageWord
from batonpass.scenarios.simulation.search.handover import SearchBounds
from batonpass.scenarios.simulation.search.home import ENTITY
from batonpass.scenarios.simulation.search.host import SearchParts
from batonpass.scenarios.simulation.search.keys import HOME
from batonpass.simserver.entity.table import Holding
from batonpass.simserver.transfer.source.departure import DeparturePlan
from batonpass.simserver.transfer.source.departures import Departures
from batonpass.simserver.transfer.source.order_history import SeenOrders
from batonpass.simserver.transfer.target.arrivals import Arrivals

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """A guard that is missing, and bounds that are enough to notice; `kind` is the promise that breaks."""

    name: str
    sentence: str
    parts: SearchParts
    bounds: SearchBounds = field(default_factory=lambda: SearchBounds(repeats=0, inputs=0))
    kind: str = "safety"


class _FenceNotRaised(Incoming):
    def fence_raised(self, fence: Fence) -> None: ...


class _StaleCertificates(Incoming):
    def permitted(self, permission: Permission) -> incoming.Effect:
        self.seen, self._acted_on = Fence(0), None
        return super().permitted(permission)

    def offered(self, offer: Offer) -> incoming.Effect:
        self.seen = Fence(0)
        return super().offered(offer)


class _AnyCertificate(Incoming):
    def _try(self) -> incoming.Effect:
        permission = self._permission
        if permission is None or not self._offers:
            return incoming.AwaitOtherHalf()
        offer = next(reversed(self._offers.values()))
        self.seen = permission.fence
        self._acted_on, self._permission = permission, None
        self._offers.clear()
        return incoming.ActivateOffer(offer, permission)


class _ActivatesAtOnce(Incoming):
    def offered(self, offer: Offer) -> incoming.Effect:
        super().offered(offer)
        return super().permitted(Permission(offer.transfer_id, offer.fence.raised(), offer.state_hash, HOME))


class _AnswersOnce(Incoming):
    def permitted(self, permission: Permission) -> incoming.Effect:
        effect = super().permitted(permission)
        return incoming.Drop("seen") if isinstance(effect, incoming.AnswerAgain) else effect


class _ResumesOnTimeout(Outgoing):
    def handle(self, event: outgoing.Event, now_ns: int) -> list[outgoing.Effect]:
        if isinstance(event, outgoing.TimePassed) and self.attempt >= 1 and not self.over:
            self.phase = OutgoingPhase.RESUMED
            return [outgoing.Resume(self.fence.raised(), "timeout")]
        return super().handle(event, now_ns)


class _DeletesAtCommit(Outgoing):
    def handle(self, event: outgoing.Event, now_ns: int) -> list[outgoing.Effect]:
        effects = super().handle(event, now_ns)
        if isinstance(event, outgoing.TransferCommitted) and self.phase is OutgoingPhase.COMMITTED:
            self.phase = OutgoingPhase.RETIRED
            return [*effects, outgoing.Retire(event.fence)]
        return effects


class _DeletesBeforeCommit(Outgoing):
    def handle(self, event: outgoing.Event, now_ns: int) -> list[outgoing.Effect]:
        effects = super().handle(event, now_ns)
        if isinstance(event, outgoing.TimePassed) and not self.over:
            self.phase = OutgoingPhase.RETIRED
            return [*effects, outgoing.Retire(self.leads_to)]
        return effects


class _AsksOnce(Outgoing):
    def _repeat(self, now_ns: int) -> list[outgoing.Effect]:
        return super()._repeat(now_ns) if self.attempt == 0 else []


class _AsksBeforeStaged(Outgoing):
    def handle(self, event: outgoing.Event, now_ns: int) -> list[outgoing.Effect]:
        effects = super().handle(event, now_ns)
        if isinstance(event, outgoing.TimePassed) and self.phase is OutgoingPhase.STAGING:
            return [*effects, *super().handle(outgoing.StateStaged(), now_ns)]
        return effects


class _ResumesWithoutTheLog(Outgoing):
    def handle(self, event: outgoing.Event, now_ns: int) -> list[outgoing.Effect]:
        effects = super().handle(event, now_ns)
        if self.phase is OutgoingPhase.ABORTING:
            self.phase = OutgoingPhase.RESUMED
            return [outgoing.Resume(self.fence.raised(), "impatient")]
        return effects


class _AnswersBeforeItIsOnDisk(Arrivals):
    async def _keep(self, message: StageState, source: str) -> str:
        return ""


class _ActsForAnotherLife(Arrivals):
    def _is_for_this_life(self, incarnation: int) -> bool:
        return True


class _HearsNoWord(Arrivals):
    async def stage_word(self, stage: Any, word: StageWord) -> None: ...


class _Memory(SeenOrders):
    def is_repeated(self, plan: DeparturePlan, holding: Holding) -> bool:
        return self.is_repetition(plan.transfer_id, holding.fence.epoch)

    def may_be_passed(self, plan: DeparturePlan, holding: Holding) -> bool:
        return plan.transfer_id not in self


class _TrustsItsMemory(Departures):
    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._begun.__class__ = _Memory


def _with(name: str, procedure: Callable[[Callable[..., Any], Any, Mapping[str, Any]], Any]) -> SearchParts:
    original = procedures.PROCEDURES[name]
    return SearchParts(procedures={**procedures.PROCEDURES, name: lambda rows, args: procedure(original, rows, args)})


def _refuses_without_raising(original: Callable[..., Any], rows: Any, args: Mapping[str, Any]) -> Any:
    path = ("entities", args["entity"])
    before = rows.get_or(path, None)
    answer = original(rows, args)
    if answer["outcome"] != "refused" or rows.get_or(path, None)["authority"] != args["source"]:
        return answer
    rows.put(path, before)
    known = EntityRecord.from_data(before)
    return answer | {"epoch": known.epoch, "sub": known.sub}


def _forgets_at_once(original: Callable[..., Any], rows: Any, args: Mapping[str, Any]) -> Any:
    answer = original(rows, args)
    if args["entity"] == ENTITY:
        rows.delete(("transfers", args["transfer_id"]))
    return answer


def _commits_for_anybody(original: Callable[..., Any], rows: Any, args: Mapping[str, Any]) -> Any:
    record = EntityRecord.from_data(rows.get_or(("entities", args["entity"]), None))
    return original(rows, {**args, "source": record.authority, "epoch": record.epoch, "sub": record.sub})


_REFUSAL: Final = SearchBounds(losses=0, repeats=0, inputs=1, refusals=True)
_STAGED: Final = SearchBounds(transfers=1, repeats=0, inputs=0, staged=True)
_CRASH: Final = SearchBounds(repeats=0, inputs=0, crashes=1)

_ALL: Final = (
    Mutant(
        "fence-not-raised",
        "what arrives is read before the fence of what this server knows itself is raised",
        SearchParts(incoming=_FenceNotRaised),
        _CRASH,
    ),
    Mutant(
        "stale-certificates",
        "a late state or certificate of an older epoch is taken for a new one",
        SearchParts(incoming=_StaleCertificates),
        SearchBounds(inputs=0),
    ),
    Mutant(
        "any-certificate",
        "a state is simulated with the certificate of another transfer",
        SearchParts(incoming=_AnyCertificate),
        _REFUSAL,
    ),
    Mutant(
        "activates-at-once",
        "a state is taken for permitted before the log has decided",
        SearchParts(incoming=_ActivatesAtOnce),
        kind="recovery",
    ),
    Mutant(
        "answers-once",
        "a certificate that comes again is not answered again",
        SearchParts(incoming=_AnswersOnce),
        kind="recovery",
    ),
    Mutant("resumes-on-timeout", "silence is taken for a refusal", SearchParts(outgoing=_ResumesOnTimeout)),
    Mutant(
        "deletes-before-commit",
        "the state is deleted as soon as it was sent, before the commit is seen",
        SearchParts(outgoing=_DeletesBeforeCommit),
    ),
    Mutant(
        "deletes-at-commit",
        "the state is deleted when the log has decided, before another server has it",
        SearchParts(outgoing=_DeletesAtCommit),
    ),
    Mutant("asks-once", "nothing that was lost is repeated", SearchParts(outgoing=_AsksOnce), kind="recovery"),
    Mutant(
        "refuses-without-raising",
        "a refusal leaves the epoch as it was",
        _with("transfer.commit", _refuses_without_raising),
        SearchBounds(transfers=1, losses=0, repeats=0, inputs=0, refusals=True),
        "recovery",
    ),
    Mutant(
        "forgets-at-once",
        "the log does not remember what it decided",
        _with("transfer.commit", _forgets_at_once),
    ),
    Mutant(
        "commits-for-anybody",
        "the log moves an entity for a server that is not its authority",
        _with("transfer.commit", _commits_for_anybody),
    ),
)

_LATE: Final = (
    Mutant(
        "trusts-its-memory",
        "an order is followed directly unless this life of the server remembers that it was begun",
        SearchParts(departures=_TrustsItsMemory),
        SearchBounds(losses=0, inputs=0, crashes=1, delegated=True, only_direct=True, leases=True),
    ),
)

_LIVES: Final = (
    Mutant(
        "acts-for-another-life",
        "a server that came back begins with what an earlier life of it was given",
        SearchParts(arrivals=_ActsForAnotherLife),
        replace(_CRASH, transfers=1, leases=True, stale_ledger=True),
    ),
    Mutant(
        "names-no-life-abroad",
        "the log gives an entity to a server of another instance, whichever life of it that is",
        _with("transfer.commit", lambda original, rows, args: original(rows, {**args, "incarnation": 0})),
        replace(_CRASH, homes="two-homes", transfers=1, leases=True, stale_ledger=True),
    ),
)

_STAGING: Final = (
    Mutant(
        "asks-before-staged",
        "in staged mode the commit is asked for before the target has the state",
        SearchParts(outgoing=_AsksBeforeStaged),
        _STAGED,
    ),
    Mutant(
        "resumes-without-the-log",
        "a state that could not be staged is resumed without asking the log",
        SearchParts(outgoing=_ResumesWithoutTheLog),
        _STAGED,
    ),
    Mutant(
        "answers-before-it-is-on-disk",
        "the target says that a state is staged and has it in memory only",
        SearchParts(arrivals=_AnswersBeforeItIsOnDisk),
        _STAGED,
    ),
    Mutant(
        "hears-no-word",
        "a target that wonders what became of a staged state does not act on the answer",
        SearchParts(arrivals=_HearsNoWord),
        replace(_STAGED, crashes=1),
        "recovery",
    ),
)

MUTANTS: Final[Mapping[str, Mutant]] = MappingProxyType(
    {mutant.name: mutant for mutant in (*_ALL, *_LATE, *_LIVES, *_STAGING)}
)
