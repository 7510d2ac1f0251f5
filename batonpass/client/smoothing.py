"""States between those that were shown, so that what moves in ticks moves smoothly on a screen. No I/O.

Each state is kept with the moment of its round (`tick_clock`), and shown a moment later: `delay_s` after it was there
at the earliest. What comes late, but not later than that, is in time (a jitter buffer). Between two states, numbers go
evenly from the one to the other. Nothing is guessed beyond the last one.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from batonpass.client.tick_clock import TickClock

__all__ = ["JitterBuffer", "blended"]

Blend = Callable[[Any, Any, float], Any]
MAX_STATES: Final = 64
"""Of one entity that are kept: at 20 Hz three seconds."""
_JITTERS: Final = 4.0
_PERIODS: Final = 1.5


def blended(one: Any, other: Any, share: float) -> Any:
    """Numbers between two, member by member; of anything else the nearer one. `share` is 0 for `one`, 1 for `other`."""
    if _is_number(one) and _is_number(other):
        return one + (other - one) * share
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: blended(one[key], value, share) if key in one else value for key, value in other.items()}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [blended(first, second, share) for first, second in zip(one, other, strict=True)]
    return one if share < 0.5 else other


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class JitterBuffer:
    """The states of what is watched, by entity.

    Args:
        delay_s: by how much later they are shown; None: as jitter asks, one tick and a half at least.
        blend: makes a state between two.
    """

    def __init__(self, delay_s: float | None = None, blend: Blend = blended) -> None:
        self._fixed_s: Final = delay_s
        self._blend: Final = blend
        self._states: Final[dict[str, deque[tuple[float, Any]]]] = {}
        self._delays: Final[dict[str, float]] = {}
        self._shown_s: Final[dict[str, float]] = {}

    def take(self, name: str, round_number: int, state: Any, clock: TickClock) -> None:
        """An entity was so in a round of the server whose clock this is."""
        at_s, states = clock.time_of(round_number), self._states.setdefault(name, deque(maxlen=MAX_STATES))
        if states:
            before_s, before = states[-1]
            # Another server has another clock, and each is corrected: time does not go back for that.
            at_s = max(at_s, before_s)
            if at_s - before_s > 2 * clock.period_s:
                # It rested: nothing was told, and it was as before until one tick ago.
                states.append((at_s - clock.period_s, before))
        states.append((at_s, state))
        wanted_s = _PERIODS * clock.period_s + _JITTERS * clock.jitter_s if self._fixed_s is None else self._fixed_s
        # More at once, less little by little: what is shown shall not jump.
        self._delays[name] = max(wanted_s, self._delays.get(name, 0.0) * 0.99)

    def forget(self, name: str) -> None:
        """An entity is not shown any more."""
        for table in (self._states, self._delays, self._shown_s):
            table.pop(name, None)

    def delay_s(self, name: str) -> float:
        """By how much later an entity is shown now."""
        return self._delays.get(name, 0.0)

    def at(self, now_s: float) -> Mapping[str, Any]:
        """The state of each entity as it is to be shown now; of one entity time never goes back."""
        return {name: self._of(name, states, now_s) for name, states in self._states.items()}

    def _of(self, name: str, states: deque[tuple[float, Any]], now_s: float) -> Any:
        at_s = self._shown_s[name] = max(now_s - self._delays[name], self._shown_s.get(name, 0.0))
        while len(states) > 1 and states[1][0] <= at_s:
            states.popleft()
        first_s, first = states[0]
        if len(states) == 1 or at_s <= first_s:
            return first
        second_s, second = states[1]
        return self._blend(first, second, (at_s - first_s) / (second_s - first_s))
