"""A simulated cluster whose members change while it runs: they join, leave, are replaced, and pass the leadership on.

Besides what every simulated cluster promises, no term has two leaders, and every member that applied a change applied
the same one at the same index.
"""

import random
import shutil
from pathlib import Path

import pytest

from batonpass.tree.data.data import encode
from batonpass.tree.net.membership import Admit, Change, ChangeRefused, Configuration, Dismiss, Member
from tests.tree.simulated_cluster import SimulatedCluster


class ChangingCluster(SimulatedCluster):
    """Six members, of which the first three are there from the beginning."""

    healing_turns = 900  # newcomers have to catch up before they are promoted

    def __init__(
        self,
        directory: Path,
        dice: random.Random,
        monkeypatch: pytest.MonkeyPatch,
        *,
        compact_after: int,
        batch_bytes: int,
        founders: int = 3,
    ) -> None:
        self.founders = founders
        self.leaders: dict[int, str] = {}
        self.changes: dict[int, bytes] = {}
        self.latest = Configuration.initial([])
        self.refusals: set[str] = set()
        self.newcomers = {f"h{rank}" for rank in range(founders, 6)}  # who begins with nothing and waits for admission
        super().__init__(directory, dice, monkeypatch, size=6, compact_after=compact_after, batch_bytes=batch_bytes)
        self.latest = Configuration.initial(self.initial_members("h0"))

    def initial_members(self, name: str) -> list[Member]:
        founders = [Member(founder, "sim", 1 + rank) for rank, founder in enumerate(self.names[: self.founders])]
        return [] if name in self.newcomers else founders

    def step(self, fault_rate: float) -> None:
        if self.dice.random() < 0.03:
            self.change_something()
        elif self.dice.random() < 0.01:
            self.replace_a_disk()
        else:
            super().step(fault_rate)

    def change_something(self) -> None:
        leaders = [name for name in self.names if self.running(name) and self.raft(name).is_leader()]
        if not leaders:
            return
        raft = self.raft(self.dice.choice(leaders))
        try:
            if self.dice.random() < 0.3:
                raft.transfer_leadership(self.dice.choice([None, *self.names]))
            else:
                raft.propose_change(self.some_change())
        except ChangeRefused as refused:
            self.refusals.add(refused.code)

    def some_change(self) -> Change:
        name = self.dice.choice(self.names)
        if self.dice.random() < 0.5:
            return Dismiss(name)
        replaces = self.dice.choice([None, *self.names])
        return Admit(Member(name, "sim", 1 + self.names.index(name)), replaces)

    def replace_a_disk(self) -> None:
        """A member that is none any more, and does not run, may come back under its name with an empty disk."""
        name = self.dice.choice(self.names)
        if not self.running(name) and self.latest.seat(name) is None:
            shutil.rmtree(self.directory / name, ignore_errors=True)
            self.newcomers.add(name)

    def tick(self, name: str) -> None:
        super().tick(name)
        self.look_at(name)

    def look_at(self, name: str) -> None:
        if not self.running(name):
            return
        raft = self.raft(name)
        if raft.is_leader():
            term = raft.raftCurrentTerm
            assert self.leaders.setdefault(term, name) == name, f"{name} and {self.leaders[term]} lead in term {term}"
        configuration = raft.configuration
        if configuration.index > 0:
            data = encode(configuration.to_data())
            assert self.changes.setdefault(configuration.index, data) == data, "two different changes at one index"
        if configuration.index > self.latest.index:
            self.latest = configuration

    def converged(self) -> bool:
        leaders = [name for name in self.names if self.raft(name).is_leader() and name in self.latest.voters]
        if len(leaders) != 1 or not self.raft(leaders[0]).has_committed_in_term():
            return False
        latest = self.raft(leaders[0]).configuration
        if latest.learners or any(seat.replaces for seat in latest.seats):
            return False
        last = self.members[leaders[0]].journal.last_index
        return all(self.raft(seat.name).raftLastApplied == last for seat in latest.seats)

    def check(self) -> None:
        members = [self.members[seat.name] for seat in self.latest.seats]
        assert len({member.machine.digest() for member in members}) == 1, "the members' states differ"
        for _, number in sorted(self.acknowledged):
            assert members[0].machine.store.get(("counted", str(number))) == 1, f"command {number} was acknowledged"
