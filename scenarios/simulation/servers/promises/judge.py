"""The promises, watched at every step of a run: the safety sentences of the architecture.

The judge sees what happens, at the moment when it happens on virtual time, whatever the servers believe.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from batonpass.authority.fence import Fence
from batonpass.scenarios.simulation.kernel.debts import Debts
from batonpass.scenarios.simulation.kernel.outcome import Violation
from batonpass.simserver.entity.custody_log import Stint
from batonpass.simserver.entity.state import Life

__all__ = ["ServersJudge"]


_KINDS: Final = {"input": "inputs", "notice": "notice", "freeze": "freeze-budget", "state": "state"}
"""What is said of a server, by the first word of it."""


@dataclass(slots=True)
class _Chain:
    """What is known of one entity: the newest fence under which it was taken up, by which server, and that stint."""

    fence: Fence
    server: str
    stint: Stint
    tick: int
    deaths: int
    """How many servers had died when it was taken up."""
    deaths_before: dict[Fence, int] = field(default_factory=dict)
    """How many had died when it was taken up under earlier fences."""
    applied: dict[str, int] = field(default_factory=dict)
    """How many inputs of each source it was taken up with."""
    kept: dict[str, int] = field(default_factory=dict)
    """How many inputs of each source a backup replica has said that it keeps."""
    kept_after: int = 0
    """How many servers had died when it said so, last."""


class ServersJudge:
    """Keeps the first violation of each kind.

    `may_simulate(server, entity)` says whether that server would simulate it on at this moment, `has_lease(server)`
    whether it would simulate anything. `note` takes a line for the trace. `keepers(entity, fence)` says which servers
    have something of a custody of it, in memory or on disk, and were not removed. `outlives(server, entity)` says
    whether there would be anything of it if that server died now.
    """

    def __init__(
        self,
        may_simulate: Callable[[str, str], bool],
        has_lease: Callable[[str], bool],
        note: Callable[[str], None],
        keepers: Callable[[str, Fence], list[str]] = lambda entity, fence: [],
        outlives: Callable[[str, str], bool] = lambda server, entity: True,
    ) -> None:
        self.violations: Final[list[Violation]] = []
        self.debts: Final = Debts()
        self.ticks = 0
        self.moves = 0
        self.takeovers = 0
        self.ticks_lost = 0
        self._may_simulate: Final = may_simulate
        self._has_lease: Final = has_lease
        self._keepers: Final = keepers
        self._outlives: Final = outlives
        self._note: Final = note
        self._chains: dict[str, _Chain] = {}
        self._sources: dict[str, dict[str, None]] = {}
        self._leaseless: dict[str, None] = {}
        self._excused: dict[str, None] = {}
        self._set_back: dict[str, None] = {}
        self._taken_over: dict[str, tuple[int, int]] = {}
        self.resumed: Final[dict[str, list[Fence]]] = {}
        """The fences under which each entity was taken up after the server that had it had died."""
        self.came: Final[dict[str, Fence]] = {}
        """The fence under which each entity came to the server that has it; it may have a higher one by now."""
        self._ended_at: Final[dict[tuple[str, str], int]] = {}
        self._shown: Final[dict[tuple[str, str], tuple[Fence, int]]] = {}

    def violated(self, kind: str, sentence: str) -> None:
        """Something happened that must not."""
        if all(known.kind != kind for known in self.violations):
            self.violations.append(Violation(kind, sentence))

    def faulty(self, server: str, sentence: str) -> None:
        """A server did what must not be."""
        kind = next((kind for word, kind in _KINDS.items() if sentence.startswith(word)), "internal-error")
        self.violated(kind, f"{server}: {sentence}")

    # --- simulating ------------------------------------------------------------------------------------------------

    def begun(self, server: str, stint: Stint) -> None:
        """A server takes up an entity: under a higher fence than any server before, from where the last one stopped."""
        fence = Fence(stint.epoch, stint.sub)
        self._note(f"{server} takes up {stint.entity} under {fence} at {stint.started_tick}")
        self._has_come_back(server, stint.entity, fence)
        chain = self._chains.get(stint.entity)
        if chain is not None and fence <= chain.fence and not self._has_lease(server):
            # It slept, and takes up what has been another server's for long; it cannot simulate it, and is watched.
            return
        if chain is not None:
            self._follow(server, stint, fence, chain)
            self.moves += chain.server != server
        if chain is None or fence > chain.fence:
            if chain is not None and self.debts.has_died_since(chain.server, chain.deaths):
                self.resumed.setdefault(stint.entity, []).append(fence)
            deaths = self._deaths_before(server)
            before = {} if chain is None else chain.deaths_before | {chain.fence: chain.deaths}
            applied = {} if chain is None else chain.applied
            self._chains[stint.entity] = _Chain(fence, server, stint, stint.started_tick, deaths, before, applied)

    def _deaths_before(self, server: str) -> int:
        """How many had died when it got its lease, if that is over; it may take something up then, but not continue."""
        deaths = self.debts.deaths
        return len(deaths) - 1 - deaths[::-1].index(server) if server in self._leaseless else len(deaths)

    def _follow(self, server: str, stint: Stint, fence: Fence, chain: _Chain) -> None:
        entity, last = stint.entity, chain.stint
        if fence <= chain.fence:
            self.violated("fence", f"{server} took {entity} up under {fence}, after {chain.server} under {chain.fence}")
        elif self._may_simulate(chain.server, entity):
            self.violated("two-authorities", f"{server} took {entity} up, which {chain.server} still simulates")
        elif stint.started_hash == last.ended_hash and stint.started_tick == chain.tick:
            return
        elif not self.debts.has_died_since(chain.server, chain.deaths):
            self.violated(
                "state",
                f"{server} took {entity} up at tick {stint.started_tick}, {chain.server} had stopped at {chain.tick}",
            )
        else:
            self._take_over(server, stint, chain)

    def _take_over(self, server: str, stint: Stint, chain: _Chain) -> None:
        """The last authority is dead: another server resumes from a copy.

        It may even be a later one than the last authority had. That one may have had to begin from an older copy
        itself, and have died before its own was anywhere.
        """
        self.takeovers += 1
        self._taken_over[stint.entity] = stint.epoch, stint.sub
        self.ticks_lost += max(chain.tick - stint.started_tick, 0)
        thing = (stint.entity, "")
        if (owed := self.debts.owed(thing)) > stint.started_tick:
            self.violated(
                "durable-state",
                f"{server} took {stint.entity} up at tick {stint.started_tick}, and tick {owed} was durable",
            )
        if self.debts.settle(thing, stint.started_tick):
            self._set_back[stint.entity] = None
        if stint.started_tick < chain.stint.started_tick and (keepers := self._keepers(stint.entity, chain.fence)):
            # However many have died: they may return, and what they have can be waited for.
            self.violated(
                "earlier-stay",
                f"{server} took {stint.entity} up at tick {stint.started_tick}, before it came to {chain.server} at"
                f" {chain.stint.started_tick}, and {', '.join(keepers)} had something of what it did there",
            )

    def heard_of_end(self, server: str, entity: str, epoch: int) -> None:
        """A server says that it does nothing with an entity under an earlier epoch."""
        self._note(f"{server} has heard that {entity} has ended")
        self._ended_at[server, entity] = max(epoch, self._ended_at.get((server, entity), 0))

    def _has_come_back(self, server: str, entity: str, fence: Fence) -> None:
        if fence.epoch < self._ended_at.get((server, entity), 0):
            self.violated("came-back", f"{server} simulates {entity} under {fence}, and said that it has ended")

    def lives(self, server: str, life: Life) -> None:
        """What a server took up: whatever its players were told to be durable is in it."""
        chain, cursors = self._chains[life.id], life.inbox.cursors
        if (chain.server, chain.fence) != (server, life.fence):
            return
        self.came[life.id] = life.fence
        applied = dict.fromkeys(self._sources.get(life.id, ()), 0)
        applied |= {name: cursor.applied for name, cursor in cursors.items()}
        for source, upto in applied.items():
            thing = (life.id, source)
            if (owed := self.debts.owed(thing)) > upto:
                self._forgotten(server, life.id, source, upto, owed)
            if self.debts.settle(thing, upto):
                self._excused[life.id] = None
        chain.applied = applied

    def _forgotten(self, server: str, entity: str, source: str, has: int, told: int) -> None:
        sentence = f"{server} took {entity} up with {has} inputs of {source}, which was told that {told} are durable"
        self.violated("durable-inputs", sentence)

    def ticked(self, server: str, life: Life) -> None:
        """A server simulated an entity for one tick, which only its newest authority may."""
        self.ticks += 1
        if self._ended_at:
            self._has_come_back(server, life.id, life.fence)
        chain = self._chains[life.id]
        if chain.server != server or chain.fence != life.fence:
            self.violated(
                "two-authorities",
                f"{server} simulated {life.id} under {life.fence}, which {chain.server} has under {chain.fence}",
            )
        elif life.tick != chain.tick + 1:
            self.violated("state", f"{server} went from tick {chain.tick} of {life.id} to {life.tick}")
        chain.tick = life.tick

    # --- what must not be lost -------------------------------------------------------------------------------------

    def said_to_live(self, server: str, entity: str) -> None:
        """A server tells home that a new entity lives."""
        if not self._outlives(server, entity):
            self.violated("born", f"{server} says that {entity} lives, and if it died now there would be nothing of it")

    def told_durable(self, entity: str, fence: Fence, source: str, upto: int) -> None:
        """A source of inputs is told how many of them are durable, by the present authority or a former one."""
        chain = self._chains[entity]
        if not upto:
            return
        self._sources.setdefault(entity, {})[source] = None
        if fence >= chain.fence:
            # A server without a lease says what was so while it had one.
            deaths = self._deaths_before(chain.server)
            is_kept = fence == chain.fence and upto <= chain.kept.get(source, 0)
            if is_kept:
                self.debts.owe((entity, source), upto, min(deaths, chain.kept_after))
            elif not self.debts.is_known((entity, source), upto):
                # A new authority repeats what its predecessors said: that is no new word, without a copy of its own.
                self.debts.owe((entity, source), upto, deaths)
        elif upto > (has := chain.applied.get(source, 0)) and not self._is_waived(entity, chain, fence):
            self._forgotten(chain.server, entity, source, has, upto)

    def _is_waived(self, entity: str, chain: _Chain, fence: Fence) -> bool:
        """Whether what was durable under an earlier fence may be gone by now."""
        return self.debts.is_waived(chain.deaths_before.get(fence, 0))

    def kept(self, entity: str, fence: Fence, tick: int, applied: Mapping[str, int], said_after: int) -> None:
        """An authority hears that a backup replica keeps a copy.

        The replica that said so, after `said_after` deaths, may have died before it was heard.
        """
        chain = self._chains[entity]
        if fence >= chain.fence:
            self.debts.owe((entity, ""), tick, min(self._deaths_before(chain.server), said_after))
        if fence == chain.fence:
            chain.kept, chain.kept_after = dict(applied), said_after

    def written(self, entity: str, fence: Fence, tick: int) -> None:
        """The last server that is left calls durable what its own disk has: that is waited for, or it is removed."""
        chain = self._chains[entity]
        if fence >= chain.fence:
            self.debts.owe((entity, ""), tick, self._deaths_before(chain.server))

    # --- looking on ------------------------------------------------------------------------------------------------

    def shows(self, observer: str, entity: str, fence: Fence, upto: int) -> None:
        """What a backup replica or a player believes of an entity now: its tick, or how many of its inputs are applied.

        The last word of a former authority may come at any time, and must not take an observer back (FAILURES row 44).
        """
        shown, now = self._shown.get((observer, entity)), (fence, upto)
        if shown is not None and now < shown:
            self.violated(
                "went-back", f"{observer} shows {entity} at {upto} under {fence}, after {shown[1]}, {shown[0]}"
            )
        self._shown[observer, entity] = now

    def forgets(self, observer: str) -> None:
        """An observer begins anew, with nothing in memory."""
        for key in [key for key in self._shown if key[0] == observer]:
            del self._shown[key]

    # --- deaths ----------------------------------------------------------------------------------------------------

    def died(self, server: str) -> None:
        """A server is gone with what it had in memory, or its lease is over."""
        self._note(f"{server} is dead")
        self.debts.died(server)

    def decided(self, procedure: str, args: Any, answer: Any) -> None:
        """The log has done something."""
        match procedure:
            case "lease.expire":
                self.died(args["server"])
                self._leaseless[args["server"]] = None
            case "lease.claim":
                self._leaseless.pop(args["server"], None)
            case "recovery.lost":
                for entity in answer:
                    self._lost(entity)
            case _:
                pass

    def _lost(self, entity: str) -> None:
        self._note(f"{entity} is lost")
        if owed := self.debts.owed((entity, "")):
            self.violated("lost", f"{entity} is given up, and tick {owed} was durable")

    # --- looking ---------------------------------------------------------------------------------------------------

    def last_server(self, entity: str) -> str:
        """The server that simulated it last."""
        return self._chains[entity].server

    def newest(self, entity: str) -> tuple[str, Fence]:
        """The server that took it up last, and under which fence."""
        chain = self._chains[entity]
        return chain.server, chain.fence

    def taken_over(self, entity: str) -> tuple[int, int]:
        """The fence under which it was last resumed from a copy; the lowest if it never was."""
        return self._taken_over.get(entity, (0, 0))

    def is_excused(self, entity: str) -> bool:
        """Whether durable inputs of it were lost, with more servers than are allowed to die."""
        return entity in self._excused

    def was_set_back(self, entity: str) -> bool:
        """Whether ticks of it were lost that were durable, with more servers than are allowed to die."""
        return entity in self._set_back

    def has_died_with(self, entity: str) -> bool:
        """Whether the one that simulated it last has died since it took it up."""
        chain = self._chains[entity]
        return self.debts.has_died_since(chain.server, chain.deaths)
