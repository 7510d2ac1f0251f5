"""Members of an instance in one thread: real `RaftCore`s and journals, a network, a clock and crashes from one seed.

Messages between two members arrive in order while their connection lasts, as over TCP; breaking it loses what is under
way. A crash loses what was not synced. After everything, the safety sentences of Raft must hold:

* what one member applied at an index, every member applied at that index;
* what was acknowledged is in the tree of every member, exactly once.
"""

import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pysyncobj.syncobj
import pytest

from batonpass.tree.disk.journal import Journal
from batonpass.tree.machine.commands import Command, Machine, encode_command
from batonpass.tree.machine.state import FrozenState, LoadedState
from batonpass.tree.net.frames import decode_message_untrusted, encode_message
from batonpass.tree.net.membership import Member
from batonpass.tree.raft.raft import COMMAND_KIND, NEEDS_SYNC, RaftCore, Timing
from batonpass.tree.store.transaction import Transaction

Message = dict[str, Any]


def count_once(transaction: Transaction, args: Any) -> None:
    path = ("counted", str(args))
    transaction.put(path, transaction.get_or(path, 0) + 1)


def work(transaction: Transaction, args: Any) -> None:
    """Takes steps, as a command does that looks at much, without what that would take of the test's time."""
    transaction.spend(args)


class SimulatedMember:
    """What `Replica` is in production: the driver of one `RaftCore`."""

    def __init__(self, cluster: "SimulatedCluster", name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.raft: RaftCore | None = None
        self.start()

    def start(self) -> None:
        directory = self.cluster.directory / self.name
        directory.mkdir(exist_ok=True)
        self.machine = Machine({"count_once": count_once, "work": work})
        self.held: list[tuple[str, Message]] = []
        self.journal = Journal(directory / "journal", f"homeserver/sim/{self.name}")
        self.raft = RaftCore(
            self.name,
            self.cluster.initial_members(self.name),
            self.journal,
            directory,
            "homeserver/sim",
            self,
            self.cluster.dice,
            Timing(),
            compact_after_entries=self.cluster.compact_after_entries,
            compact_after_bytes=1 << 20,
            batch_bytes=self.cluster.batch_bytes,
        )

    def crash(self) -> None:
        assert self.raft is not None
        self.raft.close()
        self.raft = None
        self.journal.abandon()

    # --- what RaftCore asks of its driver

    def outbound(self, name: str, message: Message) -> bool:
        if message["type"] in NEEDS_SYNC and self.journal.dirty:
            self.held.append((name, message))
            return True
        return self.cluster.send(self.name, name, message)

    def is_congested(self, name: str) -> bool:
        return False

    def apply(self, entry: bytes) -> Iterator[int]:
        assert self.raft is not None
        index = self.raft.raftLastApplied + 1
        self.cluster.check_applied(index, entry)
        for command_id, _, steps in self.machine.apply_each(entry):
            if command_id[0] == self.name:
                self.cluster.acknowledged.add(command_id)
            yield steps

    def freeze(self) -> FrozenState:
        return self.machine.freeze()

    def thaw(self, frozen: FrozenState) -> None:
        self.machine.thaw(frozen)

    def install(self, state: LoadedState) -> None:
        self.machine.install(state)

    def configure(self, configuration: Any) -> None:
        self.machine.configuration = configuration

    def configuration(self) -> Any:
        return self.machine.configuration

    # --- what the cluster lets happen

    def make_durable(self) -> None:
        self.journal.sync()
        held, self.held = self.held, []
        for name, message in held:
            self.cluster.send(self.name, name, message)

    def tick(self) -> None:
        assert self.raft is not None
        self.make_durable()
        self.raft.tick()

    def receive(self, sender: str, frame: bytes) -> None:
        assert self.raft is not None
        self.raft.receive(sender, decode_message_untrusted(frame[4:]))


class SimulatedCluster:
    """A cluster whose every step is a function of the dice."""

    healing_turns = 600  # of 20 ms each

    def __init__(
        self,
        directory: Path,
        dice: random.Random,
        monkeypatch: pytest.MonkeyPatch,
        *,
        size: int,
        compact_after: int,
        batch_bytes: int,
    ) -> None:
        self.directory = directory
        self.dice = dice
        self.now_s = 1000.0
        monkeypatch.setattr(pysyncobj.syncobj, "monotonicTime", lambda: self.now_s)
        self.compact_after_entries = compact_after
        self.batch_bytes = batch_bytes
        self.names = [f"h{number}" for number in range(size)]
        self.applied: dict[int, bytes] = {}
        self.acknowledged: set[tuple[str, int]] = set()
        self.submitted = 0
        self.connections: dict[frozenset[str], dict[str, deque[bytes]]] = {}
        self.held: set[tuple[str, str]] = set()  # (sender, receiver): what is under way between them stays under way
        self.members = {name: SimulatedMember(self, name) for name in self.names}

    def initial_members(self, name: str) -> list[Member]:
        """The members that this one is told the instance began with."""
        return [Member(name, "sim", 1 + rank) for rank, name in enumerate(self.names)]

    # --- the network

    def send(self, sender: str, receiver: str, message: Message) -> bool:
        connection = self.connections.get(frozenset((sender, receiver)))
        if connection is None:
            return False
        connection[receiver].append(encode_message(message))
        return True

    def connect(self, one: str, other: str) -> None:
        pair = frozenset((one, other))
        if one == other or pair in self.connections or not (self.running(one) and self.running(other)):
            return
        self.connections[pair] = {one: deque(), other: deque()}
        self.raft(one).peer_connected(other)
        self.raft(other).peer_connected(one)

    def disconnect(self, pair: frozenset[str]) -> None:
        if self.connections.pop(pair, None) is not None:
            for name in sorted(pair):
                if self.running(name):
                    (other,) = pair - {name}
                    self.raft(name).peer_lost(other)

    def deliver_one(self) -> bool:
        choices = [
            (pair, receiver)
            for pair in sorted(self.connections, key=sorted)
            for receiver, queue in sorted(self.connections[pair].items())
            if queue and (*(pair - {receiver}), receiver) not in self.held
        ]
        if not choices:
            return False
        pair, receiver = self.dice.choice(choices)
        (sender,) = pair - {receiver}
        self.members[receiver].receive(sender, self.connections[pair][receiver].popleft())
        return True

    # --- members

    def running(self, name: str) -> bool:
        return self.members[name].raft is not None

    def raft(self, name: str) -> RaftCore:
        raft = self.members[name].raft
        assert raft is not None
        return raft

    def crash(self, name: str) -> None:
        for pair in sorted(self.connections, key=sorted):
            if name in pair:
                self.connections.pop(pair)
                (other,) = pair - {name}
                self.raft(other).peer_lost(name)
        self.members[name].crash()

    def check_applied(self, index: int, command: bytes) -> None:
        assert self.applied.setdefault(index, command) == command, f"two members applied different commands at {index}"

    # --- time

    def submit_somewhere(self) -> None:
        leaders = [name for name in self.names if self.running(name) and self.raft(name).is_leader()]
        if leaders:
            name = self.dice.choice(leaders)
            self.submitted += 1
            command = Command("count_once", self.submitted, name, self.submitted)
            self.raft(name).submit(COMMAND_KIND + encode_command(command))

    def step(self, fault_rate: float) -> None:
        """One thing happens."""
        roll = self.dice.random()
        if roll < fault_rate:
            self.fault()
        elif roll < 0.12:
            self.submit_somewhere()
        elif roll < 0.2:
            self.connect(self.dice.choice(self.names), self.dice.choice(self.names))
        elif roll < 0.24:
            name = self.dice.choice(self.names)
            if not self.running(name):
                self.members[name].start()
        elif roll < 0.5:
            self.now_s += self.dice.choice([0.001, 0.01, 0.05, 0.2])
            self.tick(self.dice.choice(self.names))
        elif roll < 0.6:
            self.tick(self.dice.choice(self.names))
        elif roll < 0.7:
            name = self.dice.choice(self.names)
            if self.running(name):
                self.members[name].make_durable()
        else:
            self.deliver_one()

    def tick(self, name: str) -> None:
        if self.running(name):
            self.members[name].tick()

    def fault(self) -> None:
        if self.connections and self.dice.random() < 0.7:
            self.disconnect(self.dice.choice(sorted(self.connections, key=sorted)))
        else:
            name = self.dice.choice(self.names)
            if self.running(name):
                self.crash(name)

    def turn(self) -> None:
        """Time passes, all that run do what is due, and what is under way arrives."""
        self.now_s += 0.02
        for name in self.names:
            if self.running(name):
                self.tick(name)
                self.members[name].make_durable()
        while self.deliver_one():
            pass

    def heal(self) -> None:
        """Everything runs and is connected, for long enough; then all must agree."""
        for name in self.names:
            if not self.running(name):
                self.members[name].start()
        for one in self.names:
            for other in self.names:
                self.connect(one, other)
        for _ in range(self.healing_turns):
            self.turn()
            if self.converged():
                return
        states = {name: (self.raft(name).getStatus(), self.raft(name).configuration) for name in self.names}
        raise AssertionError(f"no progress after everything was healed: {states}")

    def converged(self) -> bool:
        rafts = [self.raft(name) for name in self.names]
        leaders = [raft for raft in rafts if raft.is_leader()]
        if len(leaders) != 1 or not leaders[0].has_committed_in_term():
            return False
        last = max(member.journal.last_index for member in self.members.values())
        return all(raft.raftLastApplied == last for raft in rafts)

    def check(self) -> None:
        digests = {member.machine.digest() for member in self.members.values()}
        assert len(digests) == 1, "the members' states differ"
        store = self.members[self.names[0]].machine.store
        for _, number in sorted(self.acknowledged):
            assert store.get(("counted", str(number))) == 1, f"command {number} was acknowledged"
