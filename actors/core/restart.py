"""The decisions of a supervisor, without the supervisor: who is restarted, who goes down with whom, when to give up.

Everything here is pure; `now_s` is an input. The table, the groups and the number of starts before giving up agree with
recorded runs of OTP 25. The edges of the window follow the source of stdlib `supervisor`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from batonpass.actors.core.exits import Reason, is_normal, is_shutdown

KEPT_RESTARTS: Final = 2000
"""Of a whole system: about 1 MB if every reason is as long as it may be."""


class Restart(Enum):
    """What the end of a child means."""

    PERMANENT = "permanent"
    """It must always run."""
    TRANSIENT = "transient"
    """It may finish; a crash is made good."""
    TEMPORARY = "temporary"
    """It is never restarted, and forgotten when it ends."""


class ExitKind(Enum):
    """What the table below distinguishes about an exit reason."""

    NORMAL = "normal"
    SHUTDOWN = "shutdown"
    CRASH = "crash"


RESTARTS: dict[tuple[Restart, ExitKind], bool] = {
    (Restart.PERMANENT, ExitKind.NORMAL): True,
    (Restart.PERMANENT, ExitKind.SHUTDOWN): True,
    (Restart.PERMANENT, ExitKind.CRASH): True,
    (Restart.TRANSIENT, ExitKind.NORMAL): False,
    (Restart.TRANSIENT, ExitKind.SHUTDOWN): False,
    (Restart.TRANSIENT, ExitKind.CRASH): True,
    (Restart.TEMPORARY, ExitKind.NORMAL): False,
    (Restart.TEMPORARY, ExitKind.SHUTDOWN): False,
    (Restart.TEMPORARY, ExitKind.CRASH): False,
}


def exit_kind(reason: Reason) -> ExitKind:
    """Which column of the table `reason` belongs to."""
    if is_normal(reason):
        return ExitKind.NORMAL
    return ExitKind.SHUTDOWN if is_shutdown(reason) else ExitKind.CRASH


def should_restart(restart: Restart, reason: Reason) -> bool:
    """Whether a child with this setting that ended for this reason is started again."""
    return RESTARTS[restart, exit_kind(reason)]


class Strategy(Enum):
    """Who shares the fate of a child that has to be restarted."""

    ONE_FOR_ONE = "one_for_one"
    """None: children are independent."""
    ONE_FOR_ALL = "one_for_all"
    """All: children cannot work without each other."""
    REST_FOR_ONE = "rest_for_one"
    """Those started after it: later children depend on earlier ones."""


class AutoShutdown(Enum):
    """Whether a supervisor ends when the children that it is there for have ended by themselves.

    Those are its significant children (OTP 24). Only ends count after which a child is not restarted; being ended by
    the supervisor, because of a sibling or on demand, does not.
    """

    NEVER = "never"
    """It continues, and has no significant children."""
    ANY_SIGNIFICANT = "any_significant"
    """When one has ended."""
    ALL_SIGNIFICANT = "all_significant"
    """When one has ended, and none is left that runs or is to be restarted."""

    def ends(self, significant_left: Iterable[object]) -> bool:
        """Whether the end of a significant child is the end of its supervisor; `significant_left` are the others."""
        if self is AutoShutdown.ALL_SIGNIFICANT:
            return not any(True for _ in significant_left)
        return self is AutoShutdown.ANY_SIGNIFICANT


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """What to do about one victim: stop these in this order, then start these in this order."""

    stop: tuple[Hashable, ...]
    start: tuple[Hashable, ...]


def plan(strategy: Strategy, children: Sequence[tuple[Hashable, Restart]], victim: Hashable) -> RestartPlan:
    """Plan the restart of `victim`, one of `children` (ids and settings in start order).

    The victim itself has ended already, so it is not among those to stop. Temporary siblings that are stopped are not
    started again. Raises `ValueError` when the victim is not one of the children.
    """
    ids = [child_id for child_id, _ in children]
    at = ids.index(victim)
    share_fate = {
        Strategy.ONE_FOR_ONE: slice(at, at + 1),
        Strategy.ONE_FOR_ALL: slice(None),
        Strategy.REST_FOR_ONE: slice(at, None),
    }
    group = children[share_fate[strategy]]
    return RestartPlan(
        stop=tuple(child_id for child_id, _ in reversed(group) if child_id != victim),
        start=tuple(child_id for child_id, restart in group if restart is not Restart.TEMPORARY or child_id == victim),
    )


class RestartWindow:
    """Counts the restarts of one supervisor, all its children together, over the last `window_s` seconds.

    More than `max_restarts` of them means that restarting does not help. Raises `ValueError` for a negative
    `max_restarts` or a `window_s` that is not positive.
    """

    __slots__ = ("_at_s", "max_restarts", "window_s")

    def __init__(self, max_restarts: int, window_s: float) -> None:
        if max_restarts < 0:
            raise ValueError(f"max_restarts must be 0 or more, not {max_restarts}")
        if not window_s > 0:
            raise ValueError(f"window_s must be more than 0 seconds, not {window_s}")
        self.max_restarts = max_restarts
        self.window_s = window_s
        # One more than allowed is enough to decide, so the memory of a crash storm is bounded.
        self._at_s: deque[float] = deque(maxlen=max_restarts + 1)

    def __len__(self) -> int:
        """How many restarts there were within the window that ended with the last one."""
        return len(self._at_s)

    def allows_restart(self, now_s: float) -> bool:
        """Count one restart at `now_s`; False when that is one too many. `now_s` must not go backwards."""
        self._at_s.append(now_s)
        while self._at_s[0] < now_s - self.window_s:
            self._at_s.popleft()
        return len(self._at_s) <= self.max_restarts


class LoggedRestart(NamedTuple):
    """One restart: when, in seconds on the clock of trio; which child, by the ids from the root down; and why."""

    at_s: float
    path: tuple[Hashable, ...]
    reason: str


class RestartLog:
    """The last restarts of a system, at most `KEPT_RESTARTS` of them, for people who look at its tree."""

    def __init__(self) -> None:
        self._kept: deque[LoggedRestart] = deque(maxlen=KEPT_RESTARTS)

    def note(self, at_s: float, path: tuple[Hashable, ...], reason: str) -> None:
        """A child that had ended is started again, or would be if that were not one time too many."""
        self._kept.append(LoggedRestart(at_s, path, reason))

    def since(self, at_s: float) -> list[LoggedRestart]:
        """Those that are not older, oldest first."""
        return [one for one in self._kept if one.at_s >= at_s]
