"""The system under test that matters: real replicas, with their journals and snapshots, on simulated disks.

Each member is a `tree.member.replica.Replica` whose synchronous half is driven from here instead of by trio. The order
in which it syncs, sends, applies and answers, its reads and its submissions are the code that runs in production. In
the place of trio there is the schedule, in the place of the connections the simulated network, and the disk is a
`SimulatedDisk`.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from batonpass.scenarios.simulation.tree.calls import TreeCall
from batonpass.scenarios.simulation.tree.cluster import (
    MemberCrashed,
    MembersInLog,
    SimulatedMember,
    TreeCluster,
    WantedChange,
)
from batonpass.scenarios.simulation.tree.disk import PowerCut, SimulatedDisk
from batonpass.scenarios.simulation.tree.network import Frame
from batonpass.scenarios.simulation.tree.registers import ABSENT, Append, CompareAndSwap, Get, RegisterPut, Value
from batonpass.tree.data.errors import Abort
from batonpass.tree.machine.commands import Command, CommandAnswer, Machine, encode_command
from batonpass.tree.machine.state import LoadedState
from batonpass.tree.member.read_index import ReadIndex
from batonpass.tree.member.replica import Replica
from batonpass.tree.member.status import ReplicaConfig
from batonpass.tree.net.membership import Admit, ChangeRefused, Configuration, Dismiss, MemberRole
from batonpass.tree.net.roster import REMOVED, Roster
from batonpass.tree.net.transport import Member as Address
from batonpass.tree.net.transport import Peers, RefusedByInstance
from batonpass.tree.raft.raft import RaftCore, use_clock
from batonpass.tree.raft.submissions import MAX_ENTRY_BYTES, Submission
from batonpass.tree.store.rows import Remains
from batonpass.tree.store.transaction import Transaction

__all__ = ["FencedMember", "RaftFence", "SimulatedReplica"]

_KIND: Final = "homeserver"
_INSTANCE: Final = "simulated"
_DIRECTORY: Final = Path("/simulated")
_LENGTH_BYTES: Final = 4
_RESERVE_BYTES: Final = 4096


def _append(transaction: Transaction, args: Any) -> str:
    """Add a token to what is at a path."""
    match args:
        case {"path": list(path), "token": str(token)}:
            longer = str(transaction.get_or(tuple(path), "")) + token
            transaction.put(tuple(path), longer)
            return longer
        case _:
            raise Abort("bad_arguments", "append wants a path and a token")


_PROCEDURES: Final = {"simulation.append": _append}


class RaftFence:
    """Real replicas; or ones that lack a guard, to show that the simulation notices."""

    def __init__(
        self,
        make_raft: Callable[..., RaftCore] = RaftCore,
        make_replica: "Callable[..., SimulatedReplica] | None" = None,
        make_disk: Callable[..., SimulatedDisk] = SimulatedDisk,
    ) -> None:
        self.make_raft: Final = make_raft
        self.make_replica: Final = make_replica or SimulatedReplica
        self.make_disk: Final = make_disk
        logging.disable(logging.CRITICAL)

    def member(self, name: str, cluster: TreeCluster) -> "FencedMember":
        """See `System`."""
        use_clock(cluster.clock_s)
        return FencedMember(name, cluster, self)

    def judge(self, cluster: TreeCluster) -> None:
        """Every member's state must be that of a machine that applied the log once, from its beginning."""
        machine = Machine(_PROCEDURES)
        for index in sorted(cluster.oracle.log):
            machine.apply_entry(cluster.oracle.log[index])
        for name in cluster.present():
            member = cast("FencedMember", cluster.member(name))
            machine.configuration = member.machine().configuration
            if member.machine().digest() != machine.digest():
                cluster.oracle.violated("states-differ", f"the state of {name} is not what the log comes to")

    def close(self) -> None:
        """See `System`."""
        use_clock(None)
        logging.disable(logging.NOTSET)


class _SimulatedPeers:
    """The connections of one replica: what it sends waits until it flushes, as in `tree.net.transport.Peers`."""

    def __init__(self, name: str, cluster: TreeCluster, disk: SimulatedDisk, roster: Roster) -> None:
        self._name = name
        self._cluster = cluster
        self._disk = disk
        self._roster = roster
        self._queued: list[tuple[str, bytes]] = []

    def adopt(self, configuration: Configuration) -> None:
        """As `Peers.adopt`: hang up on those that are no members any more."""
        self._roster.adopt(configuration)
        for name in self._cluster.names:
            if name != self._name and not self._roster.admits(name) and self.is_connected(name):
                self._cluster.network.break_connection(self._name, name)

    def is_connected(self, name: str) -> bool:
        return self._cluster.network.is_connected(self._name, name)

    def queued_bytes(self, name: str) -> int:
        return 0

    def send(self, name: str, frame: bytes) -> bool:
        if not self.is_connected(name):
            return False
        self._queued.append((name, frame))
        return True

    def flush(self) -> None:
        if self._disk.crashed:
            raise PowerCut  # PySyncObj swallowed the first one
        queued, self._queued = self._queued, []
        for name, frame in queued:
            self._cluster.network.send(self._name, name, frame)


class SimulatedReplica(Replica):
    """A replica that shows what it applies, and whose connections and log are opened from outside."""

    make_reads: Callable[..., ReadIndex] = ReadIndex

    def __init__(
        self, config: ReplicaConfig, cluster: TreeCluster, disk: SimulatedDisk, make_raft: Callable[..., RaftCore]
    ) -> None:
        def make_with_batches(*args: Any, **limits: Any) -> RaftCore:
            return make_raft(*args, **limits, batch_bytes=cluster.mix.batch_bytes)

        super().__init__(
            config,
            _PROCEDURES,
            make_reads=self.make_reads,
            dice=cluster.dice,
            clock_ns=lambda: int(cluster.schedule.now_s * 1e9),
            now_s=lambda: cluster.schedule.now_s,
            disk=disk,
            make_raft=make_with_batches,
            max_entry_bytes=min(MAX_ENTRY_BYTES, cluster.mix.batch_bytes // 3),
        )
        self._cluster: Final = cluster
        self._simulated_disk: Final = disk
        self.installed = 0

    def begin(self) -> None:
        """Recover the log, as `Replica.serve` does when it begins."""
        self._peers = cast(Peers, _SimulatedPeers(self._config.name, self._cluster, self._simulated_disk, self._roster))
        self._open_log()
        self._take_configuration()
        self.installed = 0

    def apply(self, entry: bytes) -> Iterator[int]:
        """See `tree.raft.raft.Driver`."""
        if self._simulated_disk.crashed:
            raise PowerCut  # PySyncObj swallowed the first one
        self._cluster.oracle.applied(self._config.name, self.raft().raftLastApplied + 1, entry)
        return super().apply(entry)

    def install(self, state: LoadedState) -> Remains | None:
        """See `tree.raft.raft.Driver`."""
        self.installed += 1
        return super().install(state)

    def raft(self) -> RaftCore:
        """The core, which is there after `begin`."""
        raft = self._raft
        if raft is None:
            raise RuntimeError("the log is not open")
        return raft

    @property
    def log(self) -> RaftCore | None:
        """The core, if the log could be opened."""
        return self._raft

    @property
    def failure(self) -> Exception | None:
        """Why it stopped by itself."""
        return self._failure

    @property
    def peers(self) -> Peers:
        """Its connections, which are there after `begin`."""
        peers = self._peers
        if peers is None:
            raise RuntimeError("there are no connections")
        return peers

    @property
    def machine(self) -> Machine:
        """What it applies the log to."""
        return self._machine

    @property
    def is_awake(self) -> bool:
        """Whether its loop has something to do."""
        return self._wake.is_set()

    def turn(self) -> float:
        """One turn of its loop; how long until the next one, if nothing happens."""
        self._wake = type(self._wake)()
        self._guarded(self._advance)
        return self.raft().idle_for_s()

    def enter(self, command: Command, answered: Callable[[Submission], None]) -> Submission:
        """Begin to wait for a command, as `submit` does; `answered` is called once."""
        submission = self._submissions.enter((command.client, command.number), encode_command(command))
        if submission.answer is None:
            submission.waiting.append(lambda: answered(submission))
            self._wake.set()
        else:
            answered(submission)
        return submission

    def leave(self, submission: Submission) -> None:
        """Wait no more."""
        submission.waiting.clear()
        self._submissions.leave(submission)

    @property
    def name(self) -> str:
        """Its name."""
        return self._config.name

    @property
    def roster(self) -> Roster:
        """The members that it lets in."""
        return self._roster

    def judges(self, other: "SimulatedReplica") -> bool:
        """Whether it lets the other one in, which stops if it was removed."""
        greeting = other.roster.greeting(probe=False)
        if self._roster.judge(greeting, None).code is not None:
            return False
        verdict = self._roster.judge_proven(greeting)
        if verdict.code == REMOVED:
            other.refused_by_instance(RefusedByInstance(REMOVED, verdict.sentence))
        return verdict.code is None

    def hint_for(self, other: "SimulatedReplica") -> Configuration | None:
        """What the other one should know of the members."""
        return self._roster.hint_for(other.roster.greeting(probe=False))

    def take_hint(self, hint: Configuration | None) -> None:
        """The other one knew of newer members."""
        if hint is not None:
            self.peers.adopt(hint)

    def decide(self, request: list[Any]) -> None:
        """As leader, grant a request or raise `ChangeRefused`."""
        self._membership_executor._decide_untrusted(request)
        self._wake.set()

    def _take_configuration(self) -> None:
        super()._take_configuration()
        configuration = self.raft().configuration
        if configuration.index >= 0:
            members = frozenset(seat.name for seat in configuration.seats)
            self._cluster.oracle.members_are(self.name, configuration.index, members)

    def ask_for_index(self, deliver: Callable[[int], None]) -> tuple[int, bool]:
        """Begin a read, as `read_barrier` does."""
        number, asked = self._reads.ask(deliver)
        self.peers.flush()
        return number, asked

    def forget_index(self, number: int) -> None:
        """Wait no more for the answer to this question."""
        self._reads.forget(number)


class _Read:
    """A linearizable read that waits: first for an index, then until that is applied."""

    def __init__(self, call: TreeCall) -> None:
        self.call: Final = call
        self.index: int | None = None


class FencedMember:
    """One member: a disk that remains, and a replica while its process runs."""

    def __init__(self, name: str, cluster: TreeCluster, fence: RaftFence) -> None:
        self._name: Final = name
        self._cluster: Final = cluster
        self._fence: Final = fence
        self._disk = fence.make_disk(reserve_at_most_bytes=_RESERVE_BYTES)
        self._doors: list[str] | None = None  # where to knock, if it joined later
        self._replica: SimulatedReplica | None = None
        self._submissions: dict[TreeCall, Submission] = {}
        self._reads: dict[TreeCall, _Read] = {}
        self._turn_number = 0
        self._waking = False
        self._installed = 0
        self.failure: Exception | None = None

    # --- life, see `SimulatedMember`
    # ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """See `SimulatedMember`."""
        known = self._cluster.doors if self._doors is None else {*self._doors, self._name}
        config = ReplicaConfig(
            _KIND,
            _INSTANCE,
            self._name,
            tuple(map(_address, sorted(known))),
            _DIRECTORY / self._name,
            b"",
            compact_after_entries=self._cluster.mix.compact_after_entries,
            compact_interval_s=0.0,
            join=self._doors is not None,
        )
        self.failure = None
        self._replica = self._fence.make_replica(config, self._cluster, self._disk, self._fence.make_raft)
        self._doing(self._begin)

    def _begin(self) -> None:
        try:
            self._running().begin()
        except Exception as error:
            self.failure = error
            return
        self._wake_up()

    def prepare_to_join(self, doors: list[str]) -> None:
        """See `SimulatedMember`."""
        self._disk = self._fence.make_disk(reserve_at_most_bytes=_RESERVE_BYTES)
        self._doors = doors
        self.failure = None

    def end(self, *, power_cut: bool) -> None:
        """See `SimulatedMember`."""
        if power_cut or self._disk.crashed:
            dice = self._cluster.dice
            self._disk.crash(None if dice.random() < 0.3 else dice)
        self._disk.crash_at(0)
        if self._replica is not None:
            self._installed += self._replica.installed
        self._replica = None
        self._waking = False
        self._submissions.clear()
        self._reads.clear()

    def crash_within(self, operations: int) -> None:
        """See `SimulatedMember`."""
        self._disk.crash_at(self._disk.operations + self._cluster.dice.randint(1, operations))

    # --- what happens to it ---------------------------------------------------------------------------------------

    def frames_arrived(self, sender: str, frames: list[Frame]) -> None:
        """See `SimulatedMember`."""
        bodies = [frame[_LENGTH_BYTES:] for frame in frames]
        self._doing(lambda: self._running().frames_arrived(sender, bodies))

    def peer_connected(self, name: str) -> None:
        """See `SimulatedMember`."""
        self._doing(lambda: self._running().peer_connected(name))

    def peer_lost(self, name: str) -> None:
        """See `SimulatedMember`."""
        self._doing(lambda: self._running().peer_lost(name))

    def submit(self, call: TreeCall) -> None:
        """See `SimulatedMember`."""
        self._doing(lambda: self._begin_read(call) if call.is_read else self._begin_write(call))

    def withdraw(self, call: TreeCall) -> None:
        """See `SimulatedMember`."""
        submission = self._submissions.pop(call, None)
        if submission is not None:
            self._running().leave(submission)
        self._reads.pop(call, None)

    def transfer(self, target: str) -> None:
        """See `SimulatedMember`."""
        with suppress(ChangeRefused):
            self._running().raft().transfer_leadership(target)

    def change(self, wanted: WantedChange) -> None:
        """As the operator's request arrives at the leader."""
        request = (
            Dismiss(wanted.leaver or "") if wanted.newcomer is None else Admit(_address(wanted.newcomer), wanted.leaver)
        )
        with suppress(ChangeRefused):
            self._doing(lambda: self._running().decide(request.to_data()))

    def seats(self) -> MembersInLog | None:
        """See `SimulatedMember`."""
        if self._replica is None or self._replica.log is None:
            return None
        configuration = self._replica.raft().configuration
        settled = all(seat.role is MemberRole.VOTER and seat.replaces is None for seat in configuration.seats)
        return MembersInLog(configuration.index, frozenset(seat.name for seat in configuration.seats), settled)

    def meets(self, other: SimulatedMember) -> bool:
        """As two `tree.net.transport.Peers` introduce themselves, after either of them dialled or knocked."""
        mine, theirs = self._running(), cast(FencedMember, other)._running()
        smaller, larger = (mine, theirs) if self._name < cast(FencedMember, other)._name else (theirs, mine)
        dials = larger.name in smaller.roster.contacts
        if not dials and smaller.name not in larger.roster.contacts:
            return False
        welcome = [smaller.judges(larger), larger.judges(smaller)]
        if not all(welcome):
            return False
        hints = smaller.hint_for(larger), larger.hint_for(smaller)
        larger.take_hint(hints[0])
        smaller.take_hint(hints[1])
        return dials

    # --- what is seen of it ---------------------------------------------------------------------------------------

    def leads_in(self) -> int | None:
        """See `SimulatedMember`."""
        if self._replica is None or self.failure is not None:
            return None
        raft = self._replica.raft()
        return int(raft.raftCurrentTerm) if raft.is_leader() else None

    def applied_index(self) -> int:
        """See `SimulatedMember`."""
        return int(self._running().raft().raftLastApplied)

    def snapshots(self) -> int:
        """See `SimulatedMember`."""
        return self._installed + (0 if self._replica is None else self._replica.installed)

    def value(self, key: str) -> Value:
        """See `SimulatedMember`."""
        path = ("kv", key)
        store = self._running().store
        return str(store.get(path)) if store.exists(path) else ABSENT

    def machine(self) -> Machine:
        """What it applies the log to."""
        return self._running().machine

    def raft(self) -> RaftCore:
        """Its core."""
        return self._running().raft()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _running(self) -> SimulatedReplica:
        if self._replica is None:
            raise RuntimeError(f"{self._name} does not run")
        return self._replica

    def _doing(self, action: Callable[[], None]) -> None:
        """Let the replica do something; then serve reads, and see whether its loop has to turn."""
        try:
            action()
        except PowerCut:
            raise MemberCrashed from None
        if self._disk.crashed:
            raise MemberCrashed
        replica = self._running()
        self.failure = self.failure or replica.failure
        if self.failure is not None:
            return
        self._finish_reads()
        if replica.is_awake:
            self._wake_up()

    def _wake_up(self) -> None:
        if not self._waking:
            self._waking = True
            self._turn_later(self._cluster.dice.uniform(0.0, 0.0002))

    def _turn_later(self, delay_s: float) -> None:
        self._turn_number += 1
        number = self._turn_number
        self._cluster.in_process(self._name, lambda: self._turn(number), delay_s)

    def _turn(self, number: int) -> None:
        if number == self._turn_number:
            self._waking = False
            self._doing(lambda: self._turn_later(self._running().turn()))

    def _begin_write(self, call: TreeCall) -> None:
        def answered(submission: Submission) -> None:
            self._cluster.answered(call, _answer_to(call, submission))
            self._cluster.in_process(self._name, lambda: self.withdraw(call), 0.0)

        if call not in self._submissions:
            self._submissions[call] = self._running().enter(_command(call), answered)

    def _begin_read(self, call: TreeCall) -> None:
        if call not in self._reads:
            self._reads[call] = _Read(call)
            self._ask(self._reads[call])

    def _ask(self, read: _Read) -> None:
        """As `Replica.read_barrier`: ask for an index, and ask again when it does not come in time."""
        if read.index is not None or self._reads.get(read.call) is not read:
            return

        def deliver(index: int) -> None:
            if read.index is None:
                read.index = index

        replica = self._running()
        number, asked = replica.ask_for_index(deliver)

        def ask_again() -> None:
            replica.forget_index(number)
            self._doing(lambda: self._ask(read))

        heartbeat_s = 0.1
        self._cluster.in_process(self._name, ask_again, 4 * heartbeat_s if asked else heartbeat_s)

    def _finish_reads(self) -> None:
        applied_index = self._running().applied_index
        for read in list(self._reads.values()):
            if read.index is not None and read.index <= applied_index:
                del self._reads[read.call]
                self._cluster.answered(read.call, self.value(read.call.key))


def _address(name: str) -> Address:
    return Address(name, name, 1)


def _command(call: TreeCall) -> Command:
    path = ["kv", call.key]
    match call.action:
        case RegisterPut(value):
            return Command("tree.put", {"path": path, "data": value}, *call.command_id)
        case CompareAndSwap(None, value):
            return Command("tree.create", {"path": path, "data": value}, *call.command_id)
        case CompareAndSwap(expected, value):
            return Command(
                "tree.compare_and_swap", {"path": path, "expected": expected, "data": value}, *call.command_id
            )
        case Append(token):
            return Command("simulation.append", {"path": path, "token": token}, *call.command_id)
        case Get():
            raise ValueError("reads are not commands")


def _answer_to(call: TreeCall, submission: Submission) -> Value | bool:
    if submission.answer is None:
        raise RuntimeError("woken without an answer")
    answer = CommandAnswer.from_encoded(submission.answer)
    match call.action:
        case Append():
            return str(answer.value)
        case CompareAndSwap():
            return answer.ok
        case _:
            return None
