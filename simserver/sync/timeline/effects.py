"""What events tell the world outside: at once, and taken back if need be; or once it is settled, each exactly once.

A sound may be played at once, and faded out when it turns out that nothing happened. Points are given when the event
can no longer change. Nothing is called from within the history: who listens takes what there is, when it suits him.
"""

from typing import Any, Final, NamedTuple

from batonpass.simserver.sync.timeline.sameness import same
from batonpass.simserver.sync.timeline.times import DAWN, ExtendedTime

__all__ = ["EffectLog", "EffectNotice"]


class EffectNotice(NamedTuple):
    """One effect of an event."""

    time: ExtendedTime
    what: Any
    is_retracted: bool = False
    """It was told, and turned out not to be."""


class EffectLog:
    """The effects that the history has, and which of them were told. At most one entry for each remembered event."""

    def __init__(self) -> None:
        self._now: Final[dict[ExtendedTime, tuple[Any, ...]]] = {}
        self._told: Final[dict[ExtendedTime, tuple[Any, ...]]] = {}
        self._changed: Final[set[ExtendedTime]] = set()
        self.settled_until = DAWN
        """Before when all effects were told that are settled."""

    def change(self, time: ExtendedTime, effects: tuple[Any, ...]) -> None:
        """Take note of the effects that the event at a time has now."""
        if effects:
            self._now[time] = effects
        else:
            self._now.pop(time, None)
        self._changed.add(time)

    def take_over(self, former: "EffectLog", since: ExtendedTime | None) -> None:
        """Continue from what another log has told, when this history takes the place of its.

        Args:
            former: the other log.
            since: this history is the same one, of which only what is later than this is known; None: it is a new one.
        """
        if since is not None:
            self.settled_until = max(former.settled_until, since)
        begin = former.settled_until if since is None else since
        self._told.update({at: effects for at, effects in former._told.items() if at >= begin})
        self._changed.update(self._told)

    def take_speculative(self) -> list[EffectNotice]:
        """Return what is new since the last call, and what is no more, by time; what came and went is not told."""
        notices = []
        for time in sorted(self._changed):
            told, now = self._told.pop(time, ()), self._now.get(time, ())
            kept = 0
            while kept < min(len(told), len(now)) and same(told[kept], now[kept]):
                kept += 1
            notices += [EffectNotice(time, what, is_retracted=True) for what in reversed(told[kept:])]
            notices += [EffectNotice(time, what) for what in now[kept:]]
            if now:
                self._told[time] = now
        self._changed.clear()
        return notices

    def take_settled(self, end: ExtendedTime) -> list[EffectNotice]:
        """Return the effects before a time that were not returned yet, in order; the history does not change there."""
        times = sorted(time for time in self._now if self.settled_until <= time < end)
        self.settled_until = max(self.settled_until, end)
        return [EffectNotice(time, what) for time in times for what in self._now[time]]

    def forget_before(self, time: ExtendedTime) -> None:
        """Forget the effects before a time; those that were not taken are never told."""
        for table in (self._now, self._told):
            for at in [at for at in table if at < time]:
                del table[at]
        self._changed.difference_update([at for at in self._changed if at < time])
