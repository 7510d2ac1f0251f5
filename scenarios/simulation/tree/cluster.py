"""One simulated cluster: members of some system under test, their network, their clients, and everything that happens.

The cluster is the world around the members. It lets things happen in their processes, ends and pauses these, and shows
the oracle what they did. It knows nothing of the system under test but `SimulatedMember`; see `fence`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from batonpass.scenarios.simulation.kernel.schedule import Schedule
from batonpass.scenarios.simulation.tree.calls import CallHistory, Client, TreeCall
from batonpass.scenarios.simulation.tree.mixes import TreeFaultMix
from batonpass.scenarios.simulation.tree.network import Frame, TreeNetwork
from batonpass.scenarios.simulation.tree.oracle import Oracle
from batonpass.scenarios.simulation.tree.registers import Append, Value

__all__ = ["MemberCrashed", "MembersInLog", "SimulatedMember", "SystemUnderTest", "TreeCluster", "WantedChange"]

CLIENTS: Final = 4
SPARES: Final = 4
# What a member's code takes between two looks at the clock; and after how many looks in one go it is going in circles.
_LOOK_S: Final = 1e-5
_MAX_LOOKS: Final = 20_000


class MemberCrashed(BaseException):
    """The process of a member ended inside what it was doing. Nothing may take it for an error, so no `Exception`."""


class Spinning(Exception):
    """A member looks at the clock again and again, and does not come to an end."""


@dataclass(frozen=True, slots=True)
class MembersInLog:
    """The members since the entry `index` of the log; `settled` unless one is on the way in or out."""

    index: int
    members: frozenset[str]
    settled: bool


@dataclass(frozen=True, slots=True)
class WantedChange:
    """A change of the members: a newcomer, a leaver, or the one in the place of the other."""

    newcomer: str | None
    leaver: str | None

    def names(self) -> set[str]:
        """The members that it is about."""
        return {name for name in (self.newcomer, self.leaver) if name is not None}

    def is_met_by(self, seats: MembersInLog) -> bool:
        """Whether the change has happened."""
        return (
            seats.settled
            and (self.newcomer is None or self.newcomer in seats.members)
            and (self.leaver is None or self.leaver not in seats.members)
        )


class SimulatedMember(Protocol):
    """A member of the system under test: one process that can be started and ended, and its disk, which remains."""

    failure: Exception | None
    """Why it stopped by itself; None while it did not."""

    def start(self) -> None:
        """Begin a process on what the disk holds; raises `MemberCrashed`."""

    def prepare_to_join(self, doors: list[str]) -> None:
        """Have an empty disk, and wait at these members' doors to be let in when it starts."""

    def end(self, *, power_cut: bool) -> None:
        """The process is gone, and with a power cut everything that the disk does not have for certain."""

    def crash_within(self, operations: int) -> None:
        """Let one of the next `operations` disk operations be interrupted: that raises `MemberCrashed`."""

    def frames_arrived(self, sender: str, frames: list[Frame]) -> None:
        """Frames from another member."""

    def peer_connected(self, name: str) -> None:
        """There is a connection to that member now."""

    def peer_lost(self, name: str) -> None:
        """There is none any more."""

    def submit(self, call: TreeCall) -> None:
        """A client calls; `TreeCluster.answered` is told the answer."""

    def withdraw(self, call: TreeCall) -> None:
        """The client waits no more."""

    def leads_in(self) -> int | None:
        """The term in which it takes itself for the leader."""

    def applied_index(self) -> int:
        """How far it has applied the log."""

    def snapshots(self) -> int:
        """How many snapshots of others it installed, in all its lives."""

    def value(self, key: str) -> Value:
        """What its own state holds, without asking other members."""

    def transfer(self, target: str) -> None:
        """As leader, hand the leadership to that member."""

    def change(self, wanted: WantedChange) -> None:
        """As leader, begin to change the members like this, if that is possible now."""

    def seats(self) -> MembersInLog | None:
        """The members, as far as it has applied the log; None if it cannot know yet."""

    def meets(self, other: "SimulatedMember") -> bool:
        """Whether the two let each other in. `other` is of the same system."""


class SystemUnderTest(Protocol):
    """A system under test."""

    def member(self, name: str, cluster: "TreeCluster") -> SimulatedMember:
        """A member with an empty disk, not yet started."""

    def judge(self, cluster: "TreeCluster") -> None:
        """Tell the oracle what is wrong with the members' states at the end, when all have applied the same entries."""

    def close(self) -> None:
        """The run is over."""


class _MemberProcess:
    """A member and what the world knows of its process."""

    def __init__(self, member: SimulatedMember) -> None:
        self.member: Final = member
        self.running = False
        self.paused = False
        self.life = 0
        self.deferred: list[Callable[[], None]] = []


class TreeCluster:
    """Members `h0`, `h1`... and clients `c0`, `c1`...: a world that is a function of its dice."""

    def __init__(self, system: SystemUnderTest, mix: TreeFaultMix, size: int, dice: random.Random) -> None:
        self.mix: Final = mix
        self.dice: Final = dice
        self.schedule: Final = Schedule()
        self.oracle: Final = Oracle()
        self.history: Final = CallHistory()
        self.bursts: Final[list[TreeCall]] = []
        self.crashes = 0
        self._clock_s = 0.0
        self._looks = 0
        self._looked_at = -1
        self.system: Final = system
        spares = SPARES if mix.change else 0
        self.names: Final = [f"h{number}" for number in range(size + spares)]
        self.doors: Final = self.names[:size]
        self._present = set(self.doors)
        self.network: Final = TreeNetwork(self.names, self.schedule, dice, mix.weather, self)
        self._processes: Final = {name: _MemberProcess(system.member(name, self)) for name in self.names}
        self.clients: Final = [
            Client(f"c{number}", self.schedule, dice, self.history, self) for number in range(CLIENTS)
        ]
        for name in self.doors:
            self.start(name)
        for client in self.clients:
            client.think()

    def clock_s(self) -> float:
        """The clock as members see it: it does not move between events, but for a little while they compute.

        Raises `Spinning` into code that waits for the clock in a loop.
        """
        if self._looked_at != self.schedule.happened:
            self._looked_at, self._looks = self.schedule.happened, 0
        self._looks += 1
        if self._looks > _MAX_LOOKS:
            self.oracle.violated("spinning", "a member goes in circles: it would not do anything else any more")
            raise Spinning
        self._clock_s = max(self._clock_s + _LOOK_S, self.schedule.now_s)
        return self._clock_s

    # --- processes ------------------------------------------------------------------------------------------------

    def member(self, name: str) -> SimulatedMember:
        """A member; meaningful while its process runs."""
        return self._processes[name].member

    def running(self) -> list[str]:
        """The members whose processes run, paused or not."""
        return [name for name, process in self._processes.items() if process.running]

    def present(self) -> list[str]:
        """The members that there are: they run, or will again. Others are not admitted yet, or gone for good."""
        return [name for name in self.names if name in self._present]

    def configuration(self) -> MembersInLog | None:
        """The newest committed one that any running member has applied."""
        known = [seats for name in self.running() if (seats := self.member(name).seats()) is not None]
        return max(known, key=lambda seats: seats.index, default=None)

    def join(self, name: str) -> None:
        """A newcomer starts with an empty disk and waits to be let in."""
        self.member(name).prepare_to_join(self.present())
        self._present.add(name)
        self.start(name)

    def _retire(self, name: str) -> None:
        """A member that the others let go is stopped for good."""
        if self._processes[name].running:
            self.crash(name, power_cut=False)
        self._present.discard(name)

    def leaders(self) -> list[str]:
        """The members that take themselves for the leader."""
        return [name for name in self.running() if self.member(name).leads_in() is not None]

    def start(self, name: str) -> None:
        """Begin a process of this member, unless one runs."""
        process = self._processes[name]
        if process.running:
            return
        process.life += 1
        process.running = True
        self.schedule.note(f"start {name}")
        self._inside(name, process.member.start)

    def crash(self, name: str, *, power_cut: bool) -> None:
        """The process of this member is gone."""
        process = self._processes[name]
        if not process.running:
            return
        self.crashes += 1
        self.schedule.note(f"crash {name} {power_cut}")
        process.running = process.paused = False
        process.deferred.clear()
        process.member.end(power_cut=power_cut)
        self.network.process_ended(name, silently=power_cut and self.dice.random() < 0.5)
        for client in self.clients:
            client.lost_member(name)

    def crash_and_restart(self, name: str, *, power_cut: bool) -> None:
        """The same, and a new process after a while, which may crash in its turn."""
        if self._processes[name].running:
            self.crash(name, power_cut=power_cut)
            self.schedule.after(self.dice.uniform(*self.mix.down_s), lambda: self._restart(name))

    def _restart(self, name: str) -> None:
        if name not in self._present:
            return
        if not self._processes[name].running and self.dice.random() < self.mix.recovery_crash_share:
            self.member(name).crash_within(8)
        self.start(name)

    def pause(self, name: str) -> None:
        """The process is paused; what happens to it meanwhile happens when it continues."""
        self._processes[name].paused = self._processes[name].running

    def resume(self, name: str) -> None:
        """It continues."""
        process = self._processes[name]
        if process.paused:
            process.paused = False
            deferred, process.deferred = process.deferred, []
            for action in deferred:
                if process.running:
                    self._inside(name, action)

    def in_process(self, name: str, action: Callable[[], None], delay_s: float) -> None:
        """Let this happen in the member's present process after a while, if that still runs then."""
        life = self._processes[name].life
        self.schedule.after(delay_s, lambda: self._inside(name, action, life))

    def _inside(self, name: str, action: Callable[[], None], life: int | None = None) -> None:
        process = self._processes[name]
        if not process.running or (life is not None and life != process.life):
            return
        if process.paused:
            process.deferred.append(action)
            return
        try:
            action()
        except MemberCrashed:
            self.schedule.note(f"interrupted {name}")
            self.crash_and_restart(name, power_cut=True)
            return
        if process.member.failure is not None:
            self._stopped(name, process.member.failure)
            return
        term = process.member.leads_in()
        if term is not None:
            self.oracle.leads(name, term)

    def _stopped(self, name: str, failure: Exception) -> None:
        """A member stopped by itself: right after it was removed, wrong otherwise."""
        own = self.member(name).seats()
        if getattr(failure, "code", None) != "removed_member" or own is None:
            self.oracle.violated("stopped", f"{name} stopped by itself: {failure!r}")
        elif name not in self.oracle.members:
            self._retire(name)  # the member that told it may be down by now
        elif name not in own.members:
            # A new life of a removed member. Another member does not know yet that it was let in again, and takes it
            # for the old one. It has promised nothing, and its operator starts it once more. See
            # docs/reference/simulation.md.
            self.crash_and_restart(name, power_cut=False)
        else:
            self.oracle.violated("stopped", f"{name} stopped by itself: {failure!r}")

    def dismiss_the_removed(self) -> None:
        """Stop what is no member any more, as an operator does when all is done."""
        seats = self.configuration()
        if seats is not None:
            for name in self.present():
                if name not in seats.members:
                    self._retire(name)

    # --- what the network reports ---------------------------------------------------------------------------------

    def may_connect(self, one: str, other: str) -> bool:
        """See `Endpoint`."""
        processes = (self._processes[one], self._processes[other])
        return all(process.running and not process.paused for process in processes) and self._let_in(one, other)

    def _let_in(self, one: str, other: str) -> bool:
        """Whether two members let each other in; either of them may learn from the other, and stop."""
        met = self.member(one).meets(self.member(other))
        for name in (one, other):
            self._inside(name, lambda: None)
        return met

    def frames_arrived(self, name: str, sender: str, frames: list[Frame]) -> None:
        """See `Endpoint`."""
        self.schedule.note(f"{sender} > {name} {len(frames)}")
        self._inside(name, lambda: self.member(name).frames_arrived(sender, frames))

    def peer_connected(self, name: str, other: str) -> None:
        """See `Endpoint`."""
        self.schedule.note(f"{name} + {other}")
        self._inside(name, lambda: self.member(name).peer_connected(other))

    def peer_lost(self, name: str, other: str) -> None:
        """See `Endpoint`."""
        self.schedule.note(f"{name} - {other}")
        self._inside(name, lambda: self.member(name).peer_lost(other))

    # --- what clients see -----------------------------------------------------------------------------------------

    def reachable(self) -> list[str]:
        """See `Service`."""
        return self.running()

    def submit(self, name: str, call: TreeCall) -> None:
        """See `Service`."""
        self.schedule.note(f"{call.client}/{call.number} {call.action} on {call.key} at {name}")
        self._inside(name, lambda: self.member(name).submit(call))

    def withdraw(self, name: str, call: TreeCall) -> None:
        """See `Service`."""
        self._inside(name, lambda: self.member(name).withdraw(call))

    def answered(self, call: TreeCall, answer: Any) -> None:
        """A member answers a call; the client hears it when the member has done what it is doing."""
        self.schedule.after(0.0, lambda: self._answer(call, answer))

    def _answer(self, call: TreeCall, answer: Any) -> None:
        self.schedule.note(f"{call.client}/{call.number} -> {answer}")
        if call.client.startswith("burst"):
            if call.returned_at is None:
                self.history.returned(call, answer)
        else:
            self.clients[int(call.client[1:])].answered(call, answer)

    def burst(self) -> None:
        """A client writes a lot at once, through a leader if there is one, and does not wait."""
        targets = self.leaders() or self.running()
        if not targets:
            return
        name = self.dice.choice(targets)
        for _ in range(self.dice.randint(*self.mix.burst_writes)):
            self.write_alone(name)

    def write_alone(self, name: str) -> TreeCall:
        """A client writes, through this member, to a key of its own, and does not wait."""
        number = len(self.bursts)
        self.history.clock += 1
        call = TreeCall(f"burst{number}", 1, f"burst{number}", Append(f"{number};"), self.history.clock, member=name)
        self.bursts.append(call)
        self.submit(name, call)
        return call
