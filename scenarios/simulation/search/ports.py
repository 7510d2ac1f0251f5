"""On what one server of a search stands: a clock that is stopped, a note for a disk, room everywhere, no leases."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from batonpass.actors.base.clock import Clock
from batonpass.authority.fence import Fence
from batonpass.authority.machines.capacity import Need

__all__ = ["ROOMS", "AlwaysLeased", "HistoryWorld", "Note", "NoteLedger", "StoppedClock"]


class StoppedClock(Clock):
    """Timers are steps of the search, so the time is not needed."""

    def monotonic_ns(self) -> int:
        """Nothing passes."""
        return 0

    def unix_s(self) -> float:
        """Nothing passes."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Note:
    """A row of a server's ledger: where the entity went, or nowhere, and the fence of that."""

    moved_to: str
    fence: Fence


class NoteLedger:
    """What is on disk, and what was before the last note."""

    def __init__(self) -> None:
        self.row: Note | None = None
        self.row_before: Note | None = None

    def _note(self, row: Note) -> None:
        self.row_before, self.row = self.row, row

    def lives(self, entity: str, kind: str, fence: Fence, since: int = 0) -> None:
        """As `LedgerRows.lives`."""
        self._note(Note("", fence))

    def left(self, entity: str, moved_to: str, fence: Fence) -> None:
        """As `LedgerRows.left`."""
        self._note(Note(moved_to, fence))

    def forget(self, entity: str) -> None:
        """As `LedgerRows.forget`."""
        raise AssertionError("one entity is not too many")


class HistoryWorld:
    """A world whose state is the list of all inputs that were ever applied."""

    def spawn(self, kind: str, params: dict[str, Any]) -> list[int]:
        """As `World.spawn`."""
        return []

    def step(self, state: list[int], inputs: Any, dt_s: float) -> list[int]:
        """As `World.step`."""
        return [*state, *(item.seq for item in inputs)]

    def destination(self, state: list[int], here: str, ticks_here: int) -> None:
        """As `World.destination`."""
        return


class _Rooms:
    """There is room everywhere: asking for it comes before anything that a search is about.

    `incarnations` are those of the servers that would answer now.
    """

    def __init__(self) -> None:
        self.incarnations: dict[str, int] = {}

    def ask(self, target: str, need: Need, decided: Callable[[str], None], *, afresh: bool = False) -> None:
        """As `TargetAdmission.ask`."""
        decided("")

    def incarnation_of(self, target: str) -> int:
        """As `TargetAdmission.incarnation_of`."""
        return self.incarnations.get(target, 0)

    def arrived(self, source: str) -> None:
        """As `Reception.arrived`."""

    def why_not(self, kind: str, schema_version: int, state_bytes: int) -> str:
        """As `Reception.why_not`."""
        return ""


ROOMS: Final = _Rooms()


class AlwaysLeased:
    """There are no leases here, and home always answers; lives of a server are told apart all the same."""

    def __init__(self, incarnation: Callable[[], int]) -> None:
        self._incarnation: Final = incarnation

    @property
    def incarnation(self) -> int:
        """As `LeaseKeeper.incarnation`."""
        return self._incarnation()

    def may_act(self, now_ns: int) -> bool:
        """As `LeaseKeeper.may_act`."""
        return True

    def home_answers(self, now_ns: int) -> bool:
        """As `LeaseKeeper.home_answers`."""
        return True

    def why_not_asked(self) -> str:
        """As `LeaseKeeper.why_not_asked`."""
        return ""

    def heard_log(self, sender: str, log: str) -> None:
        """As `LeaseKeeper.heard_log`."""

    def shown_abroad(self, sender: str, token: str) -> None:
        """As `LeaseKeeper.shown_abroad`."""
