"""Messages and calls between processes over a network that delays, loses, repeats and reorders, and can be cut."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from batonpass.scenarios.simulation.kernel.schedule import Schedule

__all__ = ["MailWeather", "SimulatedMail"]


@dataclass(frozen=True, slots=True)
class MailWeather:
    """How the network is: delays in seconds, as (shortest, longest), and shares between 0 and 1."""

    latency_s: tuple[float, float] = (0.0002, 0.002)
    spike_share: float = 0.0
    spike_s: float = 0.0
    lost_share: float = 0.0
    repeated_share: float = 0.0
    bytes_per_s: float = 0.0  # of large messages, on each way, one after the other; 0 for as many as there are


_LARGE_BYTES: Final = 16 * 1024


def _size_of(message: Any) -> int:
    """The bytes of what is large in a message: its state, if there is one."""
    if isinstance(message, bytes):
        return len(message)
    if (several := getattr(message, "messages", None)) is not None:
        return sum(map(_size_of, several))
    state = getattr(message, "state", b"")
    return len(state) if isinstance(state, bytes) else 0


class SimulatedMail:
    """The network: `send` hands a message to the server of this name, later or never, perhaps twice."""

    def __init__(self, schedule: Schedule, dice: random.Random) -> None:
        self._schedule: Final = schedule
        self._dice: Final = dice
        self.weather = MailWeather()
        self._takers: dict[str, Callable[[str, Any], None]] = {}
        self._cut: dict[tuple[str, str], int] = {}
        self._late_s: dict[tuple[str, str], float] = {}
        self.sent = 0
        self._lives: dict[str, int] = {}
        self._free_at_s: dict[tuple[str, str], float] = {}
        self.under_way: dict[tuple[str, str], int] = {}
        """How many large messages are on each way now."""
        self.stamp: Callable[[], int] = lambda: 0
        """What every message is stamped with when it is sent; how many servers have died, say."""
        self.bring: Callable[[Callable[[], None]], None] | None = None
        """What to do with a message that has come: its delivery can be done now, later, again, or never."""
        self.stamped = 0
        """The stamp of the message that arrives at this moment."""

    def join(self, name: str, take: Callable[[str, Any], None]) -> None:
        """Be called by this name; `take(sender, message)` is called for everything that arrives."""
        self._takers[name] = take

    def send(self, sender: str, to: str, message: Any) -> None:
        """Send a message, which is not changed from here on."""
        self.sent += 1
        if to not in self._takers or self._dice.random() < self.weather.lost_share:
            return
        late_s = self._late_s.get((sender, to), 0.0)
        if self.weather.bytes_per_s and (size_bytes := _size_of(message)) >= _LARGE_BYTES:
            self._send_large(sender, to, message, size_bytes, late_s)
            return
        stamp = self.stamp()
        self._schedule.after(self._delay_s() + late_s, lambda: self._arrive(sender, to, message, stamp))
        if self._dice.random() < self.weather.repeated_share:
            self._schedule.after(self._delay_s() * 3, lambda: self._arrive(sender, to, message, stamp))

    def _send_large(self, sender: str, to: str, message: Any, size_bytes: int, late_s: float) -> None:
        """It arrives when the last byte does, if neither of the two ends dies before."""
        way, now_s = (sender, to), self._schedule.now_s
        free_at_s = max(self._free_at_s.get(way, 0.0), now_s) + size_bytes / self.weather.bytes_per_s
        self._free_at_s[way] = free_at_s
        self.under_way[way] = self.under_way.get(way, 0) + 1
        lives, stamp = (self._lives.get(sender, 0), self._lives.get(to, 0)), self.stamp()

        def arrive() -> None:
            self.under_way[way] -= 1
            if not self.under_way[way]:
                del self.under_way[way]
            if lives == (self._lives.get(sender, 0), self._lives.get(to, 0)):
                self._arrive(sender, to, message, stamp)

        self._schedule.after(free_at_s - now_s + self._delay_s() + late_s, arrive)

    def died(self, name: str) -> None:
        """A server is killed: what of large messages has not left or not come is lost."""
        self._lives[name] = self._lives.get(name, 0) + 1
        for way in list(self._free_at_s):
            if name in way:
                del self._free_at_s[way]

    def _delay_s(self) -> float:
        # Twice what `uniform` does, without the calls: on the way of every message.
        weather, draw = self.weather, self._dice.random
        spike = weather.spike_s if draw() < weather.spike_share else 0.0
        shortest_s, longest_s = weather.latency_s
        return shortest_s + (longest_s - shortest_s) * draw() + spike * draw()

    def _arrive(self, sender: str, to: str, message: Any, stamp: int) -> None:
        if self._cut.get((sender, to)):
            return
        if self.bring is None:
            self._deliver(sender, to, message, stamp)
        else:
            self.bring(partial(self._deliver, sender, to, message, stamp))

    def _deliver(self, sender: str, to: str, message: Any, stamp: int) -> None:
        self.stamped = stamp
        self._takers[to](sender, message)

    def cut(self, sender: str, to: str) -> None:
        """Nothing arrives in this direction from now on, also what is under way; cuts add up."""
        self._cut[sender, to] = self._cut.get((sender, to), 0) + 1

    def mend(self, sender: str, to: str) -> None:
        """Take one cut back."""
        self._cut[sender, to] = max(self._cut.get((sender, to), 0) - 1, 0)

    def delay(self, sender: str, to: str, late_s: float) -> None:
        """Everything that is sent in this direction from now on arrives later by this time."""
        self._late_s[sender, to] = late_s

    def heal(self) -> None:
        """No cuts any more, and fair weather."""
        self._cut.clear()
        self._late_s.clear()
        self.weather = MailWeather(bytes_per_s=self.weather.bytes_per_s)
