"""What must never happen, watched during a run: Raft's safety sentences (Raft paper, figure 3) and clients' trust."""

from typing import Final

from batonpass.scenarios.simulation.kernel.outcome import Violation

__all__ = ["Oracle"]


class Oracle:
    """Sees everything, and keeps the first violation of each kind."""

    def __init__(self) -> None:
        self.log: Final[dict[int, bytes]] = {}
        self.violations: Final[list[Violation]] = []
        self.changes = 0
        self._seats: dict[int, frozenset[str]] = {}
        self._applied_by: dict[int, str] = {}
        self._leaders: dict[int, str] = {}

    @property
    def terms(self) -> int:
        """How many terms had a leader."""
        return len(self._leaders)

    def applied(self, name: str, index: int, command: bytes) -> None:
        """State-machine safety: what one member applied at an index, no other applies another thing at."""
        known = self.log.setdefault(index, command)
        first = self._applied_by.setdefault(index, name)
        if known != command:
            self.violated(
                "state-machine", f"{name} applied {command!r:.120} at {index}, where {first} applied {known!r:.120}"
            )

    @property
    def members(self) -> frozenset[str]:
        """The members since the last change that any of them has applied, and that is committed therefore."""
        return self._seats[max(self._seats)] if self._seats else frozenset()

    def members_are(self, name: str, index: int, members: frozenset[str]) -> None:
        """A member applied a change of the members: the same one as all others at that index."""
        if index not in self._seats:
            self.changes += index > 0
        known = self._seats.setdefault(index, members)
        if known != members:
            self.violated(
                "state-machine", f"since {index} the members are {sorted(members)} to {name}, {sorted(known)} to others"
            )

    def leads(self, name: str, term: int) -> None:
        """Election safety: at most one leader in a term."""
        known = self._leaders.setdefault(term, name)
        if known != name:
            self.violated("two-leaders", f"{name} leads in term {term}, and so did {known}")

    def violated(self, kind: str, sentence: str) -> None:
        """Something happened that must not."""
        if all(violation.kind != kind for violation in self.violations):
            self.violations.append(Violation(kind, sentence))
