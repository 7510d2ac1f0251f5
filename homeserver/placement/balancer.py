"""Placement of entities: the homeserver that leads asks its simulation servers, has a policy decide, and gives orders.

It holds nothing that must survive it. That a server is drained is in the log, and where entities are is with the
servers. So the next leader begins with the next round. Orders are not proposals to the log: a server hands entities
over by itself, and the log decides on each as on any other hand-over. What was ordered and does not happen shows in the
next census, and is ordered elsewhere for a while then (`authority.placement.rejections`).

A round asks every server that has to give something up for a census, and shows the policy all that answered. Such a
server is drained, hot, or has something that its world does not take. Servers that have not reported lately get
nothing: no entity is evacuated to a server that is gone.

Drained servers are emptied whatever the policy is. It may choose where an entity goes, and one that it does not name,
or names no good target for, leaves by the built-in rule. A policy that fails has no say in that round. What a server's
world does not take is passed on likewise, also while nothing is balanced. It is quarantined until it is where it is
taken.
"""

import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import trio

from batonpass.actors.base.clock import Clock
from batonpass.actors.base.errors import is_stopping, traceback_of
from batonpass.authority.model.records import DrainRecord, Phase
from batonpass.authority.model.standing import LeasePhase
from batonpass.authority.names import instance_of
from batonpass.authority.node.config import ConfigError
from batonpass.authority.node.plugins import import_named
from batonpass.authority.placement.drain_trials import DrainTrials
from batonpass.authority.placement.limits import PlacementLimits
from batonpass.authority.placement.policy import Balance, Move, Policy, Resident, ServerLoad, View, emptied, units_of
from batonpass.authority.placement.predicted_load import PredictedLoads
from batonpass.authority.placement.rejections import Refusals
from batonpass.authority.wire.hops import Trace
from batonpass.authority.wire.placement import (
    MAX_CENSUS,
    MAX_MOVES,
    Census,
    CensusRequest,
    Load,
    MoveItem,
    Moves,
    StillRow,
)
from batonpass.authority.wire.transfer import Message
from batonpass.crypto.bounded_tables import FifoTable
from batonpass.homeserver.log.store import InstanceStore
from batonpass.homeserver.placement.not_running import NotRunning
from batonpass.homeserver.transfer.parcels import NOT_TOLD

__all__ = ["FRESH_S", "Balancer", "Reported", "load_policy", "random_id"]

_log = logging.getLogger("batonpass.homeserver.placement.balancer")

# A server that has not reported for this long is taken for gone.
FRESH_S: Final = 5.0
ROUND_S: Final = 1.0
DRAINING_ROUND_S: Final = 0.1
CENSUS_TIMEOUT_S: Final = 1.0
# How often the rows of all entities are searched for what a dead server may still be passed. And how much of that is
# handed over each time, so that the dead server is passed nothing.
TAKE_BACK_S: Final = 1.0
MAX_TAKEN_BACK: Final = 64
# To search 50,000 rows takes a tenth of a second.
QUIET_S: Final = 15.0
MAX_REPORTS: Final = 10_000
# The policy is asked in between everything else that the homeserver does, the renewal of leases for one.
SLOW_POLICY_S: Final = 0.1
SLOW_POLICY_AGAIN_S: Final = 10.0
# A policy that takes longer is left alone for `RESTS` times as long. Else servers would lose their leases in every
# round, and no drain would end.
BLOCKING_POLICY_S: Final = 1.0
RESTS: Final = 10
MAX_FAILURES: Final = 64
# What was passed on and is torn from its hierarchy is refused long before that.
PASSED_ON_S: Final = 60.0
_PPM: Final = 1_000_000
_NS: Final = 1_000_000_000


def random_id() -> str:
    """The id of a transfer that no other transfer has."""
    return secrets.token_hex(12)


def load_policy(spec: str) -> Policy:
    """Import `package.module:function`.

    Raises:
        ConfigError: there is no such function, or its module failed.
    """
    policy: Policy = import_named(f"policy {spec!r}", spec, "function")
    if not callable(policy):
        raise ConfigError(f"policy {spec!r} is no function")
    return policy


def _checked(proposed: Iterable[Move]) -> list[Move]:
    """What a policy returned, if it is what it should be. Raises whatever comes of it else."""
    moves = list(proposed)
    for move in moves:
        if not isinstance(move, Move):
            raise TypeError(f"a policy returns moves, and not {move!r:.100}")
        if not all(isinstance(name, str) for name in (move.entity, move.source, move.target)):
            raise TypeError(f"a move is between servers of these names, and not {move!r:.300}")
    return moves


class MovesPost(Protocol):
    """Tells a simulation server something; `homeserver.transfer.parcels.Post.post`."""

    async def __call__(self, message: Message, trace: Trace, to: str, *, on_path: bool) -> None:
        """Raises `NOT_TOLD`."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What a server reported, and how long ago in seconds."""

    load: Load
    age_s: float


class Balancer:
    """Drains servers, passes on what its servers do not take, and balances if it is `balancing`; at work on the leader
    only.

    `new_id` makes the ids of the transfers that it begins; `is_silent` says of another instance whether its home does
    not answer. Its entities are left where they are, as they would be frozen until it decides. `is_handed_back` says of
    an entity whether another part sees to it that it leaves, for where it belongs. `follows_regions` says of a server
    whether its entities go where a table of regions says.
    """

    def __init__(
        self,
        store: InstanceStore,
        post: MovesPost,
        clock: Clock,
        *,
        leads: Callable[[], bool],
        balance: Balance,
        policy: Policy,
        balancing: bool,
        is_silent: Callable[[str], bool],
        is_handed_back: Callable[[str], bool],
        follows_regions: Callable[[str], bool],
        new_id: Callable[[], str] = random_id,
    ) -> None:
        self._store = store
        self._post = post
        self._clock = clock
        self._leads = leads
        self._balance = balance
        self._policy = policy
        self.balancing: Final = balancing
        self._new_id = new_id
        self._is_silent = is_silent
        self._is_handed_back = is_handed_back
        self._follows_regions = follows_regions
        self._reports: FifoTable[str, tuple[Load, int]] = FifoTable(MAX_REPORTS, lambda server, _: self._forget(server))
        # When each said last what is stopped there.
        self._reported_s: dict[str, float] = {}
        # Of each server whose last report was above `hot`: since when all were.
        self._hot_since_ns: dict[str, int] = {}
        self._number = 0
        self._awaited: dict[str, Census | None] = {}
        self._complete = clock.bell()
        self._taken_back_ns: int | None = None
        # For each such server: the last entity that was ordered away, and how many times some were. Also the revision
        # at which there was none, and the time until which the server is not asked again.
        self._taken_back: dict[str, str] = {}
        self._turns: Counter[str] = Counter()
        self._nothing_at: dict[str, tuple[int, int]] = {}
        self._asked_s = 0.0
        self._failures: set[str] = set()
        self._slow_until_s = 0.0
        self._policy_rests_until_s = 0.0
        self.placement_limits = PlacementLimits(balance)
        self._expected = PredictedLoads()
        self._refusals = self._no_refusals()
        self.still: Final = NotRunning()
        """Which entities ran, and do not run where they are now, as their servers say."""
        self._trials = self._no_trials()
        self._stopped: dict[str, str] = {}
        # Those that were drained when the last round began.
        self._drained: set[str] = set()
        # What was ordered away lately because its server's world does not take it, and when.
        self._passed_on: dict[str, float] = {}

    # --- what servers say ------------------------------------------------------------------------------------------

    def _forget(self, server: str) -> None:
        self._reported_s.pop(server, None)
        self._hot_since_ns.pop(server, None)

    def reported(self, server: str, load: Load, still: Sequence[StillRow] | None = None) -> None:
        """A server of this instance says how much it has to do; in a report also what is stopped there."""
        now_ns = self._clock.monotonic_ns()
        before = self.report(server)
        if before is None or before.age_s > FRESH_S:
            # It may have been anything in between.
            self._hot_since_ns.pop(server, None)
        self._reports[server] = load, now_ns
        if still is not None:
            self._reported_s[server] = now_ns / 1e9
            self.still.heard(server, still, now_ns)
        if load.tick_ppm / _PPM > self._balance.hot:
            self._hot_since_ns.setdefault(server, now_ns)
        else:
            self._hot_since_ns.pop(server, None)

    def report(self, server: str) -> Reported | None:
        """What a server reported last, or None."""
        found = self._reports.get(server)
        return None if found is None else Reported(found[0], (self._clock.monotonic_ns() - found[1]) / 1e9)

    def took_census(self, server: str, census: Census) -> None:
        """A server answers; an answer to an earlier question is of the past."""
        if census.number != self._number or self._awaited.get(server, census) is not None:
            return
        self._awaited[server] = census
        self.reported(server, census.load)
        if None not in self._awaited.values():
            self._complete.ring()

    def moved(self, entity: str, source: str, target: str) -> None:
        """An entity was handed over, for whatever reason: it is left alone for a while, and a move back is counted."""
        self.placement_limits.noted(entity, source, target, self._now_s())
        self._refusals.arrived(entity, target)

    def is_passed_on(self, entity: str) -> bool:
        """Whether this member has ordered it away lately because it is stopped where it is."""
        return self._now_s() - self._passed_on.get(entity, -PASSED_ON_S) < PASSED_ON_S

    # --- rounds ----------------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """A round a second, and ten while a server is drained that is not empty; until cancelled."""
        task_status.started()
        while True:
            busy = False
            if self._leads():
                try:
                    busy = await self._round()
                except Exception:
                    # It must not take the homeserver with it, nor stop the rounds.
                    _log.exception("a round of the balancer ran into an error")
            else:
                # What is known of moves was true under that leadership.
                self.placement_limits = PlacementLimits(self._balance)
                self._expected = PredictedLoads()
                self._refusals = self._no_refusals()
                self._trials, self._stopped = self._no_trials(), {}
            await self._clock.sleep_s(DRAINING_ROUND_S if busy else ROUND_S)

    async def _round(self) -> bool:
        """Whether there is more to drain."""
        drains = self._store.drains()
        drained = {drain.server for drain in drains}
        self._note_stopped(drains)
        for opened in self._drained - drained:
            self._refusals.opened(opened)
        self._drained = drained
        loads = self.loads()
        await self._take_back(loads)
        givers = self.givers(loads)
        # What is not taken is named first: of the others there nothing is to be moved, so no server has to look for it.
        limits = {load.name: min(load.untaken, MAX_CENSUS // 2) for load in loads if load.untaken}
        limits |= dict.fromkeys(givers, MAX_CENSUS)
        residents = await self._ask(limits) if limits else []
        residents = [self._unless_handed_back(resident) for resident in residents]
        residents = [resident for resident in residents if resident.untaken or resident.server in givers]
        if not residents:
            return False
        draining = {load.name for load in loads if load.draining}
        untaken = {resident.entity for resident in residents if resident.untaken}
        residents = self._with_parents_of_immovable_ones(residents, draining)
        for entity in self._refusals.still_there(residents, self._asked_s, self._now_s()):
            self.placement_limits.stayed(entity)
        view = View(
            tuple(loads), tuple(residents), self.placement_limits.anchors, self._refusals.of(residents, self._now_s())
        )
        proposed = self._proposed(view)
        moves = emptied(view, proposed)
        done = set(moves)
        # What the policy says of drained servers and is not done counts as nonsense. What is not taken is not offered
        # again to the server that has just refused it, whatever this says.
        moves += [move for move in proposed if move not in done and move.entity not in untaken]
        if staying := self._of_silent_homes(residents):
            self.placement_limits.counts["home_silent"] += sum(move.entity in staying for move in moves)
            moves = [move for move in moves if move.entity not in staying]
        must_go = untaken | {resident.entity for resident in residents if resident.server in draining}
        moves = [move for move in moves if move.source not in self._stopped]
        moves = self._trials.admit(moves, residents, draining, self._have_like_worlds, self._now_s())
        holds_s = {one.entity: 0.0 if one.entity in must_go else self._balance.min_hold_s for one in residents}
        admitted = self.placement_limits.admit(moves, view, self._now_s())
        self._expected.ordered(admitted, {one.entity: one.cost for one in residents}, self._now_s())
        some_are_passed_on = self._note_passed_on(untaken.intersection(move.entity for move in admitted))
        await self._order(admitted, holds_s)
        if some_are_passed_on:
            # The next server is asked as soon as it is seen that this one does not take it, either.
            return True
        draining -= self._stopped.keys()
        return any(resident.server in draining and resident.entity not in staying for resident in residents)

    def why_stopped(self, drain: DrainRecord) -> str:
        """Why nothing more is moved off a drained server, as what was moved does not run; empty if that is not so.

        What has failed on arrival since the drain began stops it, wherever it came from: more would fail there too. The
        drain continues when that is not so any more: it was released and runs, has moved on, or was deleted. Or it is
        begun again.
        """
        since_ns = self._clock.monotonic_ns() - round((self._clock.unix_s() - drain.since_s) * _NS)
        failed = self.still.failed_since(since_ns)
        if not failed:
            return ""
        others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        first = failed[0]
        return f"{first.row.entity}{others} has not run on {first.server} since it came there: {first.row.why}"

    def _note_stopped(self, drains: Sequence[DrainRecord]) -> None:
        """Those whose drains stop now, and why: said in the log when it comes to that."""
        stopped = {drain.server: why for drain in drains if (why := self.why_stopped(drain))}
        for server, why in stopped.items():
            if server not in self._stopped:
                _log.error("the drain of %s stops: %s", server, why)
        self._stopped = stopped

    def _have_like_worlds(self, one: str, other: str) -> bool:
        versions = {report[0].schema_version for name in (one, other) if (report := self._reports.get(name))}
        return len(versions) < 2

    def _no_trials(self) -> DrainTrials:
        return DrainTrials(self._store.kind_of, self._authority_of, lambda server: self._reported_s.get(server, 0.0))

    def _authority_of(self, entity: str) -> str:
        record = self._store.entity(entity)
        return "" if record is None else record.authority

    def _note_passed_on(self, entities: Collection[str]) -> bool:
        """Remember them for a while; whether there are any."""
        now_s = self._now_s()
        self._passed_on = {name: at_s for name, at_s in self._passed_on.items() if now_s - at_s < PASSED_ON_S}
        self._passed_on |= dict.fromkeys(entities, now_s)
        return bool(entities)

    def _unless_handed_back(self, resident: Resident) -> Resident:
        is_handed_back = resident.untaken and self._is_handed_back(resident.entity)
        return replace(resident, untaken=False) if is_handed_back else resident

    def _of_silent_homes(self, residents: Sequence[Resident]) -> set[str]:
        """The entities whose moves cannot be decided on now, and those that would go with them."""
        if not any(self._has_silent_home(resident.entity) for resident in residents):
            return set()
        units = ([resident.entity for resident in unit.residents] for unit in units_of(residents))
        return {entity for unit in units if any(map(self._has_silent_home, unit)) for entity in unit}

    def _has_silent_home(self, entity: str) -> bool:
        return self._is_silent(instance_of(entity))

    def _with_parents_of_immovable_ones(self, residents: list[Resident], draining: Collection[str]) -> list[Resident]:
        """The same, but what would take an immovable one along is immovable too; drained ones go anyway.

        Worlds know nothing of hierarchies, and what is above takes along what is below
        (`homeserver.transfer.hierarchies`).
        """
        if not any(resident.immovable for resident in residents):
            return residents
        stays = (unit for unit in units_of(residents) if unit.immovable and unit.server not in draining)
        above: set[str] = set()
        for entity in (resident.entity for unit in stays for resident in unit.residents):
            parent = self._store.parent_of(entity)
            while parent and parent not in above:
                above.add(parent)
                parent = self._store.parent_of(parent)
        return [replace(one, immovable=True) if one.entity in above else one for one in residents]

    def _proposed(self, view: View) -> list[Move]:
        """What the policy says; nothing if it fails, which is logged once for each type of error, or has to rest."""
        began_s = self._now_s()
        if began_s < self._policy_rests_until_s:
            return []
        try:
            return _checked(self._policy(view, self._balance))
        except BaseException as error:
            if is_stopping(error):
                raise
            self.placement_limits.counts["policy_failed"] += 1
            failure = type(error).__name__
            if failure not in self._failures and len(self._failures) < MAX_FAILURES:
                self._failures.add(failure)
                text = "the placement policy failed and has no say in this round; each further %s is only counted\n%s"
                _log.error(text, failure, traceback_of(error))
            return []
        finally:
            self._measured(began_s)

    def _measured(self, began_s: float) -> None:
        now_s = self._now_s()
        took_s = now_s - began_s
        rests_s = RESTS * took_s if took_s > BLOCKING_POLICY_S else 0.0
        self._policy_rests_until_s = now_s + rests_s
        if took_s > SLOW_POLICY_S:
            self.placement_limits.counts["policy_slow"] += 1
            if now_s >= self._slow_until_s:
                self._slow_until_s = now_s + SLOW_POLICY_AGAIN_S
                text = "the placement policy took %.3f s; the homeserver did nothing else meanwhile%s"
                _log.warning(text, took_s, f", and does not ask it for {rests_s:.0f} s" if rests_s else "")

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def _no_refusals(self) -> Refusals:
        return Refusals(self._store.kind_of, self._why_refused)

    def _why_refused(self, transfer_id: str) -> str | None:
        transfer = self._store.transfer(transfer_id)
        if transfer is None:
            return None
        return transfer.reason if transfer.phase is Phase.REFUSED else ""

    async def _take_back(self, loads: Sequence[ServerLoad]) -> None:
        """End the delegations that name drained servers which are dead, or empty: holders hand over through the log.

        No other server would for as long as the entities stay where they are, or pass directly among the others. An
        order that is lost, or comes to a server that has passed the entity on, is given again when all others have had
        theirs: what cannot leave keeps no other entity.
        """
        now_ns = self._clock.monotonic_ns()
        if self._taken_back_ns is not None and now_ns - self._taken_back_ns < TAKE_BACK_S * _NS:
            return
        self._taken_back_ns = now_ns
        alive = {load.name for load in loads}
        idle = {load.name for load in loads if load.draining and not load.entities}
        drained = [drain.server for drain in self._store.drains()]
        over = [name for name in drained if name in idle or (name not in alive and self._is_over(name))]
        self._taken_back = {name: last for name, last in self._taken_back.items() if name in over}
        self._turns = Counter({name: turns for name, turns in self._turns.items() if name in over})
        self._nothing_at = {name: looked for name, looked in self._nothing_at.items() if name in over}
        targets = sorted(
            (load for load in loads if not load.draining), key=lambda load: (load.tick_fraction, load.name)
        )
        for server in over:
            moves = self._away_from(server, targets)
            await self._order([move for move in moves if not self._has_silent_home(move.entity)])

    def _is_over(self, server: str) -> bool:
        lease = self._store.lease(server)
        return lease is None or lease.phase is LeasePhase.OVER

    def _away_from(self, server: str, targets: Sequence[ServerLoad]) -> list[Move]:
        """The next moves that keep a server from being passed something, to the coolest of these others, in turns.

        One that takes nothing of a kind is likely to be the coolest.
        """
        revision, now_ns = self._store.tree.revision, self._clock.monotonic_ns()
        nothing_at, quiet_until_ns = self._nothing_at.get(server, (-1, 0))
        if nothing_at == revision or now_ns < quiet_until_ns:
            return []
        found = self._store.delegated_to(server, MAX_TAKEN_BACK, self._taken_back.get(server, ""))
        if not found:
            # All rows were searched for it. It is delegated nothing new, and what it passes on is little.
            self._nothing_at[server] = revision, now_ns + round(QUIET_S * _NS)
            return []
        self._taken_back[server] = found[-1][0]
        turn = self._turns[server]
        self._turns[server] += 1
        moves = []
        for number, (entity, holder) in enumerate(found):
            others = [load.name for load in targets if load.name != holder]
            if others:
                moves.append(Move(entity, holder, others[(number + turn) % len(others)]))
        return moves

    def loads(self) -> list[ServerLoad]:
        """The registered servers that reported lately, with the loads that are to be expected of them."""
        draining = {drain.server for drain in self._store.drains()}
        found, now_s = [], self._now_s()
        for name in self._store.simserver_names():
            report = self.report(name)
            if report is not None and report.age_s <= FRESH_S:
                load = report.load
                found.append(
                    ServerLoad(
                        name,
                        self._expected.of(name, load.tick_ppm / _PPM, now_s - report.age_s),
                        load.entities,
                        float(load.inputs_per_s),
                        float(load.bytes_per_s),
                        name in draining,
                        load.untaken,
                    )
                )
        return found

    def givers(self, loads: Iterable[ServerLoad]) -> list[str]:
        """Which of these servers have to give something up: the drained and, unless balancing is paused, the hot.

        A hot server that follows regions is relieved of cells instead (`homeserver.placement.region_balance`).
        """
        loads = [load for load in loads if load.entities]
        hot = {name for name in self.hot(loads) if not self._follows_regions(name)}
        return [load.name for load in loads if load.draining or load.name in hot]

    @property
    def balances(self) -> bool:
        """Whether anything is moved for the sake of balance: by configuration, unless an operator holds it still."""
        return self.balancing and self._store.balance_paused_since_s() is None

    def hot(self, loads: Iterable[ServerLoad]) -> set[str]:
        """Which of these servers have been hot for long enough; none unless this balances."""
        return {load.name for load in loads if self._is_hot(load)} if self.balances else set()

    def expect(self, moves: Iterable[Move], costs: Mapping[str, float]) -> None:
        """What costs as much is about to move: it is counted where it goes until it shows in what servers report."""
        self._expected.ordered(moves, costs, self._now_s())

    def _is_hot(self, load: ServerLoad) -> bool:
        """Whether it has been for long enough, and is with what was ordered away from it since."""
        since_ns = self._hot_since_ns.get(load.name)
        if since_ns is None or load.tick_fraction <= self._balance.hot:
            return False
        return self._clock.monotonic_ns() - since_ns >= self._balance.hot_for_s * _NS

    async def _ask(self, limits: Mapping[str, int]) -> list[Resident]:
        """Up to these numbers of residents of each of these servers, of those that answer in time."""
        self._number += 1
        self._asked_s = self._now_s()
        self._awaited = dict.fromkeys(limits)
        self._complete = self._clock.bell()
        for server, limit in limits.items():
            await self._tell(CensusRequest(number=self._number, limit=limit), server)
        await self._complete.wait(CENSUS_TIMEOUT_S)
        return [
            Resident(row.entity, server, row.here_ms / 1000, row.cost_ppm / _PPM, row.group, row.immovable, row.untaken)
            for server, census in self._awaited.items()
            if census is not None
            for row in census.rows
        ]

    async def _order(self, moves: Sequence[Move], holds_s: Mapping[str, float] | None = None) -> None:
        """With `holds_s` refusals are remembered: for how long no other member orders each entity away again."""
        parts: dict[tuple[str, float | None], list[MoveItem]] = defaultdict(list)
        for move in moves:
            item = MoveItem(transfer_id=self._new_id(), entity=move.entity, target=move.target)
            parts[move.source, None if holds_s is None else holds_s[move.entity]].append(item)
        for (source, hold_s), items in parts.items():
            if hold_s is not None:
                self._refusals.ordered(source, items, self._now_s(), hold_s)
            for start in range(0, len(items), MAX_MOVES):
                await self._tell(Moves(moves=items[start : start + MAX_MOVES]), source)

    async def _tell(self, message: Message, server: str) -> None:
        try:
            await self._post(message, Trace("placement"), server, on_path=False)
        except NOT_TOLD as error:
            _log.info("%s could not be told: %s", server, error)
