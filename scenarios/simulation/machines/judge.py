"""The promises, watched at every step of a run, of the entity that the step touches.

The judge is told what happens, at the moment when it happens on virtual time, whatever the servers believe.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from authority.epoch import Fence
from scenarios.simulation.machines.lives import State
from scenarios.simulation.oracle import Violation
from simserver.inputs import fold

__all__ = ["Judge", "Thread"]

_NOWHERE: Final = Fence(0)


@dataclass(slots=True)
class Thread:
    """What is known of one entity: its newest state, who has that, and to whom authority was ever given."""

    entity: str
    state: State
    server: str
    fence: Fence
    """Of the stay in which the newest state was made."""
    given: dict[Fence, str] = field(default_factory=dict)
    highest: Fence = _NOWHERE
    running: dict[str, Fence] = field(default_factory=dict)
    """Who simulates it, or thinks so."""
    copies: dict[str, State] = field(default_factory=dict)
    """What servers hold of it, running or frozen."""
    digests: list[bytes] = field(default_factory=lambda: [State().digest])
    """The folds over its player's inputs, by number."""
    acknowledged: int = 0
    """Inputs that the player was told of."""


class Judge:
    """Keeps the first violation of each kind. `may_simulate` says whether a server would go on with an entity now."""

    def __init__(self, may_simulate: Callable[[str, str], bool], note: Callable[[str], None]) -> None:
        self.violations: Final[list[Violation]] = []
        self.threads: Final[dict[str, Thread]] = {}
        self.begun = 0
        self.inputs = 0
        self._may_simulate: Final = may_simulate
        self._note: Final = note

    def violated(self, kind: str, sentence: str) -> None:
        """Something happened that must not."""
        if all(known.kind != kind for known in self.violations):
            self._note(f"violated: {kind}: {sentence}")
            self.violations.append(Violation(kind, sentence))

    # --- who is given authority ------------------------------------------------------------------------------------

    def created(self, entity: str, server: str, fence: Fence) -> None:
        """There is a new entity, on a server."""
        thread = self.threads[entity] = Thread(entity, State(), server, _NOWHERE)
        thread.given[fence] = server
        thread.highest = fence

    def given(self, entity: str, server: str, fence: Fence, after: Fence | None = None) -> None:
        """The log, or a pass from `after`, gives authority: to one server under each fence, and only to higher ones."""
        thread = self.threads[entity]
        known = thread.given.get(fence)
        if known is not None:
            if known != server:
                self.violated("fence", f"{entity}: {fence} was given to {known} and to {server}")
            return
        if fence <= thread.highest:
            self.violated("fence", f"{entity}: {fence} was given to {server} after {thread.highest}")
        elif after is not None and after != thread.highest:
            self.violated("fence", f"{entity}: {server} was passed it from {after}, not from {thread.highest}")
        thread.given[fence] = server
        thread.highest = max(thread.highest, fence)
        self._note(f"{entity} {fence} is {server}'s")

    # --- who simulates ---------------------------------------------------------------------------------------------

    def begins(self, entity: str, server: str, fence: Fence, state: State) -> None:
        """A server takes an entity up, from a state that was somebody's last."""
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

    def _may_run(self, thread: Thread, server: str, fence: Fence) -> None:
        owner = thread.given.get(fence)
        if owner != server:
            text = f"{server} simulates {thread.entity} under {fence}, which is {owner or 'nobody'}'s"
            self.violated("leave", text)
        for other in thread.running:
            if other != server and self._may_simulate(other, thread.entity):
                self.violated("two-authorities", f"{server} took {thread.entity} up, which {other} still simulates")

    def stops(self, entity: str, server: str) -> None:
        """It stands still there."""
        self.threads[entity].running.pop(server, None)

    def resumes(self, entity: str, server: str, fence: Fence, state: State) -> None:
        """It goes on where it stood still."""
        thread = self.threads[entity]
        self._note(f"{server} goes on with {entity} under {fence} at {state.tick}")
        self._may_run(thread, server, fence)
        if state != thread.state:
            self.violated("state", f"{server} went on with {entity} at tick {state.tick}, not at {thread.state.tick}")
        thread.running[server] = thread.fence = fence
        thread.server = server

    def changes(self, entity: str, server: str, fence: Fence, state: State) -> None:
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
        """A server drops what it has of it: somebody else must have the newest state."""
        thread = self.threads[entity]
        self._note(f"{server} drops {entity}")
        thread.running.pop(server, None)
        thread.copies.pop(server, None)
        if thread.state not in thread.copies.values():
            self.violated("lost", f"{server} dropped {entity}, and nobody has tick {thread.state.tick}")

    # --- inputs ----------------------------------------------------------------------------------------------------

    def gives(self, entity: str, seq: int, data: bytes) -> None:
        """A player gives the next input."""
        digests = self.threads[entity].digests
        digests.append(fold(digests[-1], seq, data))

    def acknowledges(self, entity: str, applied: int) -> None:
        """A player hears that so many inputs are applied: they stay so."""
        thread = self.threads[entity]
        thread.acknowledged = max(thread.acknowledged, applied)
        if thread.state.applied < thread.acknowledged:
            text = f"{entity} has {thread.state.applied} inputs, and its player was told of {thread.acknowledged}"
            self.violated("inputs", text)
