"""Asking the home instance about unresolved transfers: of entities that this server was given.

Three cases may be unresolved. An entity lives here by a chain of direct passes, and no grant has come since. The server
that passed it may have died before it told the log. The log gave an entity to this server, and its state does not come:
the source may have died with it. Or this server was given one that it will never begin with, because it has heard of a
higher fence meanwhile. In good times others say all within milliseconds, and nothing is asked.

Asking what became of states that were staged here and of which nothing was heard since.

Usually the certificate comes a moment after the state, or word that nothing comes of it. Either may be lost, with a
message or with the server that would have repeated it. And a target that starts again with staged states on its disk
has heard nothing yet. The log knows: the state is this server's to begin with, or to be thrown away, or not decided
yet.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

import trio

from batonpass.actors.base.clock import Clock
from batonpass.authority.machines.target import Permission
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.transfer import Message, Passed, StageInquiry, StageWord, Stranded
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.simserver.entity.table import Holdings
from batonpass.simserver.lease.keeper import LeaseKeeper
from batonpass.simserver.net.home_answers import HomeRefused, HomeUnreachable
from batonpass.simserver.net.ports import SimserverPorts
from batonpass.simserver.transfer.target.staged_states import StagedState, Stages

__all__ = [
    "AFTER_NS",
    "CHAIN_AFTER_NS",
    "MAX_LOOSE",
    "STATE_AFTER_NS",
    "StagedOutcomeQueries",
    "UnresolvedTransfers",
    "Unsettled",
]

_log = logging.getLogger("batonpass.simserver.transfer.target.unresolved")

# Others tell the log of a pass, without a word to the new authority. If they die before that, home asks for it when
# their leases are over (`Unsettled.hurry`). Only if they give up, this is what the log hears of it.
CHAIN_AFTER_NS: Final = 30_000_000_000
# Longer than any healthy hand-over takes.
STATE_AFTER_NS: Final = 5_000_000_000
# Of each kind; of more, the oldest are forgotten: what they are about is found when it is asked for.
MAX_LOOSE: Final = 16_384
_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Wanting:
    """Leave to begin with an entity that has not been used."""

    permission: Permission
    ask_at_ns: int
    never: bool


class Unsettled:
    """The table of unresolved transfers; `Arrivals` writes it."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._chains: FifoTable[str, int] = FifoTable(MAX_LOOSE)
        self._wanting: FifoTable[str, _Wanting] = FifoTable(MAX_LOOSE)

    def begun(self, entity: str, *, by_chain: bool) -> None:
        """This server simulates an entity, by a chain that the log may not know, or because the log said so."""
        self._wanting.pop(entity, None)
        self._chains.pop(entity, None)
        if by_chain:
            self._chains[entity] = self._clock.monotonic_ns() + CHAIN_AFTER_NS

    def hurry(self, entity: str) -> None:
        """A server asks which one has it: the log does not know of its chain, or not yet."""
        if entity in self._chains:
            self._chains[entity] = 0

    def wants(self, entity: str, permission: Permission, *, never: bool = False) -> None:
        """There is permission to begin with an entity, and no state yet; or `never` one that could be used."""
        known = self._wanting.get(entity)
        if known is not None and (known.permission, known.never) == (permission, never):
            return
        at_ns = self._clock.monotonic_ns() + (0 if never else STATE_AFTER_NS)
        self._wanting[entity] = _Wanting(permission, at_ns, never)

    def chains(self) -> Iterator[str]:
        """The entities whose chains it is time to tell home of; each again after a while."""
        now_ns = self._clock.monotonic_ns()
        for entity in [name for name, at_ns in self._chains.items() if at_ns <= now_ns]:
            self._chains[entity] = now_ns + CHAIN_AFTER_NS
            yield entity

    def forget_chain(self, entity: str) -> None:
        """The log knows, or the entity has left."""
        self._chains.pop(entity, None)

    def wanting(self) -> Iterator[tuple[str, Permission, bool]]:
        """The entities of which it is time to say that there is no state; each again after a while."""
        now_ns = self._clock.monotonic_ns()
        for entity, one in [(name, one) for name, one in self._wanting.items() if one.ask_at_ns <= now_ns]:
            self._wanting[entity] = _Wanting(one.permission, now_ns + STATE_AFTER_NS, one.never)
            yield entity, one.permission, one.never

    def forget_wanting(self, entity: str) -> None:
        """It is not waited for here any more."""
        self._wanting.pop(entity, None)


class UnresolvedTransfers:
    """Asks the home instance about unresolved transfers, one after the other, while it is served.

    Args:
        lease: without one, home is not asked.
        still_wants: whether there is permission to begin that still waits for its state.
    """

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        holdings: Holdings,
        unsettled: Unsettled,
        still_wants: Callable[[str, Permission], bool],
    ) -> None:
        self._server = ports.name
        self._home = ports.home
        self._lease: Final = lease
        self._unsettled = unsettled
        self._holdings = holdings
        self._still_wants = still_wants
        self._clock = ports.clock
        self._counts = ports.counts

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask what there is to ask, until cancelled."""
        task_status.started()
        while True:
            for question in () if self._lease.why_not_asked() else self.due():
                await self._ask(question)
            await self._clock.sleep_s(_LOOK_S)

    def due(self) -> list[Passed | Stranded]:
        """What it is time to ask."""
        questions: list[Passed | Stranded] = []
        for entity in self._unsettled.chains():
            holding = self._holdings.get(entity)
            if holding is None or len(holding.chain) < 2:
                self._unsettled.forget_chain(entity)
            else:
                name = f"{holding.fence.epoch}-{holding.fence.sub}"
                questions.append(Passed(transfer_id=f"passed-{name}", entity=entity, chain=list(holding.chain)))
        for entity, permission, never in self._unsettled.wanting():
            if never or not self._still_wants(entity, permission):
                # An entity that comes again is noted again.
                self._unsettled.forget_wanting(entity)
            if never or self._still_wants(entity, permission):
                questions.append(self._stranded(entity, permission, never=never))
        return questions

    def _stranded(self, entity: str, permission: Permission, *, never: bool) -> Stranded:
        return Stranded(
            transfer_id=permission.transfer_id,
            entity=entity,
            epoch=permission.fence.epoch,
            sub=permission.fence.sub,
            target=self._server,
            incarnation=self._lease.incarnation,
            never=never,
        )

    async def _ask(self, question: Passed | Stranded) -> None:
        self._counts[f"asked_{question.type}"] += 1
        message: Message = question
        try:
            answer = await self._home.ask(message, Trace(question.transfer_id), on_path=False)
        except (HomeUnreachable, HomeRefused) as error:
            _log.info("what became of %s cannot be found out now: %s", question.entity, error)
            return
        if answer is not None and isinstance(answer.message, StageWord) and answer.message.word == "void":
            self._unsettled.forget_wanting(question.entity)


_outcome_log = logging.getLogger("batonpass.simserver.transfer.target.unresolved")

# Longer than any healthy hand-over takes, so that nothing is asked in good times.
AFTER_NS: Final = 5_000_000_000
_OUTCOME_LOOK_S: Final = 1.0


class StagedOutcomeQueries:
    """Asks the home instance about staged states, one after the other, while it is served.

    Args:
        lease: without one, home is not asked.
        told: what is done with an answer.
    """

    def __init__(
        self,
        ports: SimserverPorts,
        lease: LeaseKeeper,
        holdings: Holdings,
        stages: Stages,
        told: Callable[[StagedState, StageWord], Awaitable[None]],
    ) -> None:
        self._server = ports.name
        self._home = ports.home
        self._stages = stages
        self._holdings = holdings
        self._clock = ports.clock
        self._counts = ports.counts
        self._told = told
        self._lease: Final = lease
        # States that were on disk at the start are asked about at once. Bounded like the stages.
        self._ask_at_ns = dict.fromkeys((stage.transfer_id for stage in stages.waiting()), 0)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask what there is to ask, until cancelled."""
        task_status.started()
        while True:
            for stage in () if self._lease.why_not_asked() else self.due():
                await self._ask(stage)
            await self._clock.sleep_s(_OUTCOME_LOOK_S)

    def due(self) -> list[StagedState]:
        """The staged states that it is time to ask about; those that live here already are used up."""
        now_ns, ask_at_ns, due = self._clock.monotonic_ns(), self._ask_at_ns, []
        self._ask_at_ns = {}
        for stage in self._stages.waiting():
            if self._has_begun(stage):
                self._stages.used(stage.transfer_id)
                continue
            self._ask_at_ns[stage.transfer_id] = at_ns = ask_at_ns.get(stage.transfer_id, now_ns + AFTER_NS)
            if at_ns <= now_ns:
                self._ask_at_ns[stage.transfer_id] = now_ns + AFTER_NS
                due.append(stage)
        return due

    def _has_begun(self, stage: StagedState) -> bool:
        """Whether this server has simulated the entity after this state, now or before it stopped."""
        holding, lived = self._holdings.get(stage.entity), self._holdings.lived(stage.entity)
        return (holding is not None and holding.fence > stage.fence) or (lived is not None and lived > stage.fence)

    def inquiry(self, stage: StagedState) -> StageInquiry:
        """The question."""
        return StageInquiry(
            transfer_id=stage.transfer_id,
            entity=stage.entity,
            epoch=stage.epoch,
            sub=stage.sub,
            target=self._server,
        )

    async def _ask(self, stage: StagedState) -> None:
        self._counts["stage_inquiries"] += 1
        try:
            answer = await self._home.ask(self.inquiry(stage), Trace(stage.transfer_id), on_path=False)
            if answer is not None and isinstance(answer.message, StageWord):
                await self._told(stage, answer.message)
        except (HomeUnreachable, HomeRefused) as error:
            _outcome_log.info("what became of %s cannot be found out now: %s", stage.transfer_id, error)
        except Exception:
            # One state must not keep the others from being asked about.
            self._counts["internal_error"] += 1
            _outcome_log.exception("asking about %s ran into an error of ours", stage.transfer_id)
