"""The small model: one entity, three simulation servers, one log, a network without order, and a budget of faults.

A state is what the hosts are (`host`), what the log holds, which messages are under way, and what is left of the
budget. Hosts, logs and messages are numbered as they are met, so a state is a few small numbers. What an event does to
a host is computed once and remembered, because it follows from the host and the event alone.

What keeps the model small, and why nothing is lost by it:

- The network is a set. Anything under way may arrive next, whatever was sent before it, or never. Delays, reordering,
  pauses of servers and partitions are all of them orders of arrival. A message sent again while its equal is under way
  is one message; that both arrive is a repetition, which the budget counts.
- A timer fires when nothing of its transfer is under way any more. That it fires earlier, because something is slow, is
  a repetition, which the budget counts.
- A report reaches home, and its answer the server, in one step. Both may be repeated; nothing waits for either.
- The player's inputs arrive at any server, in any order, any number of times. A source does that which repeats until it
  is acknowledged, over such a network.
- Times, traces, counters and numbers of tries beyond the fourth are not part of a state.
- In `one-home`, the second and third server are alike until one of them is named, so the second is named first.

The promises judged at every step are those of the architecture; `_judge` has them.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from batonpass.authority.errors import MessageError, Refused
from batonpass.authority.fence import Fence
from batonpass.authority.machines.source import OutgoingPhase
from batonpass.authority.model.records import EntityRecord, Phase
from batonpass.authority.procedures.foreign_custody import is_abroad
from batonpass.authority.wire.transfer import HandoffReply, Message, ReportReply, StageWord
from batonpass.crypto import jose
from batonpass.scenarios.simulation.search.home import ENTITY, TransfersAtHome
from batonpass.scenarios.simulation.search.host import Host, SearchParts
from batonpass.scenarios.simulation.search.keys import HOME, SearchKeys, homeserver_for
from batonpass.scenarios.simulation.search.memory import Envelope, HostChange, HostMemory, LogDecision, Numbering
from batonpass.scenarios.simulation.search.ports import ROOMS
from batonpass.scenarios.simulation.search.search import SearchStep
from batonpass.scenarios.simulation.search.words import details, told, transfer_of
from batonpass.simserver.entity.snapshot import state_hash
from batonpass.simserver.transfer.source.departure import DeparturePlan

__all__ = ["HOMES", "Handovers", "SearchBounds", "SearchState"]

HOMES: Final = {
    "one-home": ("alpha.s1", "alpha.s2", "alpha.s3"),
    "two-homes": ("alpha.s1", "alpha.s2", "beta.s1"),
}
# The log has this as a transfer of another entity, so it refuses it, and the entity continues where it was.
TAKEN: Final = "transfer-taken"


@dataclass(frozen=True, slots=True)
class SearchBounds:
    """How much may happen in one run.

    `transfers` are orders to move the entity, `losses` messages that never arrive, `repeats` messages that arrive once
    more. `crashes` are servers that are killed and started again, `inputs` those of one player. `delegated` lets the
    two first servers pass the entity directly; with `only_direct` all orders are that. `refusals` has a world try a
    transfer that the log refuses; `staged` moves the entity in staged mode. `stale_ledger` lets a crash take the last
    note with it that a server made in its ledger. `leases` has every life of a server be another incarnation, as it is
    with leases. What was given to an earlier one is the takeover's, which is not searched.
    """

    homes: str = "one-home"
    transfers: int = 2
    losses: int = 1
    repeats: int = 1
    crashes: int = 0
    inputs: int = 1
    delegated: bool = False
    only_direct: bool = False
    refusals: bool = False
    staged: bool = False
    stale_ledger: bool = False
    leases: bool = False


class SearchState(NamedTuple):
    """Everything at one moment; servers, log and messages by number."""

    servers: tuple[int, ...]
    log: int
    network: tuple[int, ...]
    """Ascending."""
    newest: tuple[Fence, int]
    """The highest fence under which the entity was ever simulated, and the place of the server."""
    heir: str
    """A crash took the newest copy, but a state of this hash is on the disk of the authority."""
    is_destroyed: bool
    """A crash took the newest copy: what comes after is failover's to decide."""
    transfers: int
    losses: int
    repeats: int
    crashes: int


class Handovers:
    """The model, for `search.Search`."""

    def __init__(self, bounds: SearchBounds, parts: SearchParts | None = None) -> None:
        self.bounds: Final = bounds
        self._parts: Final = parts or SearchParts()
        self._names: Final = HOMES[bounds.homes]
        keys = SearchKeys(self._names)
        ROOMS.incarnations = {}
        self._hosts = [Host(name, keys, self._parts) for name in self._names]
        self._home = TransfersAtHome(keys, self._parts.procedures)
        self._servers = [Numbering() for _ in self._names]
        self._logs, self._messages = Numbering(), Numbering()
        self._changes: dict[tuple[Any, ...], HostChange] = {}
        self._decisions: dict[tuple[Any, ...], LogDecision] = {}
        self._reports: dict[tuple[int, int, str], int] = {}
        self._lives_of: dict[tuple[int, ...], tuple[int, ...]] = {}

    # --- where it begins -------------------------------------------------------------------------------------------

    def initial(self) -> SearchState:
        """The entity lives on the first server, and nothing is under way."""
        if self.bounds.leases:
            for name in self._names:
                # Of a server of another instance the lease stands in the log of that.
                if not is_abroad(ENTITY, name):
                    self._home.lease(name, 1)
        self._home.create(self._names[0])
        servers = []
        for place, host in enumerate(self._hosts):
            host.first()
            if place == 0:
                host.spawn()
            servers.append(self._keep(place))
        if self.bounds.refusals:
            self._home.take_id(TAKEN, self._names[0], self._names[1])
        self._home.sent = []
        if self.bounds.delegated:
            self._home.delegate(self._names[:2])
        network = self._posted(HOME, self._home.sent)
        return SearchState(tuple(servers), self._keep_log(), network, (Fence(1), 0), "", False, 0, 0, 0, 0)

    def _keep(self, place: int) -> int:
        host = self._hosts[place]

        def look() -> HostMemory:
            holding, departure = host.holding, host.departure
            return HostMemory(
                host.save(),
                None if holding is None else holding.fence,
                holding is not None and not holding.life.frozen,
                host.snapshot(),
                holding is not None and bool(holding.life.inbox.pending),
                "" if departure is None else departure.plan.transfer_id,
                () if holding is None else holding.group,
                host.unreported,
                (host.note, host.note_before if self.bounds.stale_ledger else None),
                () if holding is None else tuple(item.seq for item in holding.life.acceptance.waiting),
                "" if departure is None else f"{departure.machine.phase} to {departure.plan.target}",
                host.staged,
                host.wondering,
                host.incarnation,
            )

        return self._servers[place].number(host.fingerprint(), look)

    def _keep_log(self) -> int:
        store = self._home.store
        return self._logs.number(repr(sorted(store.data.items())), lambda: (store.data, store.entity(ENTITY)))

    def _posted(self, sender: str, sent: list[tuple[str, Message]]) -> tuple[int, ...]:
        numbers = {
            self._messages.number((sender, to, repr(message)), Envelope(sender, to, message, transfer_of(message)))
            for to, message in sent
            if (to == HOME or to in self._names) and not isinstance(message, ReportReply)
        }
        return tuple(sorted(numbers))

    # --- what may happen -------------------------------------------------------------------------------------------

    def steps(self, state: SearchState) -> Iterator[SearchStep]:
        """Everything that may happen next."""
        yield from self._steps_of_network(state)
        yield from self._steps_of_servers(state)
        yield from self._steps_of_people(state)

    def _steps_of_network(self, state: SearchState) -> Iterator[SearchStep]:
        bounds = self.bounds
        for place, number in enumerate(state.network):
            left = (*state.network[:place], *state.network[place + 1 :])
            yield self._arrived(("deliver", number), state._replace(network=left), number, is_free=True)
            if state.repeats < bounds.repeats:
                again = state._replace(repeats=state.repeats + 1)
                yield self._arrived(("repeat", number), again, number, is_free=False)
            if state.losses < bounds.losses:
                lost = state._replace(network=left, losses=state.losses + 1)
                yield SearchStep(("lose", number), lost, False, "")

    def _arrived(self, action: tuple[Any, ...], state: SearchState, number: int, *, is_free: bool) -> SearchStep:
        envelope = self._messages.things[number]
        if envelope.to == HOME:
            return self._decided(action, state, ("take", number), is_free=is_free)
        place = self._names.index(envelope.to)
        return self._changed(action, state, place, ("take", number), is_free=is_free)

    def _steps_of_servers(self, state: SearchState) -> Iterator[SearchStep]:
        bounds = self.bounds
        for place, number in enumerate(state.servers):
            server: HostMemory = self._servers[place].things[number]
            if server.leaving and not any(self._messages.things[n].about == server.leaving for n in state.network):
                yield self._changed(("timer", place), state, place, ("timer",), is_free=True)
            elif server.leaving and state.repeats < bounds.repeats:
                early = state._replace(repeats=state.repeats + 1)
                yield self._changed(("early timer", place), early, place, ("timer",), is_free=False)
            for transfer_id in server.unreported:
                yield self._reported(state, place, transfer_id)
            yield from self._steps_of_staging(state, place, server)
            if server.is_running and server.has_pending:
                yield self._changed(("tick", place), state, place, ("tick",), is_free=True)
            if server.fence is not None:
                for seq in range(1, bounds.inputs + 1):
                    if seq not in server.journal:
                        yield self._changed(("input", place, seq), state, place, ("input", seq), is_free=False)
            if state.crashes < bounds.crashes:
                yield from self._crashes(state, place, server)

    def _steps_of_staging(self, state: SearchState, place: int, server: HostMemory) -> Iterator[SearchStep]:
        if server.phase.startswith(OutgoingPhase.STAGING):
            yield self._changed(("patience", place), state, place, ("patience",), is_free=False)
        for transfer_id in server.wondering:
            if not any(self._messages.things[n].about == transfer_id for n in state.network):
                inquire = ("inquire", transfer_id)
                yield self._changed(("inquire", place, transfer_id), state, place, inquire, is_free=True)

    def _reported(self, state: SearchState, place: int, transfer_id: str) -> SearchStep:
        number = self._report(place, state.servers[place], transfer_id)
        action = ("report", place, transfer_id)
        step = self._decided(action, state, ("take", number), is_free=True)
        if step.violation:
            return step
        return self._changed(action, step.state, place, ("reported", transfer_id), is_free=True)

    def _report(self, place: int, server: int, transfer_id: str) -> int:
        """The report as a message. Hundreds of states have a server that would send the same, and copies are dear."""
        key = (place, server, transfer_id)
        number = self._reports.get(key)
        if number is None:
            host = self._hosts[place]
            host.load(self._servers[place].things[server].saved)
            (number,) = self._posted(host.name, [(HOME, host.report(transfer_id))])
            self._reports[key] = number
        return number

    def _crashes(self, state: SearchState, place: int, server: HostMemory) -> Iterator[SearchStep]:
        notes = server.notes if self.bounds.stale_ledger else server.notes[:1]
        is_newest = state.newest == (server.fence, place)
        heir = state.heir
        if is_newest and not server.is_running and self._is_staged_at_authority(state, server):
            heir, is_newest = state_hash(server.snapshot), False
        crashed = state._replace(
            crashes=state.crashes + 1, is_destroyed=state.is_destroyed or is_newest, heir="" if is_newest else heir
        )
        if self.bounds.leases:
            crashed = self._as_another(crashed, place)
        for note in dict.fromkeys(notes):
            yield self._changed(("crash", place, note), crashed, place, ("crash", note), is_free=False)

    def _as_another(self, state: SearchState, place: int) -> SearchState:
        """A server begins its next life. What was given to the last one, or is on the way to it, is recovery's."""
        name = self._names[place]
        servers = [self._servers[other].things[number] for other, number in enumerate(state.servers)]
        is_given = self._record(state).authority == name or any(one.phase.endswith(f" {name}") for one in servers)
        claim = ("lease", name, servers[place].incarnation + 1)
        crashed = state._replace(is_destroyed=state.is_destroyed or is_given)
        if is_abroad(ENTITY, name):
            return crashed
        after: SearchState = self._decided(claim, crashed, claim, is_free=False).state
        return after

    def _is_staged_at_authority(self, state: SearchState, server: HostMemory) -> bool:
        """Whether the log has given the entity to a server that has the very state on its disk (FAILURES row 13)."""
        record = self._record(state)
        return record.authority in self._names and state_hash(server.snapshot) in self._staged_at(
            state, record.authority
        )

    def _staged_at(self, state: SearchState, name: str) -> set[str]:
        server: HostMemory = self._servers[self._names.index(name)].things[state.servers[self._names.index(name)]]
        return {digest for _, digest in server.staged}

    def _steps_of_people(self, state: SearchState) -> Iterator[SearchStep]:
        bounds = self.bounds
        if state.transfers >= bounds.transfers:
            return
        transfer_id = f"transfer-{state.transfers + 1}"
        wanted = state._replace(transfers=state.transfers + 1)
        for target in self._names[:2] if bounds.only_direct else self._names:
            if bounds.homes == "one-home" and target == self._names[2] and not state.transfers:
                continue
            for direct in self._ways():
                action = ("order", transfer_id, target, direct)
                step = self._decided(action, wanted, action, is_free=False)
                if step.state.network != state.network or step.violation:
                    yield step
        if bounds.refusals:
            for place, number in enumerate(state.servers):
                if self._servers[place].things[number].is_running:
                    for target in self._names:
                        wander = ("wander", TAKEN, target)
                        yield self._changed(("wander", place, target), wanted, place, wander, is_free=False)

    def _ways(self) -> tuple[bool, ...]:
        """Whether an order may be one to pass the entity directly."""
        return (True,) if self.bounds.only_direct else (False, True) if self.bounds.delegated else (False,)

    # --- what that does --------------------------------------------------------------------------------------------

    def _changed(
        self, action: tuple[Any, ...], state: SearchState, place: int, event: tuple[Any, ...], *, is_free: bool
    ) -> SearchStep:
        before, servers = state.servers[place], state.servers
        lives = self._lives(servers)
        key = (place, before, event, lives)
        change = self._changes.get(key)
        if change is None:
            change = self._changes[key] = self._happen(place, before, event, lives)
        if change.after != before:
            servers = (*servers[:place], change.after, *servers[place + 1 :])
        newest, heir, violation = state.newest, state.heir, change.violation
        if not violation and (change.after != before or change.begun):
            newest, violation = self._judge(state, servers, place, change, is_crash=event[0] == "crash")
            heir = "" if change.begun else heir
        network = _joined(state.network, change.sent)
        after = state._replace(servers=servers, network=network, newest=newest, heir=heir)
        return SearchStep(action, after, is_free, violation)

    def _lives(self, servers: tuple[int, ...]) -> tuple[int, ...]:
        """Which incarnations would answer now, for a server that asks before something is changed."""
        if not self.bounds.leases:
            return ()
        lives = self._lives_of.get(servers)
        if lives is None:
            things = (self._servers[place].things[number] for place, number in enumerate(servers))
            lives = self._lives_of[servers] = tuple(server.incarnation for server in things)
        return lives

    def _answer_as(self, lives: tuple[int, ...]) -> None:
        if lives:
            ROOMS.incarnations = dict(zip(self._names, lives, strict=True))

    def _happen(self, place: int, before: int, event: tuple[Any, ...], lives: tuple[int, ...]) -> HostChange:
        self._answer_as(lives)
        host = self._hosts[place]
        host.load(self._servers[place].things[before].saved)
        violation = ""
        with suppress(MessageError):  # logged and dropped
            self._perform(host, event)
        if host.counts["internal_error"]:
            violation = f"{host.name} ran into an error of its own"
        elif host.counts["superseded"]:
            violation = f"the entity came to {host.name}, where it still was"
        elif host.world() != list(range(1, len(host.world()) + 1)):
            violation = f"{host.name} applied the inputs {host.world()}: one was lost, or applied twice"
        elif host.acknowledged > self.bounds.inputs:
            violation = f"{host.name} acknowledged input {host.acknowledged}, which was not sent"
        begun = tuple((Fence(stint.epoch, stint.sub), stint.started_hash) for stint in host.begun)
        sent = self._posted(host.name, host.sent)
        return HostChange(self._keep(place), sent, begun, host.acknowledged, violation)

    def _perform(self, host: Host, event: tuple[Any, ...]) -> None:
        match event:
            case ("take", number):
                envelope = self._messages.things[number]
                sender = envelope.sender
                if isinstance(envelope.message, HandoffReply):
                    sender = homeserver_for(host.name) or sender
                if isinstance(envelope.message, StageWord):
                    host.stage_word(envelope.message)
                else:
                    host.take(sender, envelope.message)
            case ("timer",):
                host.timer()
            case ("tick",):
                host.tick()
            case ("reported", transfer_id):
                host.reported(transfer_id)
            case ("patience",) | ("inquire", _):
                host.about_staging(*event[1:])
            case ("input", seq):
                host.input(seq)
            case ("wander", transfer_id, target):
                host.begin(DeparturePlan(transfer_id, ENTITY, target, transport="link"))
            case ("crash", note):
                host.new(note)
            case _:
                raise AssertionError(event)

    def _decided(
        self, action: tuple[Any, ...], state: SearchState, event: tuple[Any, ...], *, is_free: bool
    ) -> SearchStep:
        lives = self._lives(state.servers)
        key = (state.log, event, lives)
        known = self._decisions.get(key)
        if known is None:
            known = self._decisions[key] = self._decide(state.log, event, lives)
        after = state._replace(log=known.log, network=_joined(state.network, known.sent))
        return SearchStep(action, after, is_free, known.violation or self._why_not_committed(state, after))

    def _decide(self, log: int, event: tuple[Any, ...], lives: tuple[int, ...]) -> LogDecision:
        self._answer_as(lives)
        home = self._home
        (home.store.data, before), home.sent = self._logs.things[log], []
        with suppress(Refused):  # its asker is told, and nothing was changed
            self._perform_at_home(event)
        record = home.store.entity(ENTITY)
        violation = _why_not_after(before, record) or self._moved_again(event)
        return LogDecision(self._keep_log(), self._posted(HOME, home.sent), violation)

    def _moved_again(self, event: tuple[Any, ...]) -> str:
        """Of no transfer is the log shown two passes: in one epoch it moves the entity once."""
        message = self._messages.things[event[1]].message if event[0] == "take" else None
        for token in getattr(message, "chain", ())[1:]:
            said = jose.peek_statement_untrusted(token)
            known = self._home.store.transfer(said["transfer_id"])
            if known is not None and known.sub and known.epoch == said["epoch"] and known.sub != said["sub"]:
                return f"{known.id} has moved the entity twice: to {known.target} under {known.fence}, and as {said}"
        return ""

    def _why_not_committed(self, before: SearchState, after: SearchState) -> str:
        """In staged mode the log gives the entity to no server without its state on its disk."""
        record = self._record(after)
        if not self.bounds.staged or record.fence == self._record(before).fence or record.sub:
            return ""
        data = self._logs.things[after.log][0]
        for path, row in data.items():
            is_this = path[0] == "transfers" and (row["phase"], row.get("epoch", 0)) == (Phase.COMMITTED, record.epoch)
            if is_this and row["state_hash"] not in self._staged_at(after, record.authority):
                return f"{record.authority} was given {record.fence}, and has not the state on its disk"
        return ""

    def _perform_at_home(self, event: tuple[Any, ...]) -> None:
        home = self._home
        match event:
            case ("order", transfer_id, target, direct):
                home.propose(transfer_id, target, direct=direct, staged=self.bounds.staged)
            case ("lease", name, incarnation):
                home.lease(name, incarnation)
            case ("take", number):
                envelope = self._messages.things[number]
                home.take(homeserver_for(envelope.sender) or envelope.sender, envelope.message)
            case _:
                raise AssertionError(event)

    # --- the promises ----------------------------------------------------------------------------------------------

    def _judge(
        self, before: SearchState, servers: tuple[int, ...], place: int, change: HostChange, *, is_crash: bool
    ) -> tuple[tuple[Fence, int], str]:
        """What is newest among the servers now, and the sentence about a promise that is broken, or nothing."""
        name = self._names[place]
        was: HostMemory = self._servers[place].things[before.servers[place]]
        now: HostMemory = self._servers[place].things[change.after]
        newest = before.newest
        for fence, started_hash in change.begun:
            if why := self._why_not_begin(before, place, fence, started_hash):
                return newest, why
            newest = (fence, place)
        if was.is_running and was.snapshot != now.snapshot and before.newest != (was.fence, place):
            return newest, f"{name} simulates under {was.fence}, but {newest[0]} was simulated already"
        if newest == (was.fence, place) and now.fence is None and not is_crash:
            return newest, f"{name} deleted the newest state, which no other server simulates"
        running = [other for other, number in enumerate(servers) if self._servers[other].things[number].is_running]
        if len(running) > 1:
            return newest, f"two authorities: {' and '.join(self._told(servers, running))}"
        return newest, ""

    def _why_not_begin(self, state: SearchState, place: int, fence: Fence, started_hash: str) -> str:
        """Why the server must not begin under this fence with a state of this hash, or nothing."""
        name, (highest, holder) = self._names[place], state.newest
        if fence <= highest:
            return f"{name} began under {fence}, but {self._names[holder]} simulated under {highest} already"
        record = self._record(state)
        if fence == record.fence and record.authority != name:
            return f"{name} began under {fence}, which the log gave to {record.authority}"
        if fence.epoch > record.epoch:
            return f"{name} began under {fence}, but the log is at {record.fence}"
        newest: HostMemory = self._servers[holder].things[state.servers[holder]]
        expected = state.heir or state_hash(newest.snapshot)
        if not state.is_destroyed and started_hash != expected:
            return f"{name} began under {fence} with another state than {self._names[holder]} ended with"
        return ""

    def _record(self, state: SearchState) -> EntityRecord:
        record: EntityRecord = self._logs.things[state.log][1]
        return record

    def _told(self, servers: tuple[int, ...], places: list[int]) -> Iterator[str]:
        return (f"{self._names[place]} under {self._servers[place].things[servers[place]].fence}" for place in places)

    def is_settled(self, state: SearchState) -> bool:
        """Exactly one copy, simulated by the server and under the fence that the log names; no server is in doubt."""
        if any(self._servers[place].things[number].wondering for place, number in enumerate(state.servers)):
            return False
        copies = [
            (self._names[place], server.fence, server.is_running)
            for place, number in enumerate(state.servers)
            if (server := self._servers[place].things[number]).fence is not None
        ]
        record = self._record(state)
        return copies == [(record.authority, record.fence, True)]

    def must_recover(self, state: SearchState) -> bool:
        """Always, unless a crash took the newest copy."""
        return not state.is_destroyed

    # --- transcripts -----------------------------------------------------------------------------------------------

    def tell(self, state: SearchState, action: tuple[Any, ...]) -> str:
        """What happens, in words."""
        match action:
            case ("deliver" | "repeat" | "lose" as what, number):
                sender, to, message, transfer_id = self._messages.things[number]
                line = f"{message.type} of {sender} to {to}{details(message, transfer_id)}"
                return {"deliver": "", "repeat": "REPEATED: ", "lose": "LOST: "}[what] + line
            case ("timer" | "early timer" as what, place):
                early = "" if what == "timer" else ", before its time"
                return f"{self._names[place]} repeats what it asked for{early}"
            case ("report", place, transfer_id):
                return f"{self._names[place]} reports {transfer_id}"
            case ("patience" | "inquire" | "tick" | "input" as what, place, *about):
                said = {
                    "patience": "waits no longer for the state to be staged",
                    "inquire": "asks what became of {}",
                    "tick": "ticks",
                    "input": "gets input {}",
                }
                return f"{self._names[place]} {said[what].format(*about)}"
            case ("crash", place, note):
                known = "nothing" if note is None else f"{note.moved_to or 'it lives here'} at {note.fence}"
                return f"CRASH of {self._names[place]}; its ledger says: {known}"
            case ("order", transfer_id, target, direct):
                return f"{transfer_id}: the entity is to go to {target}{', directly' if direct else ''}"
            case ("wander", place, target):
                return f"{TAKEN}: the world of {self._names[place]} wants the entity on {target}"
            case _:
                raise AssertionError(action)

    def describe(self, state: SearchState) -> list[str]:
        """The servers and the log, a line each."""
        record = self._record(state)
        lines = [f"the log: {record.authority} under {record.fence}"]
        for place, number in enumerate(state.servers):
            server = self._servers[place].things[number]
            what = "nothing" if server.fence is None else f"{'running' if server.is_running else 'frozen'} under "
            applied = "" if server.fence is None else f"{server.fence}, {told(server.snapshot)}"
            lines.append(f"{self._names[place]}: {what}{applied}{f', {server.phase}' if server.phase else ''}")
        lines += [f"under way: {self.tell(state, ('deliver', number))}" for number in state.network]
        return lines


def _joined(network: tuple[int, ...], sent: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*network, *sent})) if sent else network


def _why_not_after(before: EntityRecord, record: EntityRecord) -> str:
    """Why the log must not go from one record to the other, or nothing."""
    if record.fence < before.fence:
        return f"the log went back from {before.fence} to {record.fence}"
    if record.fence == before.fence and record.authority != before.authority:
        return f"the log gave {record.fence} to {before.authority} and to {record.authority}"
    return ""
