"""The promises, watched at every step of a run, of the entity that the step touches.

The judge is told what happens, at the moment when it happens on virtual time, whatever the servers believe.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from batonpass.authority.fence import Fence
from batonpass.authority.model.input_fold import fold
from batonpass.scenarios.simulation.kernel.debts import Debts
from batonpass.scenarios.simulation.kernel.outcome import Violation
from batonpass.scenarios.simulation.machines.lives import MachineState

__all__ = ["MachineJudge", "Thread"]

_NOWHERE: Final = Fence(0)


@dataclass(slots=True)
class Thread:
    """What is known of one entity: its newest state, the servers that have that, and those that ever had authority."""

    entity: str
    state: MachineState
    server: str
    fence: Fence
    """Of the stay in which the newest state was made."""
    given: dict[Fence, str] = field(default_factory=dict)
    highest: Fence = _NOWHERE
    running: dict[str, Fence] = field(default_factory=dict)
    """The servers that simulate it, or think so."""
    copies: dict[str, MachineState] = field(default_factory=dict)
    """What servers hold of it, running or frozen."""
    set_aside: dict[str, MachineState] = field(default_factory=dict)
    """What servers whose leases ended under it came to, and keep as copies."""
    digests: list[bytes] = field(default_factory=lambda: [MachineState().digest])
    """The folds over its player's inputs, by number."""
    deaths: int = 0
    """How many servers had died when it was taken up."""
    kept_after: int = 0
    """How many had when a copy was kept last."""
    is_taken: bool = False
    """Whether the log has taken it from its server: the next one resumes it from a copy."""
    is_lost: bool = False
    acknowledged: int = 0
    """Inputs that the player was told of."""


class MachineJudge:
    """Keeps the first violation of each kind. `may_simulate` says whether a server would simulate an entity on now."""

    def __init__(
        self, may_simulate: Callable[[str, str], bool], note: Callable[[str], None], *, has_leases: bool = False
    ) -> None:
        self.has_leases: Final = has_leases
        self.violations: Final[list[Violation]] = []
        self.threads: Final[dict[str, Thread]] = {}
        self.debts: Final = Debts()
        self.begun = 0
        self.takeovers = 0
        self.inputs = 0
        self._may_simulate: Final = may_simulate
        self._note: Final = note

    def violated(self, kind: str, sentence: str) -> None:
        """Something happened that must not."""
        if all(known.kind != kind for known in self.violations):
            self._note(f"violated: {kind}: {sentence}")
            self.violations.append(Violation(kind, sentence))

    # --- authority is given ----------------------------------------------------------------------------------------

    def created(self, entity: str, server: str, fence: Fence) -> None:
        """There is a new entity, on a server."""
        thread = self.threads[entity] = Thread(entity, MachineState(), server, _NOWHERE)
        thread.given[fence] = server
        thread.highest = fence

    def given(self, entity: str, server: str, fence: Fence, after: Fence | None = None) -> None:
        """The log, or a pass from `after`, gives authority: to one server under each fence, and only to higher ones."""
        thread = self.threads[entity]
        thread.is_taken = thread.is_taken or not server
        known = thread.given.get(fence)
        if known is not None:
            if known != server:
                self.violated("fence", f"{entity}: {fence} was given to {known} and to {server}")
            return
        if after is not None and fence < thread.highest and self.deaths:
            # Signed by a server that has not heard yet that it was taken from it: none may begin by it.
            self._note(f"{entity} {fence} is {server}'s, and of the past")
            return
        if fence <= thread.highest:
            self.violated("fence", f"{entity}: {fence} was given to {server} after {thread.highest}")
        elif after is not None and after != thread.highest:
            self.violated("fence", f"{entity}: {server} was passed it from {after}, not from {thread.highest}")
        thread.given[fence] = server
        thread.highest = max(thread.highest, fence)
        self._note(f"{entity} {fence} is {server}'s")

    # --- simulating ------------------------------------------------------------------------------------------------

    def begins(self, entity: str, server: str, fence: Fence, state: MachineState) -> None:
        """A server takes an entity up, from the last state of a server."""
        thread = self.threads[entity]
        self.begun += 1
        self._note(f"{server} takes {entity} up under {fence} at {state.tick}")
        self._may_run(thread, server, fence)
        if state != thread.state:
            text = f"{server} took {entity} up at tick {state.tick}, {thread.server} had come to {thread.state.tick}"
            self.violated("state", text)
        if fence <= thread.fence:
            self.violated("fence", f"{server} took {entity} up under {fence}, after {thread.server}'s {thread.fence}")
        thread.running[server] = thread.fence = fence
        thread.server, thread.copies[server] = server, state
        thread.deaths, thread.is_taken = self.deaths, False
        thread.is_lost = False

    def _may_run(self, thread: Thread, server: str, fence: Fence) -> None:
        owner = thread.given.get(fence)
        if owner != server:
            text = f"{server} simulates {thread.entity} under {fence}, which is {owner or 'no server'}'s"
            self.violated("leave", text)
        for other in thread.running:
            if other != server and self._may_simulate(other, thread.entity):
                self.violated("two-authorities", f"{server} took {thread.entity} up, which {other} still simulates")

    def stops(self, entity: str, server: str) -> None:
        """It is frozen there."""
        self.threads[entity].running.pop(server, None)

    def takes_over(self, entity: str, server: str, fence: Fence, state: MachineState) -> None:
        """A server continues from a copy, by the log's leave: its authority is dead, or has stopped."""
        thread = self.threads[entity]
        self.takeovers += 1
        if state != thread.state:
            self._note(f"{entity} goes back from {thread.state.tick} to {state.tick}")
            if not self.debts.has_died_since(thread.server, thread.deaths):
                text = (
                    f"{server} took {entity} over at tick {state.tick}, {thread.server} had come to {thread.state.tick}"
                )
                self.violated("state", text)
            if (owed := self.debts.owed((entity, "state"))) > state.tick:
                text = f"{server} took {entity} over at tick {state.tick}, and a copy of tick {owed} was kept"
                self.violated("durable-state", text)
            if (owed := self.debts.owed((entity, "inputs"))) > state.applied:
                text = f"{server} took {entity} over with {state.applied} inputs, and {owed} were called durable"
                self.violated("durable-inputs", text)
            self.debts.settle((entity, "state"), state.tick)
            self.debts.settle((entity, "inputs"), state.applied)
            thread.acknowledged = min(thread.acknowledged, state.applied)
            thread.state = state
        self.begins(entity, server, fence, state)

    def lost(self, entity: str) -> None:
        """No server that is alive has a copy of an entity; nothing that was called durable may be gone."""
        self._note(f"{entity} is lost")
        self.threads[entity].is_lost = True
        if owed := self.debts.owed((entity, "state")):
            self.violated("lost", f"{entity} is given up, and a copy of tick {owed} was kept")

    def kept(self, entity: str, fence: Fence, tick: int, deaths: int) -> None:
        """An authority hears that a backup replica keeps a copy, as said after this number of deaths."""
        thread = self.threads[entity]
        if fence == thread.fence:
            self.debts.owe((entity, "state"), tick, min(deaths, self.deaths))
            thread.kept_after = min(deaths, self.deaths)

    @property
    def deaths(self) -> int:
        """How many servers have died."""
        return len(self.debts.deaths)

    def died(self, server: str) -> None:
        """A server is gone with its memory, or its lease is over."""
        self._note(f"{server} is dead")
        self.debts.died(server)

    def sets_aside(self, entity: str, server: str) -> None:
        """A life of it ends there, and what it came to is kept as a copy, for as long as the process lives."""
        thread = self.threads[entity]
        thread.running.pop(server, None)
        if (state := thread.copies.pop(server, None)) is not None:
            thread.set_aside[server] = state

    def killed(self, server: str) -> None:
        """Whatever a server had set aside is gone."""
        for thread in self.threads.values():
            thread.set_aside.pop(server, None)

    def crashed(self, entity: str, server: str) -> None:
        """What a server had in memory is gone."""
        thread = self.threads[entity]
        thread.running.pop(server, None)
        thread.copies.pop(server, None)

    def resumes(self, entity: str, server: str, fence: Fence, state: MachineState) -> None:
        """Its source resumes it where it was frozen."""
        thread = self.threads[entity]
        self._note(f"{server} resumes {entity} under {fence} at {state.tick}")
        self._may_run(thread, server, fence)
        if state != thread.state:
            self.violated("state", f"{server} resumed {entity} at tick {state.tick}, not at {thread.state.tick}")
        thread.running[server] = thread.fence = fence
        thread.server = server

    def changes(self, entity: str, server: str, fence: Fence, state: MachineState) -> None:
        """A server simulated it for a tick."""
        thread = self.threads[entity]
        if thread.server != server or thread.fence != fence:
            text = f"{server} simulated {entity} under {fence}, which {thread.server} has under {thread.fence}"
            self.violated("two-authorities", text)
        elif state.tick != thread.state.tick + 1:
            self.violated("state", f"{server} went from tick {thread.state.tick} of {entity} to {state.tick}")
        if state.applied != thread.state.applied:
            self.inputs += 1
            is_next = state.applied == thread.state.applied + 1
            if not is_next or state.digest != thread.digests[state.applied]:
                self.violated("inputs", f"{server} applied input {state.applied} of {entity} as another one")
        thread.state = thread.copies[server] = state

    def leaves(self, entity: str, server: str) -> None:
        """A server drops what it has of it: another one must have the newest state."""
        thread = self.threads[entity]
        self._note(f"{server} drops {entity}")
        thread.running.pop(server, None)
        dropped = thread.copies.pop(server, None)
        left = (*thread.copies.values(), *thread.set_aside.values())
        if dropped == thread.state and not thread.is_taken and thread.state not in left:
            self.violated("lost", f"{server} dropped {entity}, and no server has tick {thread.state.tick}")

    # --- inputs ----------------------------------------------------------------------------------------------------

    def gives(self, entity: str, seq: int, data: bytes) -> None:
        """A player gives the next input."""
        digests = self.threads[entity].digests
        digests.append(fold(digests[-1], seq, data))

    def acknowledges(self, entity: str, applied: int) -> None:
        """A player hears how many inputs are applied: they stay so."""
        thread = self.threads[entity]
        if self.has_leases:
            if applied > thread.acknowledged:
                thread.acknowledged = applied
                self.debts.owe((entity, "inputs"), applied, thread.kept_after)
            return
        thread.acknowledged = max(thread.acknowledged, applied)
        if thread.state.applied < thread.acknowledged:
            text = f"{entity} has {thread.state.applied} inputs, and its player was told of {thread.acknowledged}"
            self.violated("inputs", text)
