"""Why an entity is not simulated, and since when: its world or this server failed on it, or cannot read its state.

It stays so until an operator releases it. If the reason is its own, it moves with it (`wherever`); if only this server
cannot read it, another one may simulate it.
"""

import logging
from typing import Final

from batonpass.actors.base.errors import said
from batonpass.actors.core.exits import Reason
from batonpass.actors.core.restart import RestartWindow
from batonpass.simserver.entity.environment import EntityEnvironment
from batonpass.simserver.entity.snapshot import EntitySnapshot, shortened

__all__ = ["CRASH_WINDOW_S", "MAX_CRASHES", "Quarantine"]

_log = logging.getLogger("batonpass.simserver.entity.quarantine")

# An actor that crashes more often than this, on one entity, would keep doing so: the entity is quarantined instead. It
# is not its supervisor's limit, because one entity must not end the others.
MAX_CRASHES: Final = 3
CRASH_WINDOW_S: Final = 5.0
# An entity that is stopped this soon, by its ticks, has not run here.
FIRST_MOMENTS_S: Final = 5.0


class Quarantine:
    """Of one entity on this server; it begins with what the entity has brought along.

    `why` is empty if the entity is simulated, `is_unread` whether only this server does not simulate it. `failed_here`
    says that it was simulated before, and its world failed on it soon after it came. It was released last under
    `released_epoch`.
    """

    __slots__ = (
        "_crashes",
        "_entity",
        "_env",
        "_kind",
        "_ran_before",
        "_since_ns",
        "failed_here",
        "is_unread",
        "released_epoch",
        "why",
    )

    def __init__(self, environment: EntityEnvironment, entity: str, snapshot: EntitySnapshot) -> None:
        self._env: Final = environment
        self._entity: Final = entity
        self._kind: Final = snapshot.kind
        self.why = snapshot.broken
        self.is_unread = self.failed_here = False
        self.released_epoch = snapshot.released_epoch
        self._ran_before: Final = snapshot.tick > 0 and not snapshot.broken
        self._since_ns = environment.monotonic_ns()
        self._crashes: RestartWindow | None = None

    @property
    def wherever(self) -> str:
        """Why it is not simulated wherever it goes; empty if it is, or only this server cannot read it."""
        return "" if self.is_unread else self.why

    @property
    def lasts_ns(self) -> int:
        """For how long it has not been simulated."""
        return self._env.monotonic_ns() - self._since_ns

    def begin(self, why: str, *, is_unread: bool) -> None:
        """It is not simulated from here on."""
        self.why, self.is_unread = shortened(why), is_unread
        self._since_ns, self.failed_here = self._env.monotonic_ns(), False
        self._env.count("entity_broken")

    def end(self, epoch: int) -> None:
        """An operator has looked at it: it is released, under a fence of this epoch."""
        self.why, self.is_unread, self._crashes = "", False, None
        self.released_epoch = epoch
        self._env.count("entity_released")
        self._env.crash_guard.forget(self._entity)

    # --- what may lead to it ---------------------------------------------------------------------------------------

    def world_failed(self, after_s: float) -> None:
        """It is quarantined because its world failed on it, `after_s` after it came."""
        self.failed_here = self._ran_before and after_s < FIRST_MOMENTS_S

    def fault(self, doing: str, error: BaseException, tick: int) -> None:
        """Its world failed in `doing` something with it: that is counted, and said in the log."""
        self._env.count("world_failed")
        what = f"{doing}: {self._entity}, a {self._kind}, at tick {tick}"
        if self.why:
            what += f"; it is stopped {'wherever it goes' if self.wherever else 'here'}"
        self._env.faults.failed(what, error, self._env.monotonic_ns())

    def crashed(self, reason: Reason) -> str:
        """Its actor has crashed: why no other one is to be tried, or empty."""
        self._env.count("entity_crashed")
        if self._crashes is None:
            self._crashes = RestartWindow(MAX_CRASHES, CRASH_WINDOW_S)
        if self._crashes.allows_restart(self._env.monotonic_ns() / 1e9):
            return ""
        told = said(reason) if isinstance(reason, BaseException) else repr(reason)
        return f"its actor crashed {MAX_CRASHES + 1} times in a row: {told}"

    def lease_lost(self, took_s: float, epoch: int) -> str:
        """Its world took so long that the lease was lost by it, which counts as a death: why it is to end, or empty."""
        times = self._env.crash_guard.died(self._entity, epoch)
        self._env.count("lease_lost_at_work")
        text = "the world took %.1f s for %s, and %s lost its lease by that, %d times in an hour"
        _log.error(text, took_s, self._entity, self._env.server, times)
        why = self._env.crash_guard.verdict(self._entity, self.released_epoch)
        return why and f"{why}: {took_s:.1f} s the last time"
