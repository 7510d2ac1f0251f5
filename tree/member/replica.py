"""One member of a logical instance: the replicated tree, driven by trio.

`Replica.serve` runs it. The driver's loop is: make the journal durable, let the promises that waited for that leave,
hand new commands to Raft, tick. It runs whenever something happened (a command, a message, a connection) and when
Raft's next timer is due, so a commit takes about one round trip and one `fdatasync`, and an idle member does nothing.

The state of a submitted command is followed here and not in PySyncObj: every member applies every command, so the one
that submitted one knows its answer when it is applied locally, on the leader and on followers alike. Until then it is
submitted again, under the same id, whenever its way to the leader broke.
"""

import logging
import random
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import trio

from batonpass.tree.disk.collector import TreeGrowth, uncollected
from batonpass.tree.disk.disk import REAL_DISK, Disk
from batonpass.tree.disk.journal import Journal
from batonpass.tree.disk.lock_file import DirectoryInUse, occupied
from batonpass.tree.machine.commands import CommandAnswer, Machine, encode_fields
from batonpass.tree.machine.state import FrozenState, LoadedState
from batonpass.tree.member.deadlines import WakeTimes
from batonpass.tree.member.local_tree import LocalTree
from batonpass.tree.member.membership_executor import MembershipExecutor
from batonpass.tree.member.patience import MAX_TIMEOUT_S, answered_by, bounded_s, taken_by
from batonpass.tree.member.read_index import ReadIndex
from batonpass.tree.member.status import ReplicaConfig, ReplicaStatus, status_of
from batonpass.tree.member.triggering import TriggerProcedure, run_triggers
from batonpass.tree.net.certificates import Credentials
from batonpass.tree.net.frames import Greeting, decode_message_untrusted, encode_message
from batonpass.tree.net.membership import Configuration, Member
from batonpass.tree.net.roster import REMOVED, Roster
from batonpass.tree.net.transport import PROTOCOL_VERSION, Peers, Refusal, RefusedByInstance
from batonpass.tree.raft.raft import COMMAND_KIND, NEEDS_SYNC, RaftCore
from batonpass.tree.raft.submissions import (
    MAX_ENTRY_BYTES,
    CommandId,
    NoQuorum,
    OutcomeUnknown,
    Route,
    Submissions,
    value_of,
)
from batonpass.tree.store.procedures import Procedure
from batonpass.tree.store.projections import Projection
from batonpass.tree.store.rows import Remains

__all__ = ["DirectoryInUse", "Replica", "ReplicaConfig", "open_journal"]

log = logging.getLogger("batonpass.tree.member.replica")

MAX_OUTSTANDING: Final = 4096
CONGESTED_BYTES: Final = 1024 * 1024

Message = dict[str, Any]
T = TypeVar("T")


class Replica(LocalTree):
    """One member of an instance. Make it, `await nursery.start(replica.serve)`, then submit and read."""

    def __init__(
        self,
        config: ReplicaConfig,
        procedures: Mapping[str, Procedure],
        *,
        projections: Mapping[str, Projection] | None = None,
        triggers: Mapping[str, TriggerProcedure] | None = None,
        dice: random.Random | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        now_s: Callable[[], float] = trio.current_time,
        disk: Disk = REAL_DISK,
        make_raft: Callable[..., RaftCore] = RaftCore,
        make_reads: Callable[..., ReadIndex] = ReadIndex,
        max_entry_bytes: int = MAX_ENTRY_BYTES,
    ) -> None:
        """`procedures` and `projections` must be the same on all members.

        `triggers` are what nodes can store the names of, to be run when a trigger fires (`tree.member.triggering`).
        `dice` (timeouts, client id), `clock_ns` (latencies), `now_s` (timers), `disk` (under the journal and the
        snapshots), `make_raft` (with other limits, or weakened), `make_reads` (weakened) and `max_entry_bytes` are for
        tests and simulations.
        """
        # Seeded by the system, not the system itself: it is asked at every message of the leader.
        dice = dice if dice is not None else random.Random(secrets.randbits(128))
        most = config.max_history_events
        super().__init__(Machine(procedures, projections or {}), config.name, dice, max_history_events=most)
        self._config: Final = config
        self._dice: Final = dice
        self._clock_ns: Final = clock_ns
        self._disk: Final = disk
        self._make_raft: Final = make_raft
        self._now_s: Final = now_s
        self._triggers: Final = dict(triggers or {})
        self._history.on_untold = self._wake_driver
        self._submissions: Final = Submissions(max_entry_bytes)
        self._deadlines: Final = WakeTimes()
        self._growth: Final = TreeGrowth()
        self._slots: Final = trio.Semaphore(MAX_OUTSTANDING)
        self._connections_made = 0
        self._reads: Final = make_reads(
            lambda: _running(self._raft), self._send, self.outbound, config.timing.heartbeat_s, now_s
        )
        self._membership_executor: Final = MembershipExecutor(
            config.name,
            lambda: self._raft,
            self._send,
            self._wake_driver,
            answer_within_s=4 * config.timing.heartbeat_s,
        )
        machine = self._machine.declared(config.machine_version)
        me = Greeting(config.kind, config.instance, config.name, PROTOCOL_VERSION, machine=machine)
        self._roster: Final = Roster(me, config.members, joining=config.join)
        self._known_configuration: Configuration | None = None
        self._held: list[tuple[str, bytes]] = []
        self._wake = trio.Event()
        self._applied = trio.Event()
        self._applied_announced = 0
        self._nap = trio.CancelScope()  # the driver's sleep
        self._scope: Final = trio.CancelScope()
        self._failure: Exception | None = None
        self._journal: Journal | None = None
        self._raft: RaftCore | None = None
        self._peers: Peers | None = None
        self._served = False

    # --- life -----------------------------------------------------------------------------------------------------

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the member until cancelled; started when it listens. Can be called once.

        Raises `RefusedByInstance`, `DirectoryInUse`, `DiskFailed`, `JournalDamaged`, `JournalForeign`,
        `SnapshotDamaged`, `RaftBroken`, `JournalConflict`, or `OSError` when the address cannot be used: each is a
        sentence for the operator, and none is worth a retry without a change.
        """
        if self._served:
            raise RuntimeError("serve() can be called once; make another Replica to start again")
        self._served = True
        try:
            with self._opened(), self._scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(_running(self._peers).serve)
                    nursery.start_soon(self._drive)
                    if self._triggers:
                        nursery.start_soon(run_triggers, self, self._triggers)
                    task_status.started()
        except ExceptionGroup as group:
            raise _only_leaf(group) from None
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def _opened(self) -> Iterator[None]:
        config = self._config
        with occupied(config.directory):
            try:
                self._open_log()
                # Only now: a key without a journal shows that there was one.
                credentials = Credentials(
                    config.directory, config.secret, kind=config.kind, instance=config.instance, name=config.name
                )
                self._peers = Peers(config.me, self._roster, credentials, self, self._dice)
                self._take_configuration()
                yield
            finally:
                raft, self._raft = self._raft, None
                if raft is not None:
                    raft.close()
                self._submissions.give_up()
                self._membership_executor.look()
                self._announce_applied()
                self._history.cut_all("the member stopped")
                if self._journal is not None:
                    self._journal.close()

    def _open_log(self) -> None:
        """Recover the journal and the state.

        Raises `DiskFailed`, `JournalDamaged`, `JournalForeign`, `SnapshotDamaged`.
        """
        with uncollected():
            self._recover_log()
            self._growth.reached(self._machine.store.node_count)

    def _recover_log(self) -> None:
        config = self._config
        owner = f"{config.kind}/{config.instance}"
        self._journal = open_journal(config, self._disk)
        self._raft = self._make_raft(
            config.name,
            () if config.join else config.members,
            self._journal,
            config.directory,
            owner,
            self,
            self._dice,
            config.timing,
            compact_after_entries=config.compact_after_entries,
            compact_after_bytes=config.compact_after_bytes,
            compact_interval_s=config.compact_interval_s,
            disk=self._disk,
        )

    async def _drive(self) -> None:
        """The loop of the module's docstring."""
        try:
            while True:
                self._wake = trio.Event()
                self._advance()
                now_s = trio.current_time()
                self._deadlines.wake_due(now_s)
                idle_s, deadline_s = _running(self._raft).idle_for_s(), self._deadlines.next_s()
                until_s = now_s + idle_s if deadline_s is None else min(now_s + idle_s, deadline_s)
                with trio.move_on_at(until_s) as self._nap:
                    await self._wake.wait()
        except Exception as error:
            self._fail(error)

    def _advance(self) -> None:
        """Everything that can be done now, in the order that keeps promises."""
        raft, journal, peers = _running(self._raft), _running(self._journal), _running(self._peers)
        self._make_durable()
        self._hand_over()
        raft.tick()
        self._growth.building(raft.nodes_under_way())
        if raft.configuration is not self._known_configuration:
            self._take_configuration()
        if self._history.tell():
            self._wake.set()
        self._reads.begin()
        if raft.raftLastApplied != self._applied_announced:
            self._announce_applied()
        # New entries are on the wire before the sync: the others' disks work while ours does (Raft thesis, 10.2.1).
        peers.flush()
        if journal.dirty:
            self._make_durable()
            if raft.is_alone():
                self._wake.set()  # it is its own majority: the next tick commits

    def _take_configuration(self) -> None:
        """The log says that the members are others now: connect to them."""
        self._known_configuration = _running(self._raft).configuration
        _running(self._peers).adopt(self._known_configuration)
        self._membership_executor.look()

    def _wake_driver(self) -> None:
        self._wake.set()

    def _make_durable(self) -> None:
        """Sync the journal; then everything that promises something about it leaves."""
        journal = _running(self._journal)
        synced = journal.sync(seal=False)
        if self._held:
            held, self._held = self._held, []
            for name, frame in held:
                _running(self._peers).send(name, frame)
            _running(self._peers).flush()
        if synced:
            journal.seal()

    def _fail(self, error: Exception) -> None:
        """Stop the member: going on could break a promise."""
        if self._failure is None:
            log.critical("%s stops: %s", self._config.name, error)
            self._failure = error
        self._scope.cancel()

    # --- submitting -----------------------------------------------------------------------------------------------

    async def submit(
        self, procedure: str, args: Any = None, *, timeout_s: float = 5.0, command_id: CommandId | None = None
    ) -> Any:
        """Run a procedure on the replicated tree, exactly once, and return its value. On the leader or on a follower.

        `command_id` is (client, number) for a caller that must be able to submit the same command again, after an
        `OutcomeUnknown` or its own restart; numbers of one client must rise. Raises `Aborted`, `NoQuorum`,
        `OutcomeUnknown`; and `BadData` or `MalformedCommand` if the arguments cannot be replicated.
        """
        if not timeout_s <= MAX_TIMEOUT_S:
            timeout_s = bounded_s(timeout_s)
        began_ns = self._clock_ns()
        if command_id is None:
            command_id = self._next_command_id()
        command = encode_fields(procedure, args, *command_id)
        deadline_s = self._now_s() + timeout_s
        if self._raft is None or not await taken_by(self._slots, deadline_s):
            await trio.lowlevel.checkpoint()  # or a caller that tries again and again would not let itself be stopped
            reason = "is not running" if self._raft is None else f"has {MAX_OUTSTANDING} commands waiting"
            raise NoQuorum(f"{self._config.name} {reason}; the command was not submitted")
        submission = self._submissions.enter(command_id, command)
        self._push()
        try:
            await answered_by(submission, self._deadlines, deadline_s)
        finally:
            self._submissions.leave(submission)
            self._slots.release()
        if not submission.handed_over:
            raise NoQuorum(
                f"{self._config.name} stopped or reached no leader within {timeout_s} s; the command was not submitted"
            )
        answer = None if submission.answer is None else CommandAnswer.from_encoded(submission.answer)
        # What this call alone submitted was applied before, if it is too old now: its answer was forgotten.
        if answer is None or (answer.code == "stale_command" and command_id[0] == self._client_id):
            raise OutcomeUnknown(f"no answer to {procedure} within {timeout_s} s; it may be applied later", command_id)
        self._latencies.add(self._clock_ns() - began_ns)
        return value_of(answer)

    def _push(self) -> None:
        """Have the new command handed over: at once if it is alone, else with those that others are about to submit."""
        if len(self._submissions) == 1 and self._submissions.handed_over_last <= 1:
            self._guarded(self._advance)
        else:
            self._wake.set()

    def _hand_over(self) -> None:
        """Give Raft, or the leader, the commands that wait for it."""
        raft = _running(self._raft)
        route = self._current_route()
        self._submissions.take_route(route)
        if route is None:
            return
        if raft.is_leader():
            self._submissions.hand_over(lambda entry: raft.submit(COMMAND_KIND + entry))
        else:
            leader = route[0]
            self._submissions.forward(
                lambda entry: (
                    not self.is_congested(leader)
                    and self._send(leader, {"type": "apply_command", "command": COMMAND_KIND + entry})
                ),
                self._now_s(),
            )

    def _current_route(self) -> Route | None:
        """The way to the leader: who it is, in which term, by which connection. None if there is none."""
        raft = _running(self._raft)
        leader = raft.leader_name()
        if leader is None or not (raft.is_leader() or _running(self._peers).is_connected(leader)):
            return None
        return (leader, raft.raftCurrentTerm, 0 if raft.is_leader() else self._connections_made)

    # --- members --------------------------------------------------------------------------------------------------

    async def add_member(self, member: Member, *, timeout_s: float = 60.0) -> None:
        """Let a new member in, and wait until it has caught up and votes. At any member; may be repeated.

        Start the new member, with `join` and an empty directory, before or after. Raises `ChangeRefused`, and
        `ChangeNotFinished` when the time is over: the member is admitted then as a rule, and will vote when it can.
        """
        await self._membership_executor.admit(member, None, timeout_s)

    async def remove_member(self, name: str, *, timeout_s: float = 30.0) -> None:
        """Let a member go, and wait until it has; the leader hands its leadership over first. At any member.

        The member stops by itself with `RefusedByInstance` (`removed_member`) as soon as it can reach another one.
        Raises `ChangeRefused`, `ChangeNotFinished`.
        """
        await self._membership_executor.dismiss(name, timeout_s)

    async def replace_member(self, old: str, new: Member, *, timeout_s: float = 60.0) -> None:
        """Let `new` in, and `old` go as soon as `new` has caught up; wait until both have happened. At any member.

        This is also how a member that lost its disk comes back: under another name, or, once its old name was removed,
        by `add_member`. Raises `ChangeRefused`, `ChangeNotFinished`.
        """
        await self._membership_executor.admit(new, old, timeout_s)

    async def transfer_leadership(self, name: str | None = None, *, timeout_s: float = 5.0) -> str:
        """Have this voter lead, or the one that is best prepared; who leads then. At any member.

        The leader takes no commands meanwhile; they wait and go to the new one. Raises `ChangeRefused`,
        `ChangeNotFinished`.
        """
        return await self._membership_executor.transfer(name, timeout_s)

    @property
    def reluctant(self) -> bool:
        """Whether this member stands for election only if no other one does. Of this life: it is not kept."""
        return self._raft is not None and self._raft.reluctant

    @reluctant.setter
    def reluctant(self, reluctant: bool) -> None:
        if self._raft is not None:
            self._raft.reluctant = reluctant

    # --- reading --------------------------------------------------------------------------------------------------

    async def read_barrier(self, timeout_s: float = 2.0) -> None:
        """Wait until local reads see everything that was acknowledged anywhere before this call (linearizable).

        A read-index round: the leader confirms with a majority that it still leads; nothing is written to disk.
        Raises `NoQuorum` if that could not be had in time.
        """
        deadline_s = self._now_s() + timeout_s
        while self._raft is not None and self._now_s() < deadline_s:
            index = await self._confirmed_index(deadline_s)
            if index is not None and index <= self.applied_index:
                return
            if index is not None:
                with trio.move_on_at(deadline_s):
                    await self.wait_applied(index)
                    return
        await trio.lowlevel.checkpoint()
        if self._raft is None:
            raise NoQuorum(f"{self._config.name} is not running")
        raise NoQuorum(f"no majority confirmed to {self._config.name} within {timeout_s} s that it is up to date")

    async def _confirmed_index(self, deadline_s: float) -> int | None:
        """Ask the leader (perhaps this member) for an index; None to ask again."""
        answered = trio.Event()
        indices: list[int] = []

        def deliver(index: int) -> None:
            indices.append(index)
            answered.set()

        number, asked = self._reads.ask(deliver)
        _running(self._peers).flush()
        try:
            patience_s = self._config.timing.heartbeat_s * (4 if asked else 1)
            with trio.move_on_at(min(deadline_s, self._now_s() + patience_s)):
                # Without a leader to ask: the next one's first entry says that there is one.
                await (answered if asked else self._applied).wait()
        finally:
            self._reads.forget(number)
        return indices[0] if indices else None

    async def wait_applied(self, index: int) -> int:
        """Wait until everything up to this index of the log is in the local tree; the index applied then.

        Raises `NoQuorum` if this member does not run, or stops before.
        """
        while self.applied_index < index:
            if self._raft is None:
                await trio.lowlevel.checkpoint()
                raise NoQuorum(f"{self._config.name} is not running, so nothing more will be applied here")
            await self._applied.wait()
        return self.applied_index

    @property
    def applied_index(self) -> int:
        """The index of the last entry of the log that is in the local tree."""
        return self._applied_announced

    def _announce_applied(self) -> None:
        if self._raft is not None:
            self._applied_announced = self._raft.raftLastApplied
        self._applied.set()
        self._applied = trio.Event()

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The last connections that were refused, by this member or by others, oldest first."""
        return () if self._peers is None else tuple(self._peers.refusals)

    @property
    def refusal_counts(self) -> dict[str, int]:
        """How many connections were refused, by code."""
        return {} if self._peers is None else dict(self._peers.refusal_counts)

    @property
    def status(self) -> ReplicaStatus:
        """What this member knows now."""
        last_index = 0 if self._journal is None else self._journal.last_index
        latency = self._latencies.summary()
        return status_of(self._config.name, self._raft, self._peers, self.applied_index, last_index, latency)

    # --- what Raft and the connections call -----------------------------------------------------------------------

    def outbound(self, name: str, message: Message) -> bool:
        """Send a message of Raft's, at once or after the next sync; see `tree.raft.raft.Driver`."""
        frame = encode_message(message)
        peers = _running(self._peers)
        if message["type"] in NEEDS_SYNC and _running(self._journal).dirty:
            self._held.append((name, frame))
            return peers.is_connected(name)
        return peers.send(name, frame)

    def configure(self, configuration: Any) -> None:
        """Keep who the members are with the state; see `tree.raft.raft.Driver`."""
        self._machine.configuration = configuration

    def configuration(self) -> Any:
        """See `tree.raft.raft.Driver`."""
        return self._machine.configuration

    def is_congested(self, name: str) -> bool:
        """See `tree.raft.raft.Driver`."""
        return _running(self._peers).queued_bytes(name) > CONGESTED_BYTES

    def apply(self, entry: bytes) -> Iterator[int]:
        """Apply the commands of an entry and answer those that wait for them here; see `tree.raft.raft.Driver`."""
        for command_id, answer, steps in self._machine.apply_each(entry):
            self._submissions.answered(command_id, answer)
            yield steps
        # Here too, because a member that catches up applies very many entries at once.
        self._growth.reached(self._machine.store.node_count)

    def freeze(self) -> FrozenState:
        """See `tree.raft.raft.Driver`."""
        return self._machine.freeze()

    def thaw(self, frozen: FrozenState) -> None:
        """See `tree.raft.raft.Driver`."""
        self._machine.thaw(frozen)

    def install(self, state: LoadedState) -> Remains | None:
        """Take over a snapshot; what waits here may have been answered in it. See `tree.raft.raft.Driver`."""
        remains = self._machine.install(state)
        self._submissions.look_up(self._machine.answer_to)
        return remains

    def peer_connected(self, name: str) -> None:
        """See `tree.net.transport.PeerHandler`."""
        self._connections_made += 1
        self._guarded(lambda: _running(self._raft).peer_connected(name))
        self._wake.set()

    def peer_lost(self, name: str) -> None:
        """See `tree.net.transport.PeerHandler`."""
        if self._raft is not None:
            self._guarded(lambda: _running(self._raft).peer_lost(name))
            self._wake.set()

    def frames_arrived(self, name: str, bodies: list[bytes]) -> None:
        """See `tree.net.transport.PeerHandler`."""
        messages = [decode_message_untrusted(body) for body in bodies]
        self._guarded(lambda: self._take(name, messages))

    def refused_by_instance(self, refused: RefusedByInstance) -> None:
        """See `tree.net.transport.PeerHandler`."""
        self._membership_executor.look(removed=refused.code == REMOVED)
        self._fail(refused)

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._fail(error)

    def _take(self, name: str, messages: list[Message]) -> None:
        only_reads = True
        for message in messages:
            if self._reads.take(name, message):
                continue
            only_reads = False
            match message["type"]:
                case "member_request":
                    self._membership_executor.take_request_untrusted(name, message)
                case "member_answer":
                    self._membership_executor.take_answer(message)
                case _:
                    _running(self._raft).receive(name, message)
        # At once, not at the driver's next turn: others wait for what this promises and what it commits.
        if only_reads and not self._held:
            self._reads.begin()
            _running(self._peers).flush()
        else:
            self._advance()
            # That may have made something due before the driver wakes: the word of a commit above all.
            due_s = self._now_s() + _running(self._raft).idle_for_s()
            self._nap.deadline = min(self._nap.deadline, due_s)

    def _send(self, name: str, message: Message) -> bool:
        return _running(self._peers).send(name, encode_message(message))


def open_journal(config: ReplicaConfig, disk: Disk = REAL_DISK) -> Journal:
    """The journal of this member, made if the member is new; the directory must be held (`tree.disk.lock_file`).

    Raises `DiskFailed`, `JournalDamaged`, `JournalForeign`.
    """
    directory = config.directory
    return Journal(
        directory / "journal",
        f"{config.kind}/{config.instance}/{config.name}",
        disk,
        made_later=(directory / "member.key.pem", directory / "snapshot", *config.made_later),
    )


def _running(part: T | None) -> T:
    if part is None:
        raise RuntimeError("the replica is not running")
    return part


def _only_leaf(group: ExceptionGroup[Exception]) -> Exception:
    """The one error that a group is about; the group itself if there are several."""
    leaf: Exception = group
    while isinstance(leaf, ExceptionGroup) and len(leaf.exceptions) == 1:
        leaf = leaf.exceptions[0]
    return leaf
